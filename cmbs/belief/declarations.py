"""Declarations, and what they take from elsewhere.

The id comes from a key, universe and attributes from a provider or a graph, the name of the store from the store.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from cmbs.belief.agreement import Agreement
from cmbs.belief.graph_kits import GraphKits, ontology_of_graph
from cmbs.belief.kernel.case_fields import build_case_fields
from cmbs.belief.kernel.events import Declare, Stamp, read_event
from cmbs.belief.kernel.provider_mask import ask_provider
from cmbs.belief.kernel.requests import Command, RequestValidator
from cmbs.belief.kernel.session import decide_declare
from cmbs.belief.kits import ReadyKit
from cmbs.belief.names import NameRegistry
from cmbs.belief.providers import Providers, reference_of
from cmbs.errors import Conflict, InvalidRequest
from cmbs.kit.graph_kit import GraphKit
from cmbs.kit.model import Kit
from cmbs.kit.provider import KitProvider, ontology_of
from cmbs.ledger.canonical import encode
from cmbs.messages import (
    Actor,
    ActorKind,
    ConclusionRule,
    EliminationRule,
    KitChoice,
    OntologyBundle,
    ProviderRef,
    SessionPolicy,
)
from cmbs.spi import (
    AnchoredUniverse,
    AttributedProvider,
    AuditLog,
    EliminationStore,
    HypothesisProvider,
    IdSource,
    UniverseSource,
)

# The ids of sessions that were declared under an idempotency key follow from the key, so that a repeat finds the first.
_KEYED_SESSIONS = uuid.UUID("6b2a1f0e-5c3d-4f4e-9a51-3f1d8c7be2a4")
_KEYED_SESSIONS_OF_ACTORS = uuid.UUID("0d5e7c19-3b48-4c6a-8f27-92a6be41d0f3")


class ChosenProvider(NamedTuple):
    """What a session is declared from, and how the session names it."""

    provider: HypothesisProvider | GraphKit
    reference: ProviderRef


class Declarations:
    """Makes the commands that open sessions; `remote` is the store of tombstones where that is not the log."""

    def __init__(  # noqa: PLR0913 - what declarations are made from
        self,
        log: AuditLog,
        remote: EliminationStore | None,
        agreement: Agreement | None,
        requests: RequestValidator,
        ids: IdSource,
        stamp: Callable[[str | None, Actor | None], Stamp],
        policy: SessionPolicy,
        providers: Providers,
        *,
        names: NameRegistry,
        graph_kits: GraphKits,
    ) -> None:
        self._log = log
        self._remote = remote
        self._agreement = agreement
        self._requests = requests
        self._ids = ids
        self._stamp = stamp
        self._policy = policy
        self._providers = providers
        self._names = names
        self._graph_kits = graph_kits

    def command(  # noqa: PLR0913 - what a declaration may say, by keyword
        self,
        ontology: OntologyBundle | None,
        hypotheses: Iterable[str] | None,
        metadata: Any = None,
        *,
        policy: SessionPolicy | None = None,
        hypothesis_attributes: Any = None,
        provider: str | None = None,
        kit: str | KitChoice | None = None,
        symptoms: Iterable[str] | None = None,
        name: str | None = None,
        named_by: Actor | None = None,
        idempotency_key: str | None = None,
        actor: Actor | None = None,
        **said: Any,
    ) -> Command:
        """The command that opens a session; `metadata` may still be JSON text, as a `msgspec.Raw`.

        `said` is what is said of it as a case, as `build_case_fields` takes it.
        """
        session_id = self.choose_id(idempotency_key, actor)
        case = build_case_fields(**{**said, "agents": _choose_agents(said.get("agents"), actor)})
        reference = note = store_id = graph_kit = found = None
        policy, chosen = policy or self._policy, self._providers.own
        if chosen is None and (provider is not None or kit is not None):
            found = self._choose(hypotheses, provider, kit, idempotency_key and session_id)
            reference, policy = found.reference, ask_for_evidence(policy)
            if isinstance(found.provider, GraphKit):
                graph_kit = found.provider
            else:
                chosen = found.provider
        elif chosen is not None:
            found = ChosenProvider(chosen, reference_of(chosen))
        wrong = self._check_symptoms(graph_kit, symptoms)
        ontology = ontology or _find_ontology(found)
        if chosen is not None and found is not None:
            reference, hypotheses = found.reference, ask_provider(chosen, chosen.hypothesis_ids)
            hypothesis_attributes = attributes_of_provider(chosen, hypothesis_attributes)
        else:
            begun = None if idempotency_key is None else self._find_begun(session_id)
            store_id = self._identify_store(begun)
            if hypotheses is None:
                ontology, universe = self._find_universe(session_id, ontology, begun, graph_kit, wrong)
                hypotheses = universe.hypothesis_ids
                if hypothesis_attributes is None:
                    limit = None if begun is not None else self._requests.limits.attribute_bytes
                    hypothesis_attributes, note = attributes_of_graph(universe, limit)
        message = self._requests.declare(
            ontology, hypotheses, metadata, policy, reference, hypothesis_attributes, store_id, case
        )
        if wrong is not None:
            message = msgspec.structs.replace(message, symptoms=wrong)
        event = decide_declare(session_id, message, self._stamp(idempotency_key, actor))
        command = Command(session_id, message, idempotency_key, declared=event, actor=actor, note=note)
        return command if name is None else self._with_name(command, name, named_by or actor)

    def _with_name(self, command: Command, name: str, named_by: Actor | None) -> Command:
        """The command for a case of this name; Conflict where another has it.

        A repeat goes by the name that its case has by now.
        """
        if self._names.name_of(command.session_id) is None:
            self._names.require_free(name, command.session_id)
        return msgspec.structs.replace(command, name=name, named_by=named_by)

    def _find_universe(
        self,
        session_id: str,
        ontology: OntologyBundle,
        begun: Declare | None,
        graph_kit: GraphKit | None,
        symptoms: Sequence[str] | None,
    ) -> tuple[OntologyBundle, AnchoredUniverse]:
        """The universe of a session over a causal graph, with the version of the graph; of one begun, that it has."""
        declared = None if begun is None else universe_of_declaration(begun)
        ontology, universe = anchor(self._remote, session_id, self._requests.ontology(ontology), declared)
        if graph_kit is not None and declared is None:
            universe = self._narrow(universe, graph_kit, symptoms or ())
        return ontology, universe

    def _check_symptoms(self, graph_kit: GraphKit | None, symptoms: Iterable[str] | None) -> list[str] | None:
        """The symptoms of a session over a kit of a causal graph, which needs some, as no other does."""
        if graph_kit is None and symptoms is not None:
            raise InvalidRequest(
                "`symptoms` belong to a session over a kit of a causal graph",
                {"field": "symptoms", "next": "leave them out, or name such a `kit`"},
            )
        if graph_kit is None:
            return None
        self._graph_kits.require_graph()
        if symptoms is None:
            raise InvalidRequest(
                f"kit `{graph_kit.kit_id}` is over a causal graph: name the `symptoms`, the nodes that show something"
                " wrong",
                {"field": "symptoms", "accepted": {"minItems": 1}},
            )
        return self._requests.symptoms(symptoms)

    def _narrow(self, universe: AnchoredUniverse, kit: GraphKit, symptoms: Sequence[str]) -> AnchoredUniverse:
        """What of a graph can have caused symptoms, by a kit."""
        version = universe.causal_graph_version or ""
        found = self._graph_kits.choose_hypotheses(kit, version, universe.hypothesis_ids, symptoms)
        return AnchoredUniverse(found.hypothesis_ids, version, found.attributes)

    def _choose(
        self,
        hypotheses: Iterable[str] | None,
        provider: str | None,
        kit: str | KitChoice | None,
        repeated_id: str | None,
    ) -> ChosenProvider:
        """What a declaration takes its hypotheses from; a repeat finds the content of the kit that it found first."""
        source = "provider" if kit is None else "kit"
        if hypotheses is not None:
            raise InvalidRequest(
                f"`hypotheses` come from the {source}; leave them out, or `{source}`", {"field": "hypotheses"}
            )
        if provider is not None and kit is not None:
            raise InvalidRequest("name a `provider` or a `kit`, not both", {"field": "provider"})
        if kit is None:
            chosen = self._providers.choose(self._requests.text("provider", provider))
            return ChosenProvider(chosen, reference_of(chosen))
        named = kit if isinstance(kit, KitChoice) else KitChoice(kit)
        self._requests.text("kit", named.id)
        if named.version is not None:
            self._requests.text("kit.version", named.version)
        if self._providers.kits is None:  # pragma: no cover - a server has a library
            raise InvalidRequest("there are no kits here", {"field": "kit"})
        begun = self._find_declared(repeated_id) if repeated_id is not None and named.version is None else None
        if begun is not None and begun.provider is not None and begun.provider.id == named.id:
            ready = ReadyKit(self._providers.kits.find_content(begun.provider), begun.provider)
        else:
            ready = self._providers.kits.choose(*named)
        return ChosenProvider(KitProvider(ready.kit) if isinstance(ready.kit, Kit) else ready.kit, ready.reference)

    def choose_id(self, idempotency_key: str | None, actor: Actor | None) -> str:
        """The id of a new session. Under an idempotency key it follows from the key and whose key it is."""
        if idempotency_key is None:
            return self._ids.new_id()
        return derive_session_id(self._requests.text("idempotency_key", idempotency_key), actor)

    def _find_begun(self, session_id: str) -> Declare | None:
        """The declaration of a session whose tombstones are elsewhere, in the log or on its way there."""
        return None if self._remote is None else self._find_declared(session_id)

    def _find_declared(self, session_id: str) -> Declare | None:
        """The declaration of a session, in the log or on its way there."""
        entries = self._log.read(session_id, -1, 1)
        begun = entries[0] if entries else self._log.intent(session_id)
        message = None if begun is None else read_event(begun).message
        return message if isinstance(message, Declare) else None

    def _identify_store(self, begun: Declare | None) -> str | None:
        """The elimination store that tombstones will be in, or are in where the declaration is repeated."""
        if begun is not None:
            return None if isinstance(begun.store_id, UnsetType) else begun.store_id
        return None if self._agreement is None else self._agreement.identify()


def _choose_agents(agents: Any, actor: Actor | None) -> Any:
    """Who may work on a case: an agent that names none lists itself."""
    return [actor.id] if agents is None and actor is not None and actor.kind is ActorKind.AGENT else agents


def _find_ontology(chosen: ChosenProvider | None) -> OntologyBundle:
    """What a declaration that names a kit or a provider need not say; InvalidRequest where it names none."""
    if chosen is None:
        raise InvalidRequest(
            "`ontology` may be left out only where a kit or a provider is named, which says it",
            {"field": "ontology", "next": "send `ontology`, or name a `kit` or a `provider`"},
        )
    provider, named = chosen.provider, chosen.reference
    if isinstance(provider, GraphKit):
        return ontology_of_graph(provider)
    if isinstance(provider, KitProvider):
        return ontology_of(provider.kit)
    return OntologyBundle(named.id, named.version, f"provider:{named.id}", named.version)


def derive_session_id(idempotency_key: str, actor: Actor | None) -> str:
    """The id of a session that is declared under a key: the same for the same key of the same actor."""
    owner = _KEYED_SESSIONS if actor is None else uuid.uuid5(_KEYED_SESSIONS_OF_ACTORS, actor.id)
    return str(uuid.uuid5(owner, idempotency_key))


def attributes_of_provider(provider: HypothesisProvider, asked: Any) -> Any:
    """What is declared of a provider's hypotheses: what the provider says, or else the caller."""
    if not isinstance(provider, AttributedProvider):
        return asked
    declared = ask_provider(provider, provider.hypothesis_attributes)
    offered = {each: dict(attributes) for each, attributes in declared.items()}
    if asked is not None and offered:
        raise InvalidRequest(
            f"provider `{provider.id()}` says what its hypotheses are; leave `hypothesis_attributes` out",
            {"field": "hypothesis_attributes", "next": "leave it out"},
        )
    return offered or asked


