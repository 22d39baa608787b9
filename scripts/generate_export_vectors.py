"""Write the test vectors of exports, `tests/vectors/exports/*.json`: good files, and what a forger makes of them.

Each has the lines of a file (`export`), perhaps heads that a reader kept (`kept`, lines of `cmbs heads`), and what
every verifier must say (`expected`): `good` with the number of events of each stream, or `bad` with the line, and the
stream and the seq of the event where it is one. Every hash, link and commitment of a forged entry fits, unless it is
what was forged. `needs` names what a verifier must hold to find it: `rules` are those of spaces, `streams` is what
streams of one file say of each other, `kept` what the reader has, `kits` what the documents of kits say. One that does
not hold it must say that it did not check that.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cmbs.audit.transfer import export_lines
from cmbs.belief.kernel.kit_stream import MediaType
from cmbs.belief.server import BeliefServer
from cmbs.ledger import hash_entry
from cmbs.messages import (
    Actor,
    ActorKind,
    ConclusionRule,
    EliminationRule,
    LookRule,
    OntologyBundle,
    SessionPolicy,
)
from cmbs.stores.memory import InMemoryStore
from cmbs.testing import ManualClock, SequentialIds
from tests.support.exports import (
    SPACE_STREAM,
    Entry,
    Fitted,
    export,
    fit_stream,
    play_world,
    read_streams,
    write_export,
)

VECTORS = Path(__file__).resolve().parent.parent / "tests" / "vectors" / "exports"
HEADER = '{"format":"cmbs/1/export","left_out":["identity:keys"]}'
OPERATOR = Actor(ActorKind.OPERATOR, "ann", True, "k1")
AGENT = {"authenticated": True, "id": "medic", "key_id": "k2", "kind": "agent"}
KIT = """id: coin
version: "1"
soundness: sound
hypotheses: [heads, tails]
probes:
  - id: toss
    outcomes:
      - {id: heads, eliminates: [tails]}
      - {id: tails, eliminates: [heads]}
"""
TWINS = """id: twins
version: "1"
soundness: sound
hypotheses: [far, left, right]
probes:
  - id: side
    outcomes:
      - {id: near, eliminates: [far]}
      - {id: away, eliminates: [left, right]}
