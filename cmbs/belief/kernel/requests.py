"""Validation of requests: what callers pass becomes a message, or a clear error before anything is touched.

Everything that comes from outside has a limit here, and every limit has a name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

import msgspec

from cmbs.belief.kernel.attributes import read_attributes
from cmbs.belief.kernel.case_fields import NO_FIELDS, CaseFields, check_agents, check_change, check_labels
from cmbs.belief.kernel.events import (
    Declare,
    DeclareConclusion,
    Eliminate,
    EnterObligation,
    Event,
    Message,
    Probe,
    RequestExit,
    RequestTermination,
    UpdateCase,
)
from cmbs.errors import InvalidHypothesisId, InvalidRequest, LimitExceeded
from cmbs.ledger.canonical import MAX_SAFE_INTEGER, encode
from cmbs.ledger.instants import parse_instant
from cmbs.messages import (
    MAX_ID_LENGTH,
    Actor,
    ConclusionRule,
    EliminationRule,
    ForeignRule,
    KitRef,
    LookRule,
    OntologyBundle,
    ProviderRef,
    SessionPolicy,
)

# How much of a value that is wrong an error quotes.
_SHOWN = 64


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest of everything that a server takes. The names are those of the errors and of the settings."""

    id_length: int = MAX_ID_LENGTH
    hypotheses_per_session: int = 2_000_000
    ids_per_request: int = 2_000_000
    opaque_bytes: int = 1_048_576
    body_bytes: int = 67_108_864
    page_size: int = 10_000
    obligations_per_session: int = 10_000
    cached_sessions: int = 10_000
    cached_session_bytes: int = 1_073_741_824
    analysis_events: int = 20_000
    analysis_steps: int = 200_000
    analyses_waiting: int = 8
    # Processor time of one: of an explanation, and of an analysis, a check of a policy, or its impact.
    explanation_ms: int = 500
    analysis_ms: int = 10_000
    fork_events: int = 20_000
    attribute_bytes: int = 4_194_304
    # A reading for a gate carries those of the one hypothesis that is left, whole.
    attribute_bytes_per_hypothesis: int = 65_536
    attributes_per_hypothesis: int = 64
    attribute_name_length: int = 128


# Of a session over a causal graph.
MAX_SYMPTOMS = 100
# The most actors that a policy may name as observers.
MAX_OBSERVERS = 1000


class KitReading(NamedTuple):
    """What a kit makes of a response: the outcome, None for no data, and how sound it is and how it was read.

    `kit` names a kit on record; None where the kit is that of an installed provider.
    """

    kit: KitRef | None
    outcome_id: str | None
    record: Mapping[str, Any] = {}


class Command(msgspec.Struct, frozen=True):
    """A message on its way to a session."""

    session_id: str
    message: Message
    idempotency_key: str | None = None
    if_match: str | None = None
    # A declaration is decided before it is queued: it needs no state, and a large one would delay other commits.
    declared: Event | None = None
    # The caller, where it was authenticated.
    actor: Actor | None = None
    # What the caller of a declaration should know beside the answer.
    note: str | None = None
    # The name that a declared case is to have, and who asks for it, authenticated or not.
    name: str | None = None
    named_by: Actor | None = None

    @property
    def stream_id(self) -> str:
        """The session's stream, which has its name."""
        return self.session_id


def _wrong_type(name: str, value: Any, accepted: Any) -> dict[str, Any]:
    """What is wrong with a value of another type than its field has."""
    return {"field": name, "found": type(value).__name__, "accepted": accepted}


W = TypeVar("W", bound=StrEnum)


def _choose(name: str, words: type[W], value: Any) -> W | msgspec.UnsetType:
    """One of a few words, or none."""
    if isinstance(value, msgspec.UnsetType):
        return value
    accepted = [word.value for word in words]
    if not isinstance(value, str) or value not in accepted:
        shown = " or ".join(f"`{word}`" for word in accepted)
        found = value[:_SHOWN] if isinstance(value, str) else type(value).__name__
        raise InvalidRequest(
            f"`{name}` must be {shown}, not `{found}`", {"field": name, "found": found, "accepted": accepted}
        )
    return words(value)


