"""The messages of the protocol as they are recorded, and the event that records one.

A message is frozen, and its opaque parts (justification, context, metadata) are canonical bytes from the
request validator on: a caller cannot change history through an object that it still holds.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from cmbs.belief.kernel.survivors import Survivors
from cmbs.ledger import EntryBody, StoredEntry
from cmbs.ledger.entry import read_body
from cmbs.messages import Actor, KitRef, OntologyBundle, Origin, ProviderRef, SessionPolicy, Verb

NULL = msgspec.Raw(b"null")


class Declare(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """DECLARE_SESSION; the hypotheses sorted and without repeats."""

    ontology: OntologyBundle
    hypotheses: list[str]
    policy: SessionPolicy
    metadata: msgspec.Raw = NULL
    provider: ProviderRef | None = None
    # Only of a fork. Unset it is not written.
    origin: Origin | msgspec.UnsetType = msgspec.UNSET
    # An object of objects: a hypothesis, the name of an attribute, its value. Unset where there are none.
    hypothesis_attributes: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    # Only where tombstones are in a store of their own that has an identity: which one it was.
    store_id: str | msgspec.UnsetType = msgspec.UNSET
    # Only of a session over a kit of a causal graph: the nodes that show something wrong, sorted.
    symptoms: list[str] | msgspec.UnsetType = msgspec.UNSET
    # For people, and to be found by; labels are an object of texts. Unset where there are none.
    title: str | msgspec.UnsetType = msgspec.UNSET
    labels: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    # Who answers for the case, and how grave it is. Unset where nothing is said.
    owner: str | msgspec.UnsetType = msgspec.UNSET
    severity: str | msgspec.UnsetType = msgspec.UNSET
    # Ids of agents who may work on it, sorted, at least one; unset where that is not restricted.
    agents: list[str] | msgspec.UnsetType = msgspec.UNSET


class Probe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a provider was asked, and what the world answered, as it was given."""

    probe_id: str
    response: msgspec.Raw
    # Of a session over a kit: which kit said what the response rules out, the outcome that it was read as (null for no
    # data), and how it was read: how sound the outcome is, and what was made of numbers, a window or a graph. Unset
    # they are not written.
    kit: KitRef | msgspec.UnsetType = msgspec.UNSET
    outcome_id: str | msgspec.UnsetType | None = msgspec.UNSET
    reading: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    # When it was seen, where the caller says so.
    seen_at: str | msgspec.UnsetType = msgspec.UNSET


class Eliminate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """ELIMINATE; the ids sorted and without repeats."""

    source_id: str
    observation_id: str
    eliminated: list[str]
    justification: msgspec.Raw = NULL
    probe: Probe | None = None
    # Only of what a fork repeats: the authenticated actor that sent it first. Unset where none is on record.
    first_sent_by: str | msgspec.UnsetType = msgspec.UNSET


class EnterObligation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """ENTER_OBLIGATION."""

    obligation_id: str
    min_total_eliminations: int


class RequestExit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """REQUEST_EXIT."""

    obligation_id: str
    context: msgspec.Raw = NULL


class DeclareConclusion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """DECLARE_CONCLUSION.

    `tied_by` is the hash of the session's kit where none of its unanswered probes can tell the survivors apart. The
    server says so, and verification holds it against the kit.
    """

    conclusion_id: str
    context: msgspec.Raw = NULL
    tied_by: str | msgspec.UnsetType = msgspec.UNSET


class RequestTermination(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """REQUEST_TERMINATION."""

    context: msgspec.Raw = NULL


class UpdateCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """UPDATE_CASE: what is unset stays as it is, and None takes a text away.

    Labels and agents are given whole; no agent at all means that none may work on the case. `lift_obligation` is one
    that is active, and is not from then on.
    """

    title: str | msgspec.UnsetType | None = msgspec.UNSET
    labels: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    owner: str | msgspec.UnsetType | None = msgspec.UNSET
    severity: str | msgspec.UnsetType | None = msgspec.UNSET
    agents: list[str] | msgspec.UnsetType = msgspec.UNSET
    lift_obligation: str | msgspec.UnsetType = msgspec.UNSET


Message: TypeAlias = (
    Declare | Eliminate | EnterObligation | RequestExit | DeclareConclusion | RequestTermination | UpdateCase
)

VERB_OF: dict[type[Message], Verb] = {
    Declare: Verb.DECLARE_SESSION,
    Eliminate: Verb.ELIMINATE,
    EnterObligation: Verb.ENTER_OBLIGATION,
    RequestExit: Verb.REQUEST_EXIT,
    DeclareConclusion: Verb.DECLARE_CONCLUSION,
    RequestTermination: Verb.REQUEST_TERMINATION,
    UpdateCase: Verb.UPDATE_CASE,
}
_DECODER_OF: dict[str, msgspec.json.Decoder[Message]] = {
    verb.value: msgspec.json.Decoder(message_type) for message_type, verb in VERB_OF.items()
}


class Stamp(msgspec.Struct, frozen=True):
    """What the outside world adds to a decision: an id, a time, the caller's idempotency key, and who the caller is.

    The last two only where there is one: a key was sent, the caller was authenticated.
    """

    event_id: str
    ts: str
    idempotency_key: str | None = None
    actor: Actor | None = None


class Event(msgspec.Struct, frozen=True):
    """A decision, ready to be stored: the message, the entry that records it, and its exact bytes."""

    message: Message
    body: EntryBody
    stored: StoredEntry
    # The survivors after the event, where deciding made them: `evolve` then need not make them again.
    survivors: Survivors | None = None


class Repeat(msgspec.Struct, frozen=True):
    """The message was recorded before, at this place: the answer is the first answer."""

    seq: int


def read_message(body: EntryBody) -> Message:
    """The message that an entry records; ValueError where the verb or its message is not one of ours."""
    decoder = _DECODER_OF.get(body.verb)
    if decoder is None:
        raise ValueError(f"unknown verb `{body.verb}`")
    try:
        return decoder.decode(body.payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ValueError(f"malformed {body.verb} payload: {exc}") from exc


def read_event(stored: StoredEntry) -> Event:
    """The event that stored bytes hold; ValueError where they hold none of ours."""
    body = read_body(stored.raw)
    return Event(read_message(body), body, stored)


def find_sender(origin: Origin | None, event: Event) -> str | None:
    """The authenticated actor who sent the message of an event first, in a session that comes from `origin`.

    What a fork repeats is of the actor that the event it repeats is of.
    """
    if origin is not None and is_repeated(origin, event.body.seq):
        message = event.message
        known = message.first_sent_by if isinstance(message, Eliminate) else msgspec.UNSET
        return None if isinstance(known, msgspec.UnsetType) else known
    actor = event.body.actor
    return actor.id if actor is not None and actor.authenticated else None


def is_repeated(origin: Origin | None, seq: int) -> bool:
    """Whether a session that comes from `origin` repeats an event of it at this place."""
    return origin is not None and 0 < seq <= origin.last_repeated
