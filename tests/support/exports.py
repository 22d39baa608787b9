"""Exports to check: a world with every verb of sessions and a space that reads them, and forgers of all of it."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import pytest
import rfc8785

from cmbs import offline_verifier as verifier
from cmbs.audit.fsck import all_sessions
from cmbs.audit.spaces import all_spaces
from cmbs.audit.transfer import export_lines
from cmbs.belief.server import BeliefServer
from cmbs.messages import OntologyBundle, SessionPolicy
from cmbs.offline_verifier import Survivors, commitment
from cmbs.stores import Store
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.kernel.events import STREAM_PREFIX, Evidence, MemoryKind, PutMemory
from cmbs.testing import ManualClock, SequentialIds
from tests.support.spaces import AGENT, SPACE, ScriptedRunner, World, call, constraint, delta, http_tool, raw

SPACE_STREAM = STREAM_PREFIX + SPACE
ONTOLOGY = OntologyBundle("checkout-latency", "3", "graph://checkout", "v17")
UGLY_IDS = ["", "a\x00b", "\x7f", "\u00e9", "e\u0301", "\uffee", "\U0001f600", '"\\', "\u202eabc"]
# A session that a policy asks for, and that never is.
NOWHERE = "00000000-0000-4000-8000-00000000dead"

Entry = dict[str, Any]


def play_world(store: Store) -> None:
    """Three sessions with every verb and most outcomes, and a space that is denied and allowed on one of them."""
    belief = BeliefServer(store=store, clock=ManualClock(), ids=SequentialIds(7))
    _play_whole_session(belief)
    ugly = belief.declare_session(
        ONTOLOGY, UGLY_IDS, {"n": 1.5, "\U0001f600": 1e-7, "\uffee": [1e21, -0.001]}
    ).session_id
    belief.eliminate(ugly, "s", "\U0001f600", ["\U0001f600", "unknown"], {"\U0001f600": 1, "\uffee": 2})
    belief.request_termination(ugly, {"force": True})
    session_id = belief.declare_session(ONTOLOGY, ["disk", "dns", "lock", "queue"]).session_id
    belief.enter_obligation(session_id, "look", 1)
    belief.eliminate(session_id, "probe", "first", ["disk"])
    few = {"op": "schema", "args": [f"$belief.{session_id}.n_survivors", {"maximum": 2}]}
    none = {"op": "missing", "args": [f"$belief.{NOWHERE}.n_survivors"]}
    world = World(store, belief=ServedBelief(belief), runner=ScriptedRunner(), space=8)
    world.open(
        http_tool("restart"),
        policy={
            "constraint.restart": constraint(subject={"tool_id": "restart"}, when={"op": "all", "args": [few, none]}),
            "constraint.goals": constraint(when={"op": "missing", "args": ["$tool.id"]}),
        },
    )
    world.propose(call("restart", {"service": "checkout"}, key="k1"), proposal_id="p1")
    world.propose(delta(colour="red"), proposal_id="p2")
    belief.eliminate(session_id, "probe", "second", ["dns"])
    world.propose(call("restart", {"service": "checkout"}, key="k2"), proposal_id="p3")
    world.server.wait_for(SPACE, "p3", 30)
    belief.request_exit(session_id, "look")
    concluded = belief.declare_conclusion(session_id, "lock").audit_event_id
    world.say(PutMemory("m1", MemoryKind.FACT, raw("it was the lock"), Evidence([], 0, concluded, session_id)), AGENT)
    world.propose(call("restart", {"service": "checkout"}, key="k3"), proposal_id="p4")
    world.server.wait_for(SPACE, "p4", 30)
    world.close()


def _play_whole_session(belief: BeliefServer) -> None:
    policy = SessionPolicy(validate_hypotheses=True, stability_window=2)
    session_id = belief.declare_session(ONTOLOGY, ["a", "b", "c"], policy=policy, idempotency_key="once").session_id
    belief.enter_obligation(session_id, "gate", 2, idempotency_key="enter")
    belief.declare_conclusion(session_id, "too early")
    belief.request_exit(session_id, "gate", {"why": "hurry"})
    belief.eliminate(session_id, "s", "1", ["a", "b"], {"log": "line 7"})
    belief.request_exit(session_id, "gate")
    belief.request_exit(session_id, "gate")
    belief.declare_conclusion(session_id, "c")
    belief.request_termination(session_id)
    belief.declare_conclusion(session_id, "c", {"by": "on-call"})
    belief.request_termination(session_id)


def export(store: Store) -> list[bytes]:
    """All sessions and spaces of a store, a line each, without line ends."""
    names = [summary.session_id for summary in all_sessions(store)]
    return list(export_lines(store, [*names, *(STREAM_PREFIX + name for name in all_spaces(store))]))


def read_streams(lines: Iterable[bytes]) -> dict[str, list[Entry]]:
    """The entries of an export, by stream."""
    streams: dict[str, list[Entry]] = {}
    for line in lines:
        entry = json.loads(line).get("entry")
        if entry is not None:
            streams.setdefault(entry["stream_id"], []).append(entry)
    return streams


class Fitted(NamedTuple):
    """An entry as it is written, under its hash."""

    event_hash: bytes
    raw: bytes


def fit_stream(entries: Sequence[Entry]) -> list[Fitted]:
    """What a forger writes: every link, hash and survivor commitment computed anew, whatever the entries say."""
    previous, fitted = bytes(32), []
    survivors: Survivors | None = None
    for original in entries:
        entry = dict(original)
        if "prev_event_hash" in entry:
            entry["prev_event_hash"] = previous.hex()
        try:
            survivors = survivors or Survivors(list(entry["payload"]["hypotheses"]))
            _commit(entry, "survivors_before_hash", previous, survivors)
            survivors.eliminate({name for name in entry["delta"]["eliminated"] if survivors.is_alive(name)})
            _commit(entry, "survivors_after_hash", previous, survivors)
        except (KeyError, TypeError, AttributeError, IndexError):
            # A forger cannot commit to what makes no sense, or to a space.
            pass
        raw_entry = rfc8785.dumps(entry)
        previous = hashlib.sha256(b"\x00" + raw_entry).digest()
        fitted.append(Fitted(previous, raw_entry))
    return fitted


def _commit(entry: Entry, name: str, previous: bytes, survivors: Survivors) -> None:
    if name in entry:
        entry[name] = commitment(entry["stream_id"], previous, survivors.root).hex()


def write_export(*streams: Sequence[Fitted], header: str = '{"format":"cmbs/1/export","left_out":[]}') -> bytes:
    """A whole export of streams; the name of each is taken from its first entry."""
    lines = [header.encode()]
    for fitted in streams:
        lines += [b'{"event_hash":"%b","entry":%b}' % (each.event_hash.hex().encode(), each.raw) for each in fitted]
        end = {"end_of": json.loads(fitted[0].raw)["stream_id"], "head_seq": len(fitted) - 1}
        lines.append(json.dumps({**end, "head_hash": fitted[-1].event_hash.hex()}).encode())
    return b"\n".join([*lines, json.dumps({"sessions": len(streams)}).encode(), b""])


def alter_value(value: Any, stride: int = 1) -> Iterator[Any]:
    """A JSON value with one thing in it changed: another value, another type, dropped, added or swapped."""
    match value:
        case bool() | None:
            yield from (not value, 1, {}, "x")
        case float():
            yield from (value + 1, int(value), str(value), None)
        case int():
            yield from (value + 1, value - 1, -value - 1, str(value), None, value + 0.5, bool(value))
        case str():
            for at in range(0, len(value), stride):
                yield value[:at] + chr(ord(value[at]) ^ 1) + value[at + 1 :]
                yield value[:at] + value[at + 1 :]
            yield from (value + "A", 0, None, value.swapcase())
        case list():
            for at, item in enumerate(value):
                yield value[:at] + value[at + 1 :]
                yield value[:at] + value[at + 1 : at + 2] + [item] + value[at + 2 :]
                yield from ([*value[:at], other, *value[at + 1 :]] for other in alter_value(item, stride))
            yield from ([*value, "zz"], {}, None)
        case dict():
            for name, item in value.items():
                without = {other: value[other] for other in value if other != name}
                yield without
                yield from ({**value, name: other} for other in alter_value(item, stride))
            yield from ({**value, "extra": 1}, [], None)
        case _:
            raise AssertionError(value)


class Mutant(NamedTuple):
    """A changed export, and the line at which that shows first, at the earliest and at the latest."""

    kind: str
    data: bytes
    first: int
    last: int


def mutate_export(lines: Sequence[bytes], stride: int, every: int) -> Iterator[Mutant]:
    """Changes of one byte in `stride`, of every line, and of entries under a hash of their own, one in `every`."""
    yield from _mutate_bytes(lines, stride)
    yield from _mutate_lines(lines)
    for number, line in enumerate(lines, 1):
        if b'"entry"' in line:
            yield from _mutate_entry(lines, number, every)


def join_lines(lines: Iterable[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def _mutate_bytes(lines: Sequence[bytes], stride: int) -> Iterator[Mutant]:
    for number, line in enumerate(lines, 1):
        before, after = join_lines(lines[: number - 1]), join_lines(lines[number:])
        for at in range(number % stride, len(line), stride):
            for flip in (0x01, 0x20, 0x80):
                other = bytes([line[at] ^ flip])
                yield Mutant("flip", before + line[:at] + other + line[at + 1 :] + b"\n" + after, number, number)
            yield Mutant("drop", before + line[:at] + line[at + 1 :] + b"\n" + after, number, number)
            if line[at : at + 1] != line[at + 1 : at + 2] and at + 1 < len(line):
                swapped = line[:at] + line[at + 1 : at + 2] + line[at : at + 1] + line[at + 2 :]
                yield Mutant("swap", before + swapped + b"\n" + after, number, number)
            yield Mutant("cut", before + line[:at], number, number)


def _mutate_lines(lines: Sequence[bytes]) -> Iterator[Mutant]:
    for number in range(1, len(lines) + 1):
        line, before, after = lines[number - 1], lines[: number - 1], lines[number:]
        yield Mutant("line dropped", join_lines([*before, *after]), number, number)
        yield Mutant("line repeated", join_lines([*before, line, line, *after]), number + 1, number + 1)
        yield Mutant("line emptied", join_lines([*before, b"", *after]), number, number)
        if number < len(lines):
            yield Mutant("truncated", join_lines([*before, line]), number + 1, number + 1)
            yield Mutant("lines swapped", join_lines([*before, after[0], line, *after[1:]]), number, number)


def _mutate_entry(lines: Sequence[bytes], number: int, every: int) -> Iterator[Mutant]:
    """One entry is another one, under its own hash: it is bad itself, or the next line does not follow."""
    entry = json.loads(lines[number - 1])["entry"]

    def replace(kind: str, data: bytes, last: int) -> Mutant:
        event_hash = hashlib.sha256(b"\x00" + data).hexdigest().encode()
        line = b'{"event_hash":"%b","entry":%b}' % (event_hash, data)
        return Mutant(kind, join_lines([*lines[: number - 1], line, *lines[number:]]), number, last)

    canonical = rfc8785.dumps(entry)
    for changed in islice(alter_value(entry, 20), number % every, None, every):
        try:
            data = rfc8785.dumps(changed)
        except (rfc8785.CanonicalizationError, UnicodeEncodeError):
            continue
        if data != canonical:
            yield replace("edited and hashed", data, number + 1)
    backwards = json.dumps(dict(reversed(entry.items())), separators=(",", ":"), ensure_ascii=False).encode()
    yield replace("keys reordered", backwards, number)
    yield replace("spaced", canonical.replace(b'":', b'": ', 1), number)
    yield replace(
        "escaped", canonical.replace(b'"verb":"', b'"verb":"\\u00', 1).replace(b"\\u00", b"\\u0041", 1), number
    )
    yield replace("key repeated", canonical[:-1] + b"," + canonical[canonical.rindex(b'"verb":') :], number)


# --- the world, and what the verifier says of a file ---


@cache
def world_lines() -> tuple[bytes, ...]:
    store = InMemoryStore()
    play_world(store)
    return tuple(export(store))


def world_streams() -> dict[str, list[Entry]]:
    return read_streams(world_lines())


def first_session() -> list[Entry]:
    return next(iter(world_streams().values()))


def check_export(data: bytes, known: verifier.Known | None = None) -> verifier.Report:
    """What the verifier finds in a file; raises what it refuses."""
    report = verifier.Report("file")
    verifier.check_file(io.BytesIO(data), report, known or verifier.Known(), verifier.Question())
    return report


def refuse_export(data: bytes, known: verifier.Known | None = None) -> verifier.Refused:
    with pytest.raises(verifier.Refused) as caught:
        check_export(data, known)
    return caught.value


def forge_readings(**members: Any) -> bytes:
    """The world with the first belief reading of its space changed, and the file made to fit."""
    streams = world_streams()
    entries = streams.pop(SPACE_STREAM)
    for entry in entries:
        found = [each for each in entry["payload"].get("belief", []) if each["found"]]
        if found:
            found[0].update(members)
            entry["ts"] = "2027-01-01T00:00:00.000000Z"
            break
    head = entries[: entries.index(entry) + 1]
    return write_export(*map(fit_stream, streams.values()), fit_stream(refit_snapshots(head)))


def refit_snapshots(entries: list[Entry]) -> list[Entry]:
    """The entries with the snapshots that their decisions name as they are in the forged stream."""
    for seq, entry in enumerate(entries):
        decision = entry["outcome"].get("decision")
        if decision:
            fitted = fit_stream(entries[:seq])
            changed = [at for at in range(seq) if at == 0 or entries[at]["outcome"].get("changes")]
            decision["state_snapshot_id"] = fitted[changed[-1]].event_hash.hex()
    return entries


def fork_stream(entries: list[Entry], size: int, **origin: Any) -> list[Entry]:
    """A new session from the first entries of another."""
    head = fit_stream(entries)[size - 1].event_hash.hex()
    forked = [{**each, "stream_id": "fork", "event_id": f"f{each['seq']}"} for each in entries[:size]]
    for each in forked:
        if each["verb"] == "ELIMINATE" and "actor" in each:
            each["payload"] = {**each["payload"], "first_sent_by": each["actor"]["id"]}
    declared_by = [entries[0].get("actor", {}).get("id")]
    named = {"event_hash": head, "seq": size - 1, "session_id": entries[0]["stream_id"]}
    first = {"declared_by": declared_by, **named, **origin}
    return [{**forked[0], "payload": {**forked[0]["payload"], "origin": first}}, *forked[1:]]
