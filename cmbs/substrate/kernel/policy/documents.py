"""What stands in a policy file beside its rules: the tools that it is about, and the tests that it must pass.

A value in a state is text. Written as anything else, it is taken as the canonical JSON text of that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec

from cmbs.documents.findings import Finding, InvalidDocument, Rule
from cmbs.documents.nodes import Node, find_place, to_data
from cmbs.documents.text import read_document as read_text
from cmbs.errors import InvalidRequest
from cmbs.ledger import canonical
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.events import Mode
from cmbs.substrate.kernel.model import (
    NULL,
    Candidate,
    Capability,
    Failure,
    Provenance,
    ReasonCode,
    Spent,
    Stage,
    Tool,
    ToolKind,
    Verdict,
)

DEFAULT_NOW = "2026-01-31T09:30:00.000000Z"
DEFAULT_ACTOR = "agent:agent"

_ANY_ARGS = msgspec.Raw(b'{"type":"object"}')
# Text, or anything that stands for its JSON.
Value: TypeAlias = msgspec.Raw

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")


class KnownTool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tool that the policy is about: what a decision needs of one, and nothing that is needed to run it."""

    tool_id: str
    kind: ToolKind = ToolKind.CALLER
    # Any object, if it does not say.
    args_schema: msgspec.Raw = msgspec.field(default_factory=lambda: _ANY_ARGS)
    description: str = ""
    writes: bool = True
    idempotent: bool = False
    retired: bool = False

    def to_tool(self) -> Tool:
        """The tool as a space knows it."""
        return Tool(
            self.tool_id,
            self.kind,
            self.args_schema,
            self.description,
            writes=self.writes,
            idempotent=self.idempotent,
            retired=self.retired,
        )


class IndependentSighting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What would be left of a session without what the proposer eliminated, in a test."""

    n_survivors: int | None = None
    survivors: list[str] | None = None
    survivor: dict[str, Any] | None = None


class Sighting(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the belief plane says of a session in a test; `survivor` is what was declared of the one that is left."""

    found: bool = True
    n_survivors: int | None = None
    terminated: bool = False
    active_obligation_id: str | None = None
    survivors: list[str] | None = None
    concluded: list[str] = []
    survivor: dict[str, Any] | None = None
    independent: IndependentSighting | None = None


class GivenCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The case that the proposal of a test names, and what its session says. Its agent is the proposer, by default."""

    case_id: str = "case"
    attributes: dict[str, Any] = {}
    agents: list[str] | None = None
    closed: bool = False
    belief: Sighting = Sighting()


class ProposalSketch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A proposal, of which a test has to say only the candidates."""

    candidates: list[Candidate]
    atomic: bool = True
    proposal_id: str = "test"
    # The current one, if none is named.
    state_snapshot_id: str | None = None
    # From the actor, at the moment of the test, if it does not say.
    provenance: Provenance | None = None


class ExpectedCandidate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is expected of one candidate; what is left out may be anything."""

    verdict: Verdict | None = None
    failure: Failure | None = None
    reason_code: ReasonCode | None = None
    stage: Stage | None = None
    matched: list[str] | None = None
    waits_for: list[str] | None = None


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a test expects; what is left out may be anything. `matched` and `waits_for` are those of all candidates."""

    verdict: Verdict
    failure: Failure | None = None
    reason_code: ReasonCode | None = None
    stage: Stage | None = None
    matched: list[str] | None = None
    waits_for: list[str] | None = None
    candidates: list[ExpectedCandidate] | None = None


class PolicyTest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One proposal, what is otherwise than given for all, and what is expected."""

    name: str
    proposal: ProposalSketch
    # Without it, the test can be explained, but not tested.
    expect: Expected | None = None
    actor: str | None = None
    now: str | None = None
    mode: Mode | None = None
    # Over the state that is given for all; null takes a key away.
    state: dict[str, Value] = {}
    belief: dict[str, Sighting] = {}
    # That of all tests, unless it says; null for none.
    case: GivenCase | msgspec.UnsetType | None = msgspec.UNSET
    # What the proposer saw, where that is not the state: these keys were written since.
    seen: dict[str, Value] = {}
    # Constraints for which exactly this was approved.
    approved: list[str] = []
    revoked: list[str] = []
    spent: dict[str, Spent] = {}


class Given(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What all tests of a policy have in common, unless one says otherwise."""

    actor: str = DEFAULT_ACTOR
    now: str = DEFAULT_NOW
    mode: Mode = Mode.ENFORCE
    state: dict[str, Value] = {}
    capabilities: list[Capability] = []
    belief: dict[str, Sighting] = {}
    case: GivenCase | None = None


D = TypeVar("D")


def read_document(data: bytes, name: str, kind: type[D]) -> D:
    """The document in a file of this name; `InvalidDocument` names the file, the place, and what is wrong."""
    return decode_node(read_text(data, name), name, kind)


def decode_node(node: Node, name: str, kind: type[D]) -> D:
    """A part of a document as this type; `InvalidDocument` names the file, the place, and what is wrong."""
    try:
        return msgspec.json.decode(canonical.encode(to_data(node, name)), type=kind)
    except msgspec.ValidationError as exc:
        message, _, path = str(exc).partition(" - at `")
        steps = _parse_path(path.rstrip("`"))
        shown = f" at `{_show_path(steps)}`" if steps else ""
        finding = Finding(Rule.WRONG_TYPE, f"{message[:1].lower()}{message[1:]}{shown}", steps, find_place(node, steps))
        raise InvalidDocument(name, [finding]) from exc


def pairs_of(values: Mapping[str, Value]) -> dict[str, str]:
    """Keys and their texts."""
    return {key: text_of(value) for key, value in values.items()}


def text_of(value: Value) -> str:
    """The text that a value stands for."""
    raw = bytes(value)
    return str(msgspec.json.decode(raw)) if raw[:1] == b'"' else raw.decode()


def is_null(value: Value) -> bool:
    """Whether nothing stands there."""
    return bytes(value) == bytes(NULL)


def actor_of(text: str) -> Actor:
    """An actor from `kind:id`."""
    kind, colon, actor_id = text.partition(":")
    if not colon or not actor_id or kind not in set(ActorKind):
        kinds = ", ".join(ActorKind)
        raise InvalidRequest(f"an actor is `kind:id`, a kind being one of {kinds}; not `{text}`")
    return Actor(ActorKind(kind), actor_id)


def _parse_path(path: str) -> tuple[str | int, ...]:
    """The steps of a path as msgspec writes it, up to where it means any one of many keys."""
    steps: list[str | int] = []
    for name, place in _STEP.findall(path.removeprefix("$")):
        if not name and not place:
            break
        steps.append(name or int(place))
    return tuple(steps)


def _show_path(steps: tuple[str | int, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).removeprefix(".")
