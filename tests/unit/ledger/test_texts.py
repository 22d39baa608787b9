"""Texts for people may change: old logs still verify. Anything else in an outcome may not."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from msgspec import structs

from cmbs.belief.kernel import session as belief_rules
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.server import BeliefServer
from cmbs.errors import LedgerCorrupt
from cmbs.ledger import GENESIS, StoredEntry, canonical
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.kernel.arbitration import arbitrate, stages
from cmbs.substrate.kernel.checkpoint import freeze_space
from cmbs.substrate.kernel.model import TraceStep
from cmbs.substrate.kernel.replay import catch_up_space, verify_space
from cmbs.testing import ManualClock, SequentialIds
from tests.golden.play import ONTOLOGY, play_sessions, play_space
from tests.support.forging import sealed
from tests.support.spaces import SPACE, STREAM


@cache
def logs() -> dict[str, list[StoredEntry]]:
    store, clock = InMemoryStore(), ManualClock()
    play_space(store, clock, play_sessions(store, clock))
    names = [each.session_id for each in store.sessions(None, 100)]
    return {name: store.read(name) for name in (*names, STREAM)}


def verify(name: str, log: list[StoredEntry]) -> Any:
    return verify_space(SPACE, log) if name == STREAM else verify_session(name, log)


def rewrite(log: list[StoredEntry], change: Callable[[dict[str, Any]], None]) -> list[StoredEntry]:
    """The log with entries changed, and every hash made to fit."""
    entries, before = [], GENESIS
    for stored in log:
        content = json.loads(stored.raw)
        change(content)
        content["prev_event_hash"] = before.hex()
        entries.append(sealed(canonical.encode(content, 80)))
        before = entries[-1].event_hash
    return entries


def denied() -> tuple[str, list[StoredEntry]]:
    """A session in which force was denied, which its entry says in words."""
    server = BeliefServer(store=InMemoryStore(), clock=ManualClock(), ids=SequentialIds())
    session_id = server.declare_session(ONTOLOGY, ["a", "b"]).session_id
    server.request_termination(session_id, {"force": True})
    return session_id, server.log.read(session_id)


@pytest.mark.req("ARCH-3-TEXTS-01")
def test_logs_verify_after_the_words_for_people_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = freeze_space(verify_space(SPACE, logs()[STREAM]))

    def translated(*values: Any, **more: Any) -> TraceStep:
        step = TraceStep(*values, **more)
        return step if step.note is None else structs.replace(step, note=f"übersetzt: {step.note}")

    monkeypatch.setattr(belief_rules, "_FORCE_DENIED", "in anderen Worten")
    monkeypatch.setattr(arbitrate, "TraceStep", translated)
    monkeypatch.setattr(stages, "TraceStep", translated)
    assert any(b"force was asked for" in entry.raw for log in logs().values() for entry in log)
    assert any(b'"note":' in entry.raw for entry in logs()[STREAM])
    for name, log in logs().items():
        verify(name, log)
    # What was recorded stays as it was recorded, also in the state.
    assert freeze_space(verify_space(SPACE, logs()[STREAM])) == before
    session_id, changed = denied()
    assert "in anderen Worten" in changed[-1].raw.decode()
    monkeypatch.undo()
    verify_session(session_id, changed)


def leaves_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all that is no list or object, beneath a value."""
    if isinstance(value, dict):
        return [leaf for name, each in value.items() for leaf in leaves_of(each, (*path, name))]
    if isinstance(value, list):
        return [leaf for place, each in enumerate(value) for leaf in leaves_of(each, (*path, place))]
    return [path]


def changed_at(content: dict[str, Any], path: tuple[Any, ...]) -> None:
    inner: Any = content["outcome"]
    for step in path[:-1]:
        inner = inner[step]
    was = inner[path[-1]]
    inner[path[-1]] = (not was) if isinstance(was, bool) else was + 1 if isinstance(was, int) else f"{was}x"


@pytest.mark.req("ARCH-3-TEXTS-01")
def test_every_other_part_of_an_outcome_is_compared() -> None:
    """One leaf at a time, in every entry of a space: only notes of a trace may say something else."""
    kinds, space = set(), None
    for seq, stored in enumerate(logs()[STREAM]):
        content = json.loads(stored.raw)
        for path in leaves_of(content["outcome"]):
            # Each kind of place once: a trace has thousands of steps, which are all the same.
            kind = (content["verb"], *(step for step in path if isinstance(step, str)))
            if kind in kinds:
                continue
            kinds.add(kind)
            forged = json.loads(stored.raw)
            changed_at(forged, path)
            entry = sealed(canonical.encode(forged, 80))
            if path[-1] == "note":
                catch_up_space(SPACE, space, [entry])
            else:
                with pytest.raises(LedgerCorrupt) as found:
                    catch_up_space(SPACE, space, [entry])
                assert found.value.seq == seq
        space = catch_up_space(SPACE, space, [stored])
    assert len(kinds) > 50


@pytest.mark.req("ARCH-3-TEXTS-01")
@pytest.mark.parametrize("notes", [None, "added"])
def test_whether_there_is_a_text_is_compared(notes: str | None) -> None:
    session_id, log = denied()
    at = 1 if notes is None else 0

    def change(content: dict[str, Any]) -> None:
        if content["seq"] == at:
            content.pop("notes", None)
            if notes is not None:
                content["notes"] = notes

    with pytest.raises(LedgerCorrupt, match="notes is not what its message leads to") as found:
        verify_session(session_id, rewrite(log, change))
    assert found.value.seq == at


@pytest.mark.req("ARCH-3-TEXTS-01")
def test_other_words_in_an_entry_do_not_hide_that_its_bytes_are_not_canonical() -> None:
    session_id, log = denied()
    raw = log[1].raw.replace(b'"notes":"force', b'"notes": "forse')
    assert raw != log[1].raw
    with pytest.raises(LedgerCorrupt, match="not in canonical form"):
        verify_session(session_id, [log[0], sealed(raw)])