"""

Entries = list[Entry]


class Vector(NamedTuple):
    """A file, what its reader kept, and what must be said of it."""

    name: str
    lines: list[bytes]
    expected: dict[str, Any]
    kept: list[dict[str, Any]] | None = None


def write_vectors() -> None:
    """Write every vector anew."""
    VECTORS.mkdir(exist_ok=True)
    for path in VECTORS.glob("*.json"):
        path.unlink()
    for vector in list_vectors():
        content: dict[str, Any] = {"expected": vector.expected}
        if vector.kept is not None:
            content["kept"] = [{"format": "cmbs/1/heads"}, *vector.kept]
        content["export"] = [line.decode() for line in vector.lines]
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        (VECTORS / f"{vector.name}.json").write_text(text, "utf-8")


def list_vectors() -> Iterator[Vector]:
    """Good files of every kind of stream, files that are no whole export, and forged entries of every kind."""
    streams = play()
    for name, entries in streams.items():
        yield Vector(f"good-{name}", write(entries), good(entries))
    everything = [*streams.values()]
    yield Vector("good-all", write(*everything), good(*everything))
    session = streams["session"]
    yield from file_vectors(session)
    yield from chain_vectors(session)
    yield from forged("session", session, SESSION)
    yield from forged("observed", streams["observed"], OBSERVED)
    yield from forged("tied", streams["tied"], TIED)
    yield from forged("watched", streams["watched"], WATCHED)
    yield from kit_vectors(streams)
    yield from forged("kit", streams["kit"], KITS)
    yield from forged("names", streams["names"], NAMES)
    yield from forged("space", streams["space"], SPACE)
    yield from forged("space-rules", streams["space"], SPACE_RULES, needs="rules")
    yield from fork_vectors(session, streams["fork"])
    yield from reading_vectors(streams)
    yield from kept_vectors(session)


# --- what is good ---


def play() -> dict[str, Entries]:
    """A stream of each kind."""
    log = InMemoryStore()
    server = BeliefServer(store=log, clock=ManualClock(), ids=SequentialIds())
    ontology = OntologyBundle("space", "1", "graph://none", "1")
    policy = SessionPolicy(stability_window=1, validate_hypotheses=True)
    first = server.declare_session(
        ontology, ["a", "b", "c"], {"n": 1.5}, policy=policy, idempotency_key="once"
    ).session_id
    server.enter_obligation(first, "gate", 1)
    server.declare_conclusion(first, "too early")
    server.eliminate(first, "s", "1", ["a"], {"log": "line 7"})
    server.request_exit(first, "gate")
    server.request_termination(first, {"force": True})
    server.update_case(first, {"severity": "high", "agents": ["medic"]})
    server.eliminate(first, "s", "2", ["b"])
    server.declare_conclusion(first, "c")
    server.request_termination(first)
    fork = server.fork_session(first, 7, without=[3]).session_id
    server.kits.put(KIT, MediaType.YAML)
    server.kits.put(KIT + "# second\n", MediaType.YAML)
    rules = SessionPolicy(eliminations=EliminationRule.OBSERVATIONS, looks=LookRule.ONCE)
    observed = server.declare_session(kit="coin", policy=rules).session_id
    server.observe(observed, "toss", "heads")
    server.names.rename(first, "INC-1", OPERATOR)
    server.names.rename(fork, "INC-2", OPERATOR)
    server.names.rename(first, "INC-3", OPERATOR)
    server.names.release(fork, OPERATOR)
    server.kits.put(TWINS, MediaType.YAML)
    decided = SessionPolicy(conclusions=ConclusionRule.DECIDED, eliminations=EliminationRule.OBSERVATIONS)
    tied = server.declare_session(kit="twins", policy=decided).session_id
    server.declare_conclusion(tied, "left")
    server.observe(tied, "side", "near")
    server.declare_conclusion(tied, "left")
    watched = watch(server)
    named = {"session": first, "fork": fork, "observed": observed, "kit": "kit:coin", "names": "names:server"}
    named |= {"tied": tied, "twins": "kit:twins", "watched": watched}
    streams = read_streams(export_lines(log, named.values()))
    found = {kind: streams[name] for kind, name in named.items()}
    world = InMemoryStore()
    play_world(world)
    others = read_streams(export(world))
    found["space"] = others.pop(SPACE_STREAM)
    found["believed"] = list(others.values())[-1]
    return found


def watch(server: BeliefServer) -> str:
    """A session where one observer alone eliminates, by a list too, and an operator lifts an obligation."""
    policy = SessionPolicy(
        conclusions=ConclusionRule.NOT_ELIMINATED, eliminations=EliminationRule.OBSERVATIONS, observers=("ann",)
    )
    session_id = server.declare_session(kit="twins", policy=policy).session_id
    server.enter_obligation(session_id, "gate", 9)
    lift = server.requests.update_case({"lift_obligation": "gate"})
    listed = server.requests.eliminate("s", "1", ["far"], None)
    for message in (lift, listed):
        asyncio.run(server.perform_async(server.requests.command(session_id, message, actor=OPERATOR)))
    server.declare_conclusion(session_id, "far")
    server.declare_conclusion(session_id, "another")
    return session_id


def write(*streams: Sequence[Entry]) -> list[bytes]:
    return write_fitted(*map(fit_stream, streams))


def write_fitted(*streams: Sequence[Fitted]) -> list[bytes]:
    return write_export(*streams, header=HEADER).splitlines()


def good(*streams: Sequence[Entry]) -> dict[str, Any]:
    return {"good": {entries[0]["stream_id"]: len(entries) for entries in streams}}


def bad(line: int, entries: Sequence[Entry] | None = None, seq: int | None = None, **more: str) -> dict[str, Any]:
    place = {} if entries is None else {"stream": entries[0]["stream_id"], "seq": seq}
    return {"bad": {"line": line, **place}, **more}


# --- files ---


def file_vectors(session: Entries) -> Iterator[Vector]:
    """What is no whole export, with the line that shows it."""
    lines = write(session)
    end, count = lines[-2:]
    last = len(lines)
    cases: dict[str, tuple[list[bytes], int]] = {
        "cut-off": (lines[:-1], last),
        "cut-in-a-stream": (lines[:5], 6),
        "garbage": ([*lines[:3], b"garbage", *lines[3:]], 4),
        "garbage-at-the-end": ([*lines, b"garbage"], last + 1),
        "unknown-line": ([*lines[:3], b'{"x":1}', *lines[3:]], 4),
        "list": ([*lines[:3], b"[1]", *lines[3:]], 4),
        "empty-line": ([*lines[:3], b"", *lines[3:]], 4),
        "entry-with-a-member-more": ([*lines[:3], lines[3][:-1] + b',"x":1}', *lines[4:]], 4),
        "end-with-a-member-more": ([*lines[:-2], end[:-1] + b',"x":1}', count], last - 1),
        "count-with-a-member-more": ([*lines[:-1], b'{"sessions":1,"x":1}'], last),
        "end-without-a-stream": ([lines[0], end, count], 2),
        "stream-without-an-end": ([*lines[:-2], count], last - 1),
        "stream-twice": ([*lines[:-1], *lines[1:-1], b'{"sessions":2}'], last),
        "other-count": ([*lines[:-1], b'{"sessions":2}'], last),
        "more-after-the-count": ([*lines, count], last + 1),
        "no-header": (lines[1:], 1),
        "header-twice": ([lines[0], *lines], 2),
        "header-with-a-member-more": ([HEADER.replace("}", ',"x":1}').encode(), *lines[1:]], 1),
        "other-format": ([HEADER.replace("cmbs/1", "cmbs/0").encode(), *lines[1:]], 1),
        "header-of-other-streams": ([HEADER.replace("identity:keys", "space:s").encode(), *lines[1:]], 1),
        "end-of-another": ([*lines[:-2], end.replace(b'"end_of": "', b'"end_of": "x'), count], last - 1),
        "other-head-seq": ([*lines[:-2], end.replace(b'"head_seq": 9', b'"head_seq": 8'), count], last - 1),
        "other-head-hash": ([*lines[:-2], end[:-4] + b'00"}', count], last - 1),
    }
    for name, (changed, line) in cases.items():
        yield Vector(f"file-{name}", changed, bad(line))
    reserved = [{**each, "stream_id": "identity:keys"} for each in session]
    yield Vector("file-reserved-stream", write(reserved), bad(2))


# --- chains ---


def chain_vectors(session: Entries) -> Iterator[Vector]:
    """One line of an entry that is not what it says."""
    lines = write(session)

    def change(seq: int, old: bytes, new: bytes) -> list[bytes]:
        assert old in lines[seq + 1], (seq, old)
        return [*lines[: seq + 1], lines[seq + 1].replace(old, new, 1), *lines[seq + 2 :]]

    def replace(seq: int, old: bytes, new: bytes) -> list[bytes]:
        fitted = fit_stream(session)
        assert old in fitted[seq].raw, (seq, old)
        return write_fitted([*fitted[:seq], fit(fitted[seq].raw.replace(old, new, 1))])

    cases = {
        "bytes": (3, change(3, b'"line 7"', b'"line 8"')),
        "hash": (3, change(3, lines[4][15:19], b"0000" if lines[4][15:19] != b"0000" else b"1111")),
        "white-space": (3, replace(3, b'"seq":3', b'"seq": 3')),
        "escape": (3, replace(3, b'"line 7"', b'"line\\u00207"')),
        "number": (3, replace(3, b'"seq":3', b'"seq":3.0')),
        "key-twice": (3, replace(3, b'"seq":3', b'"seq":3,"seq":3')),
        "keys-unordered": (3, reorder(session, 3)),
        "half-of-a-pair": (3, replace(3, b'"line 7"', b'"\\ud800"')),
        "large-number": (3, replace(3, b'"line 7"', b"9007199254740992")),
    }
    for name, (seq, changed) in cases.items():
        yield Vector(f"chain-{name}", changed, bad(seq + 2, session, seq))
    swapped = [*lines[:4], lines[5], lines[4], *lines[6:]]
    yield Vector("chain-swapped", swapped, bad(5, session, 3))
    left_out = [*lines[:4], *lines[5:]]
    yield Vector("chain-left-out", left_out, bad(5, session, 3))


def fit(raw: bytes) -> Fitted:
    """Bytes under their hash."""
    return Fitted(hash_entry(raw), raw)


def reorder(session: Entries, seq: int) -> list[bytes]:
    """The entry with its keys in the opposite order."""
    fitted = fit_stream(session)
    entry = dict(reversed(json.loads(fitted[seq].raw).items()))
    raw = json.dumps(entry, separators=(",", ":"), ensure_ascii=False).encode()
    return write_fitted([*fitted[:seq], fit(raw)])


# --- forged entries: the seq, and what is set in the entry there, by path ---

Change = tuple[int, dict[str, Any]]

SESSION: dict[str, Change] = {
    "other-stream": (3, {"stream_id": "x"}),
    "other-seq": (3, {"seq": 4}),
    "seq-that-is-true": (1, {"seq": True}),
    "time": (3, {"ts": "yesterday"}),
    "event-id-twice": (3, {"event_id": "00000000-0000-4000-8000-000000000002"}),
    "event-id-that-is-no-text": (3, {"event_id": 3}),
    "no-format": (3, {"format": None}),
    "digest-where-none-belongs": (3, {"state": "0" * 64}),
    "member-more": (3, {"x": 1}),
    "unknown-verb": (3, {"verb": "GUESS"}),
    "declared-twice": (3, {"verb": "DECLARE_SESSION"}),
    "not-declared": (0, {"verb": "ELIMINATE"}),
    "notes": (3, {"notes": "because"}),
    "no-notes": (5, {"notes": ...}),
    "notes-that-are-no-text": (5, {"notes": 1}),
    "key-twice": (3, {"idempotency_key": "once"}),
    "key-that-is-no-text": (3, {"idempotency_key": 1}),
    "actor-of-no-kind": (3, {"actor": {**AGENT, "kind": "god"}}),
    "actor-not-authenticated": (3, {"actor": {**AGENT, "authenticated": False}}),
    "actor-with-a-member-more": (3, {"actor": {**AGENT, "x": 1}}),
    "actor-with-unordered-roles": (3, {"actor": {**AGENT, "roles": ["b", "a"]}}),
    "actor-that-is-null": (3, {"actor": None}),
    "ids-unordered": (0, {"payload.hypotheses": ["b", "a", "c"]}),
    "ids-twice": (0, {"payload.hypotheses": ["a", "a", "b", "c"]}),
    "no-ids": (0, {"payload.hypotheses": []}),
    "ids-that-are-no-texts": (0, {"payload.hypotheses": [1, 2, 3]}),
    "other-root": (0, {"outcome.universe_root": "0" * 64}),
    "other-size": (0, {"outcome.universe_size": 4}),
    "size-that-is-a-text": (0, {"outcome.universe_size": "3"}),
    "outcome-with-a-member-more": (0, {"outcome.x": 1}),
    "policy-of-no-word": (0, {"payload.policy.conclusions": "all"}),
    "policy-of-a-word-that-is-null": (0, {"payload.policy.conclusions": None}),
    "policy-with-a-member-more": (0, {"payload.policy.x": "any"}),
    "policy-window-that-is-true": (0, {"payload.policy.stability_window": True}),
    "policy-window-below-none": (0, {"payload.policy.stability_window": -1}),
    "policy-force-that-is-a-number": (0, {"payload.policy.allow_force": 0}),
    "declared-with-a-member-more": (0, {"payload.x": 1}),
    "metadata-that-is-a-list": (0, {"payload.metadata": []}),
    "ontology-without-a-member": (0, {"payload.ontology.hypothesis_version": ...}),
    "provider-without-a-version": (0, {"payload.provider": {"id": "p"}}),
    "store-without-an-id": (0, {"payload.store_id": ""}),
    "symptoms-without-a-kit": (0, {"payload.symptoms": ["a"]}),
    "attributes-of-another": (0, {"payload.hypothesis_attributes": {"z": {"x": 1}}}),
    "attributes-of-none": (0, {"payload.hypothesis_attributes": {}}),
    "title-of-two-lines": (0, {"payload.title": "a\nb"}),
    "title-of-nothing": (0, {"payload.title": " "}),
    "title-that-is-null": (0, {"payload.title": None}),
    "no-agents": (0, {"payload.agents": []}),
    "label-of-a-bad-name": (0, {"payload.labels": {"-": "x"}}),
    "labels-of-none": (0, {"payload.labels": {}}),
    "threshold-below-none": (1, {"payload.min_total_eliminations": -1}),
    "obligation-without-an-id": (1, {"payload.obligation_id": ...}),
    "outcome-of-an-obligation": (1, {"outcome": {"approved": True}}),
    "accepted-while-bound": (2, {"outcome": {"accepted": True, "reason": "accepted"}}),
    "other-reason": (2, {"outcome.reason": "not_a_survivor"}),
    "eliminated-unordered": (3, {"payload.eliminated": ["b", "a"]}),
    "eliminated-what-is-none": (3, {"payload.eliminated": ["a", "z"]}),
    "eliminated-more-than-asked": (3, {"delta.eliminated": ["a", "b"]}),
    "eliminated-less-than-asked": (3, {"delta.eliminated": []}),
    "delta-with-a-member-more": (3, {"delta.x": 1}),
    "justified-by-a-text": (3, {"payload.justification": "because"}),
    "source-that-is-no-text": (3, {"payload.source_id": None}),
    "probe-without-a-provider": (3, {"payload.probe": {"probe_id": "p", "response": 1}}),
    "observed-twice": (7, {"payload.observation_id": "1"}),
    "exit-too-early": (4, {"outcome": {"approved": False, "reason": "below_threshold"}}),
    "exit-of-none": (4, {"payload.obligation_id": "other"}),
    "forced-without-permission": (5, {"outcome": {"approved": True, "reason": "forced"}, "notes": ...}),
    "context-that-is-a-text": (5, {"payload.context": "force"}),
    "agents-changed-by-an-agent": (6, {"actor": AGENT}),
    "update-of-nothing": (6, {"payload": {}}),
    "update-with-a-member-more": (6, {"payload.x": 1}),
    "severity-too-long": (6, {"payload.severity": "x" * 41}),
    "ended-with-two-survivors": (
        5,
        {"payload.context": None, "notes": ..., "outcome": {"approved": True, "reason": "approved"}},
    ),
    "ended-before-a-conclusion": (8, {"payload.conclusion_id": 1}),
    "not-ended": (9, {"outcome": {"approved": False, "reason": "not_singleton"}}),
}
OBSERVED: dict[str, Change] = {
    "without-a-probe": (1, {"payload.probe": None}),
    "of-no-kit": (1, {"payload.probe.kit": ...}),
    "of-another-kit": (1, {"payload.probe.kit.id": "note"}),
    "of-another-content": (1, {"payload.probe.kit.content_hash": "0" * 64}),
    "with-a-member-more": (1, {"payload.probe.x": 1}),
    "without-an-id": (1, {"payload.probe.probe_id": 1}),
    "with-an-outcome-that-is-no-text": (1, {"payload.probe.outcome_id": 1}),
    "with-a-reading-that-is-a-text": (1, {"payload.probe.reading": "x"}),
    "seen-yesterday": (1, {"payload.probe.seen_at": "yesterday"}),
    "by-a-kit-without-a-hash": (0, {"payload.provider.content_hash": "x"}),
}
TIED: dict[str, Change] = {
    "by-null": (3, {"payload.tied_by": None}),
    "by-a-number": (3, {"payload.tied_by": 0}),
    "by-a-list": (3, {"payload.tied_by": []}),
    "by-an-object": (3, {"payload.tied_by": {}}),
    "by-no-text": (3, {"payload.tied_by": ""}),
    "by-another-kit": (3, {"payload.tied_by": "0" * 64}),
    "by-no-kit": (3, {"payload.tied_by": ...}),
    "refused-by-null": (1, {"payload.tied_by": None}),
    "refused-by-a-number": (1, {"payload.tied_by": 0}),
    "refused-as-another": (1, {"outcome.reason": "not_a_survivor"}),
    "of-what-was-ruled-out": (3, {"payload.conclusion_id": "far"}),
}
WATCHED: dict[str, Change] = {
    "by-none": (0, {"payload.policy.observers": []}),
    "by-a-text": (0, {"payload.policy.observers": "ann"}),
    "unordered": (0, {"payload.policy.observers": ["b", "a"]}),
    "listed-by-another": (3, {"actor.id": "bob"}),
    "listed-without-an-actor": (3, {"actor": ...}),
    "listed-by-an-agent": (3, {"actor.kind": "agent"}),
    "listed-without-notes": (3, {"notes": ...}),
    "repeated-of-nothing": (3, {"payload.first_sent_by": "ann"}),
    "lifted-by-an-agent": (2, {"actor.kind": "agent"}),
    "lifted-what-was-not-entered": (2, {"payload.lift_obligation": "other"}),
    "lifted-what-is-no-text": (2, {"payload.lift_obligation": None}),
    "concluded-what-was-ruled-out": (4, {"outcome": {"accepted": True, "reason": "accepted"}}),
    "refused-what-is-opaque": (5, {"outcome": {"accepted": False, "reason": "not_a_survivor"}}),
}
KITS: dict[str, Change] = {
    "other-document": (1, {"payload.document": KIT + "# third\n"}),
    "other-hash": (1, {"payload.content_hash": "0" * 64}),
    "of-another": (0, {"payload.kit_id": "note"}),
    "of-no-language": (1, {"payload.media_type": "text/plain"}),
    "negative": (1, {"payload.probes": -1}),
    "unknown-verb": (1, {"verb": "PUT_KAT"}),
    "outcome": (1, {"outcome": {}}),
    "member-more": (1, {"payload.x": 1}),
    "without-an-actor": (1, {"actor": ...}),
    "digest": (1, {"state": "0" * 64}),
    "idempotency-key": (1, {"idempotency_key": "k"}),
}
NAMES: dict[str, Change] = {
    "no-name": (1, {"payload.name": "-x"}),
    "name-of-the-form-of-an-id": (1, {"payload.name": "00000000-0000-4000-8000-000000000001"}),
    "name-of-another": (1, {"payload.name": "inc-1"}),
    "other-name-before": (2, {"payload.instead_of": "INC-9"}),
    "no-name-before": (2, {"payload.instead_of": None}),
    "released-by-an-agent": (3, {"actor": AGENT}),
    "released-another": (3, {"payload.name": "INC-3"}),
    "unknown-verb": (1, {"verb": "TAKE_NAME"}),
    "outcome": (1, {"outcome": {}}),
    "member-more": (3, {"payload.instead_of": None}),
}
SPACE: dict[str, Change] = {
    "other-space": (0, {"payload.space_id": "t"}),
    "other-policy": (0, {"payload.policy": {}}),
    "not-created": (0, {"verb": "SET_MODE"}),
    "created-twice": (2, {"verb": "CREATE_SPACE"}),
    "unknown-verb": (2, {"verb": "GUESS"}),
    "without-an-actor": (2, {"actor": ...}),
    "member-more": (2, {"x": 1}),
    "payload-that-is-a-list": (2, {"payload": []}),
    "outcome-that-is-null": (2, {"outcome": None}),
    "other-policy-hash": (4, {"outcome.decision.policy_hash": "0" * 64}),
    "other-snapshot": (4, {"outcome.decision.state_snapshot_id": "0" * 64}),
    "unset-what-is-not-there": (4, {"outcome.changes": {"unset": ["goal.never"]}}),
    "set-what-is-no-text": (4, {"outcome.changes": {"set": {"goal.x": 1}}}),
    "changes-that-are-null": (4, {"outcome.changes": None}),
    "belief-that-is-null": (4, {"payload.belief": None}),
    "changes-with-a-member-more": (4, {"outcome.changes": {"x": {}}}),
    "proposal-twice": (4, {"payload.proposal.proposal_id": "p1"}),
}
SPACE_RULES: dict[str, Change] = {
    "allowed-what-was-denied": (3, {"outcome.decision.verdict": "allow"}),
    "other-reason": (3, {"outcome.decision.reason_code": "NO_CASE"}),
}


def forged(kind: str, entries: Entries, changes: dict[str, Change], **more: str) -> Iterator[Vector]:
    """A stream up to an entry that was changed, with everything made to fit."""
    for name, (seq, members) in changes.items():
        entry = json.loads(json.dumps(entries[seq]))
        for path, value in members.items():
            put(entry, path.split("."), value)
        stream = fit_stream([*entries[:seq], entry])
        yield Vector(f"{kind}-{name}", write_stream(entries, stream), bad(seq + 2, entries, seq, **more))


def put(record: dict[str, Any], path: list[str], value: Any) -> None:
    """Set a member; `...` takes it away."""
    for name in path[:-1]:
        record = record[name]
    if value is ...:
        del record[path[-1]]
    else:
        record[path[-1]] = value


def write_stream(entries: Entries, fitted: list[Fitted]) -> list[bytes]:
    """The file of a stream, under its own name whatever its entries say."""
    lines = write_fitted(fitted)
    end = {**json.loads(lines[-2]), "end_of": entries[0]["stream_id"]}
    return [*lines[:-2], json.dumps(end).encode(), lines[-1]]


# --- streams against each other, and against what was kept ---


def fork_vectors(session: Entries, fork: Entries) -> Iterator[Vector]:
    """A fork and its origin in one file."""
    both = write(session, fork)
    yield Vector("fork-with-its-origin", both, good(session, fork))
    first = len(session) + 3
    other = [*fork[:2], {**fork[2], "payload": {**fork[2]["payload"], "conclusion_id": "other"}}, *fork[3:]]
    yield Vector("fork-of-other-messages", write(session, other), bad(first + 2, fork, 2, needs="streams"))
    changes: dict[str, dict[str, Any]] = {
        "another-event": {"event_hash": "0" * 64},
        "a-later-event": {"seq": 99},
        "no-elimination-left-out": {"without": [2]},
    }
    for name, changed in changes.items():
        origin = {**fork[0]["payload"]["origin"], **changed}
        declared = {**fork[0], "payload": {**fork[0]["payload"], "origin": origin}}
        expected = bad(first, fork, 0, needs="streams")
        yield Vector(f"fork-of-{name}", write(session, [declared, *fork[1:]]), expected)
    left_out: dict[str, list[int]] = {"unordered": [3, 2], "beyond": [99], "empty": [], "declaration": [0]}
    for name, without in left_out.items():
        origin = {**fork[0]["payload"]["origin"], "without": without}
        declared = {**fork[0], "payload": {**fork[0]["payload"], "origin": origin}}
        yield Vector(f"fork-without-{name}", write([declared]), bad(2, fork, 0))


def kit_vectors(streams: dict[str, Entries]) -> Iterator[Vector]:
    """What only the document of a kit shows, with the kit in the same file."""
    kit, tied = streams["twins"], streams["tied"]
    yield Vector("kits-with-their-session", write(kit, tied), good(kit, tied))
    first = len(kit) + 3
    observed = json.loads(json.dumps(tied[2]))
    observed["payload"]["eliminated"] = observed["delta"]["eliminated"] = ["right"]
    other = bad(first + 2, tied, 2, needs="kits")
    yield Vector("kits-of-another-outcome", write(kit, [*tied[:2], observed]), other)
    concluded = json.loads(json.dumps(tied[1]))
    concluded["payload"]["tied_by"] = tied[3]["payload"]["tied_by"]
    concluded["outcome"] = {"accepted": True, "reason": "accepted"}
    none = bad(first + 1, tied, 1, needs="kits")
    yield Vector("kits-of-a-tie-that-is-none", write(kit, [tied[0], concluded]), none)


def reading_vectors(streams: dict[str, Entries]) -> Iterator[Vector]:
    """What a space says of a session, with the session in the same file."""
    session, space = streams["believed"], streams["space"]
    at = next(seq for seq, each in enumerate(space) if any(one["found"] for one in each["payload"].get("belief", [])))
    both = [session, space]
    yield Vector("readings-with-their-session", write(*both), good(*both))
    for name, members in {
        "survivors": {"survivors": ["disk"]},
        "number": {"n_survivors": 1},
        "end": {"terminated": True},
        "event": {"head_seq": 99},
    }.items():
        entry = json.loads(json.dumps(space[at]))
        next(each for each in entry["payload"]["belief"] if each["found"]).update(members)
        line = len(session) + 3 + at
        expected = bad(line, space, at, needs="streams")
        yield Vector(f"reading-of-other-{name}", write(session, [*space[:at], entry]), expected)


def kept_vectors(session: Entries) -> Iterator[Vector]:
    """Heads that the reader kept."""
    lines, fitted = write(session), fit_stream(session)
    name = session[0]["stream_id"]

    def head(seq: int, event_hash: str | None = None, stream: str = name) -> dict[str, Any]:
        found = fitted[min(seq, len(fitted) - 1)].event_hash.hex()
        return {"stream_id": stream, "size": seq + 1, "head_hash": event_hash or found}

    last = len(session) - 1
    yield Vector("kept-last", lines, good(session), [head(last)])
    yield Vector("kept-earlier", lines, good(session), [head(3)])
    yield Vector("kept-other", lines, bad(5, session, 3, needs="kept"), [head(3, "0" * 64)])
    missing = bad(last + 3, session, last + 1, needs="kept")
    yield Vector("kept-more", lines, missing, [head(last + 1, "0" * 64)])


if __name__ == "__main__":
    write_vectors()
