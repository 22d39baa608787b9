"""A policy as a value: its pairs, its hash, and everything in it compiled once and indexed by what it is about.

Keys of a policy::

    constraint.<name>                   a constraint, version 1 or 2
    policy.exclusive.<group>            a JSON list of goal keys, of which one may be set
    policy.invariant.<name>             a predicate that must hold after every commit; {"v": 2, "when": …} for version 2
    policy.degrade.<tool_id>            what is offered in place of a blocked call: {"tool_id"}, {"budget"}, {"mode"}
    policy.forward.<tool_id>            a JSON list of the fields of a call, beside its args, that its tool is sent
    policy.schema.<name>                a JSON Schema that `schema` predicates mean by this name
    policy.memory.confidence_threshold  a number from 0 to 1
    policy.private                      a JSON list of key prefixes that only operators may read
    policy.value.<name>                 any text, for predicates to read

A key that is none of these would do nothing, so an update with one is refused.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, assert_never

import jsonschema_rs
import msgspec
from immutables import Map

from cmbs.errors import BeliefServerError
from cmbs.ledger import canonical
from cmbs.ledger.tagged_hash import Domain, hash_tagged
from cmbs.substrate.kernel.model import Budget
from cmbs.substrate.kernel.policy.constraints import (
    STRICTNESS,
    Compiled,
    Constraint,
    Effect,
    Malformed,
    PayloadFault,
    compile_constraint,
    decode_payload,
    version_of,
)
from cmbs.substrate.kernel.policy.predicates import Predicate, PredicateFault, compile_predicate
from cmbs.substrate.kernel.policy.references import MAX_REFERENCE_CHARACTERS, NEWEST, CaseUse, namespace_of
from cmbs.substrate.kernel.policy.schemas import SchemaFault, compile_schema, decode_schema
from cmbs.substrate.kernel.policy.subjects import SubjectKind, ToolIndex

MAX_PAIRS = 50_000
MAX_POLICY_BYTES = 33_554_432
MAX_KEY_CHARACTERS = MAX_REFERENCE_CHARACTERS
MAX_FAULTS = 1_000
_NAMES: tuple[str, ...] = ()
_NO_FIELDS: frozenset[str] = frozenset()

# What the keys of a policy begin with; all other keys of a state map are facts, goals and the like.
POLICY_PREFIXES = ("policy.", "constraint.")
EXCLUSIVE = "policy.exclusive."
CONSTRAINT = "constraint."
INVARIANT = "policy.invariant."
DEGRADE = "policy.degrade."
FORWARD = "policy.forward."
SCHEMA = "policy.schema."
VALUE = "policy.value."
THRESHOLD = "policy.memory.confidence_threshold"
PRIVATE = "policy.private"
# What is named behind a prefix.
_NAMED = (EXCLUSIVE, INVARIANT, DEGRADE, FORWARD, SCHEMA, VALUE)


class PolicyFault(NamedTuple):
    """Why a policy is refused: under which key, at which place of its value, and what is wrong there."""

    key: str
    at: str
    message: str


class Invariant(NamedTuple):
    """A predicate that must hold after every commit; None where it cannot be read, and then it never holds."""

    key: str
    predicate: Predicate | None


class Group(NamedTuple):
    """Goals of which one may be set; None where the list cannot be read, and then no goal can be set."""

    key: str
    goals: frozenset[str] | None


class Matching(NamedTuple):
    """The constraints that may speak on a candidate, each list sorted so that its first answer is the answer.

    Denials the strictest first, then by key; permissions the most specific first, then by key. What only observes
    stands apart, by key: it makes no answer.
    """

    malformed: tuple[str, ...]
    denies: tuple[Constraint, ...]
    allows: tuple[Constraint, ...]
    observing: tuple[Constraint, ...] = ()

    @property
    def keys(self) -> frozenset[str]:
        """The state keys that the answer depends on."""
        return frozenset(
            key for each in (*self.denies, *self.allows) if each.when is not None for key in each.when.keys
        )

    @property
    def session_ids(self) -> frozenset[str]:
        """The belief sessions that they read, to answer or to observe."""
        return _session_ids(each.when for each in (*self.denies, *self.allows, *self.observing))

    @property
    def case_use(self) -> CaseUse:
        """How much of the case of the proposal they read, to answer or to observe."""
        return _case_use(each.when for each in (*self.denies, *self.allows, *self.observing))


class Policy:
    """An immutable policy: its pairs, and what they compile to."""

    __slots__ = (
        "_groups_by_goal",
        "_of_capability",
        "_of_everything",
        "_of_tool",
        "compiled",
        "faults",
        "forwarded",
        "groups",
        "invariant_case_use",
        "invariant_session_ids",
        "invariants",
        "memory_threshold_milli",
        "offers",
        "pairs",
        "policy_hash",
        "private_prefixes",
        "reads_belief",
        "schemas",
    )

    def __init__(self, pairs: Mapping[str, str], known: Mapping[str, tuple[str, Compiled]]) -> None:
        """Compile `pairs`; constraints in `known`, with the very same text, are taken over as they are."""
        faults: list[PolicyFault] = []
        self.pairs: Map[str, str] = Map(pairs)
        self.policy_hash = hash_of(pairs)
        self.schemas = dict(_each(pairs, SCHEMA, _schema, faults))
        self.compiled: dict[str, tuple[str, Compiled]] = {
            key: known[key]
            if key in known and known[key][0] == text
            else (text, compile_constraint(key, text, self.schemas))
            for key, text in sorted(pairs.items())
            if key.startswith(CONSTRAINT)
        }
        self._of_everything: list[Compiled] = []
        self._of_tool: ToolIndex[Compiled] = ToolIndex()
        self._of_capability: dict[str, list[Compiled]] = {}
        for _, compiled in self.compiled.values():
            match compiled.subject.kind:
                case SubjectKind.EVERYTHING:
                    self._of_everything.append(compiled)
                case SubjectKind.CAPABILITY:
                    self._of_capability.setdefault(compiled.subject.names[0], []).append(compiled)
                case SubjectKind.TOOL | SubjectKind.PATTERN:
                    self._of_tool.add(compiled.subject, compiled)
                case _:
                    assert_never(compiled.subject.kind)
            if isinstance(compiled, Malformed):
                faults.append(PolicyFault(compiled.key, compiled.at, compiled.message))
        self.invariants = _invariants(pairs, self.schemas, faults)
        self.invariant_session_ids = _session_ids(each.predicate for each in self.invariants)
        self.invariant_case_use = _case_use(each.predicate for each in self.invariants)
        whens = [each.when for _, each in self.compiled.values() if isinstance(each, Constraint)]
        # Whether anything in it reads a session, if only for who may act under it: most decisions need not ask.
        self.reads_belief = (
            bool(self.invariant_session_ids or _session_ids(whens))
            or max(self.invariant_case_use, _case_use(whens)) is not CaseUse.NONE
        )
        self.groups = _groups(pairs, faults)
        self._groups_by_goal: dict[str, list[Group]] = {}
        for group in self.groups:
            for goal in group.goals or ():
                self._groups_by_goal.setdefault(goal, []).append(group)
        self.offers = {name: pairs[DEGRADE + name] for name, _ in _each(pairs, DEGRADE, _offer, faults)}
        # By tool: of a list that cannot be read, nothing is let through.
        self.forwarded: dict[str, frozenset[str]] = dict(_each(pairs, FORWARD, _fields, faults))
        # Without one that can be read, confidence alone confirms nothing.
        self.memory_threshold_milli: int | None = _single(pairs, THRESHOLD, _threshold, None, faults)
        # A list that cannot be read could mean any key, so every key is private.
        self.private_prefixes: tuple[str, ...] = _single(pairs, PRIVATE, _prefixes, _NAMES, faults, malformed=("",))
        self.faults = tuple(faults)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and other.policy_hash == self.policy_hash

    def __hash__(self) -> int:
        return hash(self.policy_hash)

    def change(self, to_set: Mapping[str, str], to_unset: Iterable[str]) -> Policy:
        """The policy after a change. Only what the change touches is compiled anew."""
        pairs, known = self._plan_change(to_set, to_unset)
        return find_recent(pairs) or Policy(pairs, known)

    def change_ahead(self, to_set: Mapping[str, str], to_unset: Iterable[str], pause: Callable[[], None]) -> None:
        """Compile what `change` will give, and keep it at hand. `pause` is called after each constraint."""
        compile_ahead(*self._plan_change(to_set, to_unset), pause)

    def _plan_change(
        self, to_set: Mapping[str, str], to_unset: Iterable[str]
    ) -> tuple[dict[str, str], Mapping[str, tuple[str, Compiled]]]:
        """The pairs after a change, and the constraints that are compiled already: none where a schema changes."""
        gone = frozenset(to_unset)
        pairs = {key: text for key, text in {**self.pairs, **to_set}.items() if key not in gone}
        schemas_stay = all(pairs.get(key) == self.pairs.get(key) for key in {*to_set, *gone} if key.startswith(SCHEMA))
        return pairs, self.compiled if schemas_stay else {}

    def find_forwarded(self, tool_id: str) -> frozenset[str]:
        """The fields of a call, beside its args, that the tool is sent."""
        return self.forwarded.get(tool_id, _NO_FIELDS)

    def groups_of(self, goal: str) -> tuple[Group, ...]:
        """The exclusive groups that a goal is in."""
        return tuple(self._groups_by_goal.get(goal, ()))

    def matching(
        self, tool_id: str | None, permitting: tuple[str, ...] = _NAMES, denying: tuple[str, ...] = _NAMES
    ) -> Matching:
        """What may speak on a call of `tool_id`, or on a delta where that is None.

        `permitting` are the capability names of the token itself, `denying` those of the token and of all above it: a
        child that leaves a name away does not leave behind what is denied to that name.
        """
        concerned = [*self._of_everything]
        if tool_id is not None:
            # Several patterns of one constraint may fit.
            concerned += {each.key: each for each in self._of_tool.find(tool_id)}.values()
        for name in {*permitting, *denying}:
            concerned += self._of_capability.get(name, ())
        malformed: list[str] = []
        denies: list[Constraint] = []
        allows: list[Constraint] = []
        observing: list[Constraint] = []
        for each in concerned:
            if isinstance(each, Malformed):
                malformed.append(each.key)
            elif each.effect is Effect.DENY:
                (observing if each.observes else denies).append(each)
            elif each.subject.kind is not SubjectKind.CAPABILITY or each.subject.names[0] in permitting:
                (observing if each.observes else allows).append(each)
        denies.sort(key=lambda each: (STRICTNESS[each.on_fail], each.key))
        allows.sort(key=lambda each: (each.subject.kind, each.key))
        observing.sort(key=lambda each: each.key)
        return Matching(tuple(sorted(malformed)), tuple(denies), tuple(allows), tuple(observing))


def compile_policy(pairs: Mapping[str, str]) -> Policy:
    """Compile the `policy.*` and `constraint.*` pairs of a state. Total: what is malformed denies."""
    return find_recent(pairs) or Policy(pairs, {})


# A policy of fewer pairs is compiled in the time of a few decisions.
LARGE_PAIRS = 100


class _Recent(NamedTuple):
    """A policy that was compiled ahead. What it compiles to, and is refused for, depends on its pairs alone."""

    pairs: dict[str, str]
    policy: Policy
    faults: list[PolicyFault]


_RECENT: deque[_Recent] = deque(maxlen=4)


def find_recent(pairs: Mapping[str, str]) -> Policy | None:
    """The policy with exactly these pairs, if it was compiled ahead lately."""
    recent = _find_recent(pairs)
    return None if recent is None else recent.policy


def _find_recent(pairs: Mapping[str, str]) -> _Recent | None:
    if len(pairs) < LARGE_PAIRS:
        return None
    return next((recent for recent in tuple(_RECENT) if recent.pairs == pairs), None)


def compile_ahead(
    pairs: Mapping[str, str], known: Mapping[str, tuple[str, Compiled]], pause: Callable[[], None]
) -> None:
    """Compile a policy and keep it at hand, for a writer that needs it next and cannot wait so long.

    `pause` is called after each constraint, so that other threads have their turns.
    """
    if len(pairs) < LARGE_PAIRS or find_recent(pairs) is not None:
        return
    schemas = dict(_each(pairs, SCHEMA, _schema, []))
    compiled: dict[str, tuple[str, Compiled]] = {}
    for key, text in pairs.items():
        if key.startswith(CONSTRAINT) and known.get(key, ("",))[0] != text:
            compiled[key] = (text, compile_constraint(key, text, schemas))
            pause()
    policy = Policy(pairs, {**known, **compiled})
    _RECENT.append(_Recent(dict(pairs), policy, _find_faults(pairs, policy)))


def validate_policy(pairs: Mapping[str, str]) -> list[PolicyFault]:
    """Everything that a policy with these pairs is refused for, by key; empty where nothing is wrong with it."""
    recent = _find_recent(pairs)
    return list(recent.faults) if recent is not None else _find_faults(pairs, None)


def _find_faults(pairs: Mapping[str, str], compiled: Policy | None) -> list[PolicyFault]:
    """As `validate_policy`, of pairs that may be compiled already."""
    if len(pairs) > MAX_PAIRS:
        return [PolicyFault("", "", f"a policy has at most {MAX_PAIRS} keys")]
    if sum(len(key) + len(text) for key, text in pairs.items()) > MAX_POLICY_BYTES:
        return [PolicyFault("", "", f"a policy has at most {MAX_POLICY_BYTES} characters")]
    faults = [PolicyFault(key, "", fault) for key in pairs if (fault := _key_fault(key)) is not None]
    faults += [PolicyFault(key, "", "not valid Unicode") for key, text in pairs.items() if not _is_unicode(key + text)]
    if not faults:
        faults = list((compiled or compile_policy(pairs)).faults)
    return sorted(faults)[:MAX_FAULTS]


def hash_of(pairs: Mapping[str, str]) -> str:
    """The policy hash: the tagged hash of the canonical JSON object of all pairs, in hex."""
    return hash_tagged(Domain.POLICY, canonical.encode(dict(pairs))).hex()


# --- what a policy consists of ----------------------------------------------------------------------------------------


def _key_fault(key: str) -> str | None:
    if len(key) > MAX_KEY_CHARACTERS:
        return f"a key has at most {MAX_KEY_CHARACTERS} characters"
    if namespace_of(key) == "constraint" or key in {THRESHOLD, PRIVATE}:
        return None
    if any(key.startswith(prefix) and key != prefix for prefix in _NAMED):
        return None
    if namespace_of(key) != "policy":
        return "only policy.* and constraint.* are part of a policy"
    return "no such part of a policy"


def _is_unicode(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _session_ids(predicates: Iterable[Predicate | None]) -> frozenset[str]:
    return frozenset(
        session_id for predicate in predicates if predicate is not None for session_id in predicate.session_ids
    )


def _case_use(predicates: Iterable[Predicate | None]) -> CaseUse:
    return max((predicate.case_use for predicate in predicates if predicate is not None), default=CaseUse.NONE)


def _each(
    pairs: Mapping[str, str], prefix: str, read: Callable[[str], Any], faults: list[PolicyFault]
) -> list[tuple[str, Any]]:
    """The values under a prefix that can be read, by what follows the prefix; the others become faults."""
    found = []
    for key in sorted(pairs):
        if key.startswith(prefix):
            value = _read(key, pairs[key], read, faults)
            if value is not None:
                found.append((key.removeprefix(prefix), value))
    return found


def _read(key: str, text: str, read: Callable[[str], Any], faults: list[PolicyFault]) -> Any:
    """What `read` makes of a value; None, and a fault, where it cannot."""
    try:
        return read(text)
    except (PayloadFault, PredicateFault) as exc:
        faults.append(PolicyFault(key, exc.at, str(exc)))
    except SchemaFault as exc:
        faults.append(PolicyFault(key, "", str(exc)))
    return None


def _single(
    pairs: Mapping[str, str],
    key: str,
    read: Callable[[str], Any],
    absent: Any,
    faults: list[PolicyFault],
    malformed: Any = None,
) -> Any:
    if key not in pairs:
        return absent
    found = _read(key, pairs[key], read, faults)
    if found is None:
        return absent if malformed is None else malformed
    return found


def _schema(text: str) -> jsonschema_rs.Draft202012Validator:
    return compile_schema(decode_schema(text))


def _invariants(
    pairs: Mapping[str, str],
    schemas: Mapping[str, jsonschema_rs.Draft202012Validator],
    faults: list[PolicyFault],
) -> tuple[Invariant, ...]:
    def read(text: str) -> Predicate:
        content = decode_payload(text)
        if isinstance(content, dict) and "v" in content:
            predicate = _compile_invariant(content, schemas)
        else:
            predicate = compile_predicate(content, schemas, "", version=1)
        if predicate.reads_candidate:
            raise PayloadFault("", "an invariant is about the state: it reads no $args, $tool or $actor")
        return predicate

    keys = [key for key in sorted(pairs) if key.startswith(INVARIANT)]
    return tuple(Invariant(key, _read(key, pairs[key], read, faults)) for key in keys)


def _compile_invariant(content: dict[str, Any], schemas: Mapping[str, jsonschema_rs.Draft202012Validator]) -> Predicate:
    for field in content:
        if field not in {"v", "when"}:
            raise PayloadFault(field, f"unknown field `{field}`")
    if version_of(content) != NEWEST:
        raise PayloadFault("v", f"an invariant with a version is of version {NEWEST}")
    return compile_predicate(content.get("when"), schemas, version=NEWEST)


def _groups(pairs: Mapping[str, str], faults: list[PolicyFault]) -> tuple[Group, ...]:
    keys = [key for key in sorted(pairs) if key.startswith(EXCLUSIVE)]
    return tuple(Group(key, _read(key, pairs[key], _goals, faults)) for key in keys)


def _goals(text: str) -> frozenset[str]:
    goals = decode_payload(text)
    if not isinstance(goals, list) or not all(isinstance(goal, str) and namespace_of(goal) == "goal" for goal in goals):
        raise PayloadFault("", "a group is a list of goal keys")
    if len(set(goals)) != len(goals):
        raise PayloadFault("", "a goal stands in its group once")
    return frozenset(goals)


def _offer(text: str) -> dict[str, Any]:
    offer = decode_payload(text)
    if not isinstance(offer, dict) or not offer or not offer.keys() <= {"tool_id", "budget", "mode"}:
        raise PayloadFault("", "an offer is an object of `tool_id`, `budget` or `mode`")
    for field in ("tool_id", "mode"):
        if field in offer and (not isinstance(offer[field], str) or not offer[field]):
            raise PayloadFault(field, f"`{field}` is text")
    if "budget" in offer:
        try:
            msgspec.convert(offer["budget"], Budget)
        except msgspec.ValidationError as exc:
            raise PayloadFault("budget", "`budget` has `calls`, `bytes` and `wall_ms`, whole numbers") from exc
    return offer


def _fields(text: str) -> frozenset[str]:
    fields = decode_payload(text)
    if not isinstance(fields, list) or not all(isinstance(field, str) and field for field in fields):
        raise PayloadFault("", "what is forwarded is a list of names of fields")
    return frozenset(fields)


def _threshold(text: str) -> int:
    try:
        number = canonical.decode(text)
    except BeliefServerError as exc:
        raise PayloadFault("", exc.message) from exc
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= 1:
        raise PayloadFault("", "a threshold is a number from 0 to 1")
    # Rounded to where doubles end, then up: 0.8 is 800, and nothing below 0.8001 meets 0.8001.
    return math.ceil(round(number * 1_000, 9))


def _prefixes(text: str) -> tuple[str, ...]:
    prefixes = decode_payload(text)
    if not isinstance(prefixes, list) or not all(
        isinstance(prefix, str) and namespace_of(prefix) is not None for prefix in prefixes
    ):
        raise PayloadFault("", "private keys are a list of prefixes, each in a namespace")
    return tuple(sorted(set(prefixes)))