class RequestValidator:
    """Builds messages within limits. Pure."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits

    def declare(
        self,
        ontology: OntologyBundle,
        hypotheses: Iterable[str],
        metadata: Any,
        policy: SessionPolicy,
        provider: ProviderRef | None,
        hypothesis_attributes: Any = None,
        store_id: str | None = None,
        case: CaseFields = NO_FIELDS,
    ) -> Declare:
        """A declaration; an empty universe is refused, there would be nothing to believe."""
        ids = self._ids("hypotheses", hypotheses, "hypotheses_per_session", self.limits.hypotheses_per_session)
        if not ids:
            raise InvalidRequest("`hypotheses` must hold at least one id")
        self.ontology(ontology)
        if provider is not None:
            self.text("provider.id", provider.id)
            self.text("provider.version", provider.version)
        policy = self._policy(policy)
        if provider is None and policy.eliminations is EliminationRule.OBSERVATIONS:
            raise InvalidRequest(
                "`policy.eliminations` may be `observations` only where a provider says what a response rules out: "
                "nothing could be eliminated in this session",
                {"field": "policy.eliminations", "found": "observations", "accepted": ["any"]},
            )
        return Declare(
            ontology,
            ids,
            policy,
            self._opaque("metadata", metadata),
            provider,
            hypothesis_attributes=self._attributes(ids, hypothesis_attributes),
            store_id=msgspec.UNSET if store_id is None else self.text("store_id", store_id),
            **case._asdict(),
        )

    def symptoms(self, symptoms: Iterable[str]) -> list[str]:
        """The nodes of a graph that show something wrong: one at least, sorted and single."""
        ids = self._ids("symptoms", symptoms, "symptoms", MAX_SYMPTOMS)
        if not ids:
            raise InvalidRequest(
                "`symptoms` must name at least one node that shows something wrong",
                {"field": "symptoms", "accepted": {"minItems": 1, "maxItems": MAX_SYMPTOMS}},
            )
        return ids

    def ontology(self, ontology: OntologyBundle) -> OntologyBundle:
        """An ontology of texts within the limit."""
        if not isinstance(ontology, OntologyBundle):
            raise InvalidRequest("`ontology` must be an OntologyBundle")
        for name, value in ontology.to_dict().items():
            self.text(f"ontology.{name}", value)
        return ontology

    def command(
        self,
        session_id: str,
        message: Message,
        idempotency_key: str | None = None,
        if_match: str | None = None,
        actor: Actor | None = None,
    ) -> Command:
        """A message to a session that should exist."""
        if idempotency_key is not None:
            self.text("idempotency_key", idempotency_key)
        return Command(self.text("session_id", session_id), message, idempotency_key, if_match, None, actor)

    def eliminate(
        self,
        source_id: str,
        observation_id: str,
        eliminated: Iterable[str],
        justification: Any,
        probe: Probe | None = None,
    ) -> Eliminate:
        """An elimination; its ids sorted and single."""
        return Eliminate(
            self.text("source_id", source_id),
            self.text("observation_id", observation_id),
            self._ids("eliminated", eliminated, "ids_per_request", self.limits.ids_per_request),
            self._opaque("justification", justification),
            probe,
        )

    def probe(
        self, probe_id: str, response: Any, seen_at: str | None = None, reading: KitReading | None = None
    ) -> Probe:
        """A provider's probe and the answer of the world, which may be any JSON value; `reading` is what a kit said."""
        probe = Probe(self.text("probe_id", probe_id), self._opaque("response", response, object))
        if seen_at is not None:
            probe = msgspec.structs.replace(probe, seen_at=parse_instant(self.text("seen_at", seen_at), "seen_at"))
        if reading is None:
            return probe
        record = self._opaque("reading", dict(reading.record)) if reading.record else msgspec.UNSET
        kit = msgspec.UNSET if reading.kit is None else reading.kit
        return msgspec.structs.replace(probe, kit=kit, outcome_id=reading.outcome_id, reading=record)

    def enter_obligation(self, obligation_id: str, min_total_eliminations: int) -> EnterObligation:
        """An obligation."""
        threshold = self.count("min_total_eliminations", min_total_eliminations)
        return EnterObligation(self.text("obligation_id", obligation_id), threshold)

    def request_exit(self, obligation_id: str, context: Any) -> RequestExit:
        """A wish to leave an obligation."""
        return RequestExit(self.text("obligation_id", obligation_id), self._opaque("context", context))

    def declare_conclusion(self, conclusion_id: str, context: Any, tied_by: str | None = None) -> DeclareConclusion:
        """A conclusion; `tied_by` is the kit whose unanswered probes cannot tell the survivors apart."""
        tie = msgspec.UNSET if tied_by is None else tied_by
        return DeclareConclusion(self.text("conclusion_id", conclusion_id), self._opaque("context", context), tie)

    def request_termination(self, context: Any) -> RequestTermination:
        """A wish to end the session."""
        return RequestTermination(self._opaque("context", context))

    def update_case(self, changes: Mapping[str, Any]) -> UpdateCase:
        """A change of what a session says of itself as a case: only what is to change, by name."""
        if not changes:
            raise InvalidRequest(
                "say what is to change of the case",
                {"field": "body", "found": {}, "accepted": list(UpdateCase.__struct_fields__)},
            )
        unknown = sorted(set(changes) - set(UpdateCase.__struct_fields__))
        if unknown:
            raise InvalidRequest(
                f"`{unknown[0]}` is nothing that can be changed of a case",
                {"field": unknown[0], "found": unknown[0], "accepted": list(UpdateCase.__struct_fields__)},
            )
        checked: dict[str, Any] = {}
        for name, value in changes.items():
            match name:
                case "labels":
                    checked[name] = check_labels({} if value is None else value)
                case "agents":
                    checked[name] = check_agents(value)
                case "lift_obligation":
                    checked[name] = self.text(name, value)
                case _:
                    checked[name] = check_change(name, value)
        return UpdateCase(**checked)

    def text(self, name: str, value: Any) -> str:
        """An id: any text of Unicode scalar values within the limit."""
        if type(value) is not str:
            raise InvalidRequest(f"`{name}` must be a string", _wrong_type(name, value, "a string"))
        if len(value) > self.limits.id_length:
            raise LimitExceeded("id_length", self.limits.id_length, len(value), name)
        try:
            value.encode()
        except UnicodeEncodeError as exc:
            raise InvalidRequest(f"`{name}` holds a lone surrogate, which is not text", {"field": name}) from exc
        return value

    def page_size(self, asked: int | None) -> int:
        """How many items a page may have."""
        size = self.limits.page_size if asked is None else self.count("limit", asked)
        if size < 1:
            raise InvalidRequest(
                "`limit` must be at least 1",
                {"field": "limit", "found": size, "accepted": {"minimum": 1}, "next": "ask for at least one"},
            )
        if size > self.limits.page_size:
            raise LimitExceeded("page_size", self.limits.page_size, size, "limit")
        return size

    def _ids(self, name: str, values: Iterable[str], limit: str, maximum: int) -> list[str]:
        if isinstance(values, (str, bytes, dict)) or not isinstance(values, Iterable):
            raise InvalidRequest(f"`{name}` must be a list of strings", _wrong_type(name, values, "a list of strings"))
        ids = list(values)
        if len(ids) > maximum:
            raise LimitExceeded(limit, maximum, len(ids))
        item = f"{name}[]"
        return sorted({self.text(item, value) for value in ids})

    def _opaque(self, name: str, value: Any, kind: type = dict) -> msgspec.Raw:
        """A caller's own data as canonical JSON: an object unless another kind will do; None is `null`."""
        if value is not None and not isinstance(value, kind):
            raise InvalidRequest(f"`{name}` must be an object", _wrong_type(name, value, "an object"))
        raw = encode(value)
        if len(raw) > self.limits.opaque_bytes:
            raise LimitExceeded("opaque_bytes", self.limits.opaque_bytes, len(raw), name)
        return msgspec.Raw(raw)

    def _attributes(self, ids: list[str], value: Any) -> msgspec.Raw | msgspec.UnsetType:
        """What is said of hypotheses as canonical JSON; unset where that is nothing."""
        field = "hypothesis_attributes"
        if value is None:
            return msgspec.UNSET
        if not isinstance(value, dict):
            raise InvalidRequest(
                f"`{field}` must be an object of objects", _wrong_type(field, value, "an object of objects")
            )
        for hypothesis_id, attributes in value.items():
            if not isinstance(attributes, dict):
                where = f"{field}.{hypothesis_id}"
                raise InvalidRequest(
                    f"`{where}` must be an object of names and values", _wrong_type(where, attributes, "an object")
                )
            self._attribute_names(f"{field}.{hypothesis_id}", attributes)
        unknown = sorted(value.keys() - set(ids)) if value else []
        if unknown:
            raise InvalidHypothesisId(unknown, field=field)
        raw = encode({hypothesis_id: attributes for hypothesis_id, attributes in value.items() if attributes})
        if len(raw) > self.limits.attribute_bytes:
            raise LimitExceeded("attribute_bytes", self.limits.attribute_bytes, len(raw), field)
        most = self.limits.attribute_bytes_per_hypothesis
        for hypothesis_id, attributes in read_attributes(msgspec.Raw(raw)).items():
            if len(attributes) > most:
                where = f"{field}.{hypothesis_id}"
                raise LimitExceeded("attribute_bytes_per_hypothesis", most, len(attributes), where)
        return msgspec.UNSET if raw == b"{}" else msgspec.Raw(raw)

    def _attribute_names(self, field: str, attributes: dict[str, Any]) -> None:
        most, longest = self.limits.attributes_per_hypothesis, self.limits.attribute_name_length
        if len(attributes) > most:
            raise LimitExceeded("attributes_per_hypothesis", most, len(attributes), field)
        for name in attributes:
            if not name:
                raise InvalidRequest(
                    f"an attribute in `{field}` has no name",
                    {"field": field, "found": name, "accepted": {"minLength": 1}, "next": "name the attribute"},
                )
            if len(name) > longest:
                raise LimitExceeded("attribute_name_length", longest, len(name), field)

    def _policy(self, policy: SessionPolicy) -> SessionPolicy:
        if not isinstance(policy, SessionPolicy):
            raise InvalidRequest("`policy` must be a SessionPolicy", {"field": "policy"})
        self.count("policy.stability_window", policy.stability_window)
        for name in ("allow_force", "validate_hypotheses"):
            if type(getattr(policy, name)) is not bool:
                found = _wrong_type(f"policy.{name}", getattr(policy, name), [True, False])
                raise InvalidRequest(f"`policy.{name}` must be true or false", found)
        return replace(
            policy,
            conclusions=_choose("policy.conclusions", ConclusionRule, policy.conclusions),
            eliminations=_choose("policy.eliminations", EliminationRule, policy.eliminations),
            foreign_tombstones=_choose("policy.foreign_tombstones", ForeignRule, policy.foreign_tombstones),
            looks=_choose("policy.looks", LookRule, policy.looks),
            observers=self._observers(policy.observers),
        )

    def _observers(self, observers: Any) -> tuple[str, ...] | msgspec.UnsetType:
        if isinstance(observers, msgspec.UnsetType):
            return observers
        named = self._ids("policy.observers", observers, "observers", MAX_OBSERVERS)
        if not named:
            raise InvalidRequest(
                "`policy.observers` is empty, so that no actor could answer",
                {"field": "policy.observers", "found": [], "accepted": {"minItems": 1}},
            )
        return tuple(named)

    @staticmethod
    def count(name: str, value: Any) -> int:
        """A whole number, not negative."""
        if type(value) is not int or not 0 <= value <= MAX_SAFE_INTEGER:
            found = value if type(value) in (int, float) and abs(value) <= MAX_SAFE_INTEGER else type(value).__name__
            raise InvalidRequest(
                f"`{name}` must be a whole number of at least 0",
                {"field": name, "found": found, "accepted": "a whole number of at least 0"},
            )
        return value
