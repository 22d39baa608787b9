"""What was observed, by whom, and how often a probe was looked at. Pure.

An observation is recorded once, under its source and its id. A *look* is an observation that answers a probe: the same
probe may be looked at again, by others or later, under another observation id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from cmbs.belief.kernel.events import Eliminate, Probe
from cmbs.errors import Conflict, InvalidRequest
from cmbs.ledger import Chronicle
from cmbs.ledger.instants import Timestamp
from cmbs.ledger.tagged_hash import Domain, hash_tagged
from cmbs.messages import ProviderRef

# Who saw what, by source_id and observation_id: the key under which an elimination is recorded once.
Observation: TypeAlias = tuple[str, str]

# Which observation each look is, by its probe and how many looks at that probe came before.
Looks: TypeAlias = Chronicle[tuple[str, int], Observation]

# The responses that say that there is no data.
NO_DATA_RESPONSES = (b"null", b'"no-data"')
# How many ids an error lists.
_MAX_LISTED = 20


class LookItem(msgspec.Struct, frozen=True):
    """What was seen of a probe at one time."""

    audit_event_id: str
    seq: Annotated[int, Meta(ge=0)]
    ts: Timestamp
    source_id: str
    observation_id: str
    probe_id: str
    response: Annotated[Any, Meta(description="As it was given.")]
    outcome_id: str | None
    seen_at: Timestamp | None
    actor_id: Annotated[str | None, Meta(description="The actor of the key; null if none was needed.")]


class Applied(msgspec.Struct, frozen=True, array_like=True):
    """What one elimination did, and which authenticated actor it is of; None where none can be named for it.

    Of a look, also the probe, a hash of the response, and whether that is an answer: more than that there is no data.
    """

    seq: int
    applied: tuple[str, ...]
    ignored: tuple[str, ...]
    actor_id: str | None = None
    probe_id: str | None = None
    response_hash: bytes | None = None
    is_answer: bool = False

    def repeats(self, message: Eliminate) -> bool:
        """Whether a message under the same key says the same: the same ids and, of a look, the same response."""
        looked = (
            (None, None)
            if message.probe is None
            else (message.probe.probe_id, hash_response(bytes(message.probe.response)))
        )
        if (self.probe_id, self.response_hash) != looked:
            return False
        return {*self.applied, *self.ignored} == set(message.eliminated)


def hash_response(response: bytes) -> bytes:
    """What tells two responses apart."""
    return hash_tagged(Domain.RESPONSE, response)


def add_look(looks: Looks, probe_id: str, observation: Observation) -> Looks:
    """The looks and one more."""
    return looks.append((probe_id, count_looks(looks, probe_id)), observation)


def count_looks(looks: Looks, probe_id: str) -> int:
    """How often a probe was looked at; in about as many steps as that number has binary digits, twice."""
    high = 1
    while looks.get((probe_id, high - 1)) is not None:
        high *= 2
    low = high // 2
    while low < high:
        middle = (low + high) // 2
        if looks.get((probe_id, middle)) is None:
            high = middle
        else:
            low = middle + 1
    return low


def looks_at(looks: Looks, probe_id: str) -> Iterator[Observation]:
    """The looks at a probe, the newest first."""
    numbers = range(count_looks(looks, probe_id) - 1, -1, -1)
    return filter(None, (looks.get((probe_id, number)) for number in numbers))


def looks_of(observations: Iterable[tuple[Observation, Applied]]) -> Looks:
    """The looks among observations."""
    looks: Looks = Chronicle()
    for observation, record in observations:
        if record.probe_id is not None:
            looks = add_look(looks, record.probe_id, observation)
    return looks


def explain_other(message: Eliminate, earlier: Applied, event_id: str) -> Conflict:
    """The refusal of an observation that was recorded before, and said something else."""
    observation = f"observation `{message.observation_id}` of `{message.source_id}`"
    found = {"source_id": message.source_id, "observation_id": message.observation_id, "event_id": event_id}
    probe = message.probe
    if probe is not None and earlier.probe_id == probe.probe_id:
        return Conflict(
            f"`{message.source_id}` answered probe `{probe.probe_id}` otherwise before, as {observation}",
            {
                **found,
                "probe_id": probe.probe_id,
                "field": "response",
                "found": msgspec.json.decode(probe.response),
                "accepted": "the response that was recorded",
                "next": "send a new look under an `observation_id` of its own, and a repeat as it was",
            },
        )
    return Conflict(
        f"{observation} was recorded with other ids",
        {
            **found,
            "field": "eliminated",
            "found": message.eliminated[:_MAX_LISTED],
            "accepted": sorted({*earlier.applied, *earlier.ignored})[:_MAX_LISTED],
            "next": "send what was observed since under an `observation_id` of its own",
        },
    )


def refuse_strange_probe(provider: ProviderRef | None, probe: Probe) -> None:
    """Refuse a probe where the session has no provider, or where it is that of another kit."""
    if provider is None:
        raise InvalidRequest("probes need a session that was declared from a hypothesis provider or a kit")
    named = None if isinstance(probe.kit, msgspec.UnsetType) else (probe.kit.id, probe.kit.content_hash)
    declared = None if isinstance(provider.content_hash, msgspec.UnsetType) else (provider.id, provider.content_hash)
    if named != declared:
        raise Conflict(
            f"probe `{probe.probe_id}` was read by another kit than the one that the session was declared over",
            {"field": "kit", "found": _show_kit(named), "accepted": _show_kit(declared)},
        )


def refuse_second_look(looks: Looks, message: Eliminate, probe: Probe) -> None:
    """Refuse another look by the same source, where each may look once."""
    for source_id, observation_id in looks_at(looks, probe.probe_id):
        if source_id == message.source_id:
            raise Conflict(
                f"`{source_id}` looked at probe `{probe.probe_id}` before, and the policy of this session says"
                " `looks: once`",
                {
                    "probe_id": probe.probe_id,
                    "source_id": source_id,
                    "observation_id": observation_id,
                    "field": "observation_id",
                    "found": message.observation_id,
                    "accepted": observation_id,
                    "next": "go by what was seen then, or ask another probe",
                },
            )


def _show_kit(named: tuple[str, str] | None) -> dict[str, str] | None:
    return None if named is None else {"id": named[0], "content_hash": named[1]}


DEFAULT_PROBES = 10


MAX_PROBES = 200