def ask_for_evidence(policy: SessionPolicy) -> SessionPolicy:
    """The policy of a session over a kit: unless it speaks of them, probes eliminate, and conclusions are decided."""
    return replace(
        policy,
        conclusions=ConclusionRule.DECIDED if policy.conclusions is UNSET else policy.conclusions,
        eliminations=EliminationRule.OBSERVATIONS if policy.eliminations is UNSET else policy.eliminations,
    )


def attributes_of_graph(
    universe: AnchoredUniverse, limit: int | None
) -> tuple[dict[str, dict[str, Any]] | None, str | None]:
    """What a graph says of its nodes, where that is at most `limit` bytes; otherwise a note that it is not declared.

    Without a limit it is what was declared before: a repeat is then the same request.
    """
    if universe.attributes is not None:
        offered = {each: dict(attributes) for each, attributes in universe.attributes.items()}
        if limit is None or len(encode(offered)) <= limit:
            return offered, None
    return (
        None,
        f"the graph says more of its nodes than the {limit} bytes that a session may declare, so it has no attributes",
    )


def universe_of_declaration(message: Declare) -> AnchoredUniverse:
    """The universe that a session was declared over, and what was declared of it."""
    declared = message.hypothesis_attributes
    attributes = {} if isinstance(declared, UnsetType) else msgspec.json.decode(declared)
    return AnchoredUniverse(frozenset(message.hypotheses), message.ontology.causal_graph_version, attributes)


def anchor(
    store: object, session_id: str, ontology: OntologyBundle, declared: AnchoredUniverse | None
) -> tuple[OntologyBundle, AnchoredUniverse]:
    """The universe that a store has for a session, and the ontology with the version that it is of.

    A declaration that is repeated has the universe that it had before, however the graph has grown since.
    """
    if not isinstance(store, UniverseSource):
        raise InvalidRequest("`hypotheses` may be left out only where the store has a causal graph")
    asked = ontology.causal_graph_version
    universe = store.anchor(session_id, asked) if declared is None else declared
    version = universe.causal_graph_version
    if version is not None and asked not in ("", version):
        raise Conflict(
            f"the causal graph is at version `{version}`, not `{asked}`", {"expected": asked, "actual": version}
        )
    if not universe.hypothesis_ids:
        raise InvalidRequest("the causal graph is empty, there is nothing to declare")
    return msgspec.structs.replace(ontology, causal_graph_version=version or asked), universe
