"""Streams that contradict each other do not come in: each verifies by itself, and the store would be bad for good."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from cmbs.audit.fsck import check_stream
from cmbs.audit.transfer import Moved, export_lines, import_lines
from cmbs.belief.kernel.kit_stream import MediaType
from cmbs.belief.kernel.requests import KitReading
from cmbs.belief.server import BeliefServer
from cmbs.errors import CmbsError, Conflict, InvalidRequest, LedgerCorrupt
from cmbs.messages import EliminateOutcome, KitRef
from cmbs.spi.audit_log import SPACE_PREFIX
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.server import SubstrateServer
from tests.support.exports import (
    NOWHERE,
    SPACE_STREAM,
    Fitted,
    first_session,
    fit_stream,
    forge_readings,
    fork_stream,
    world_lines,
    world_streams,
    write_export,
)
from tests.support.store_fixture import declared
from tests.support.subtests import for_each
from tests.unit.audit.test_kits_and_observations import KIT
from tests.unit.audit.test_kits_and_observations import NAME as KIT_STREAM


class Target:
    """A store that exports are taken into."""

    def __init__(self) -> None:
        self.log = InMemoryStore()
        self.server = BeliefServer(store=self.log)
        self.spaces = SubstrateServer(log=self.log, keeper_seconds=None)

    def take(self, data: bytes | list[bytes]) -> list[Moved]:
        lines = data if isinstance(data, list) else data.splitlines()
        return list(import_lines(self.server, lines, self.spaces.import_space))

    def refuse(self, data: bytes | list[bytes], error: type[CmbsError] = LedgerCorrupt, match: str = "") -> str:
        """That an export is refused, and that not one of its entries is there; what is said."""
        before = self.log.journal_end()
        with pytest.raises(error, match=match) as refused:
            self.take(data)
        assert self.log.journal_end() == before
        return str(refused.value)

    def check(self) -> None:
        """That nothing is wrong with what is there."""
        for stream_id in {place.stream_id for place in self.log.journal(self.log.journal_end().__class__(0), 10_000)}:
            assert check_stream(self.log, stream_id).findings == [], stream_id


@pytest.fixture
def target() -> Iterator[Target]:
    made = Target()
    with closing(made.server), closing(made.spaces):
        yield made


# --- forks ---


def forks() -> tuple[list[Fitted], dict[str, list[Fitted]]]:
    """A session, and forks of it that are not what it says."""
    entries = first_session()
    good = fork_stream(entries, 5)
    other = [*good[:3], {**good[3], "payload": {**good[3]["payload"], "context": None}}, *good[4:]]
    return fit_stream(entries), {
        "it ends before it repeats its origin": fit_stream(good[:-1]),
        "another message": fit_stream(other),
        "another hash of the origin": fit_stream(fork_stream(entries, 5, event_hash="0" * 64)),
        "beyond the origin": fit_stream(fork_stream(entries, 5, seq=40)),
    }


@pytest.mark.req("TRANSFER-04")
@for_each("case", sorted(forks()[1]))
def test_a_fork_whose_origin_says_something_else_does_not_come_in(case: str) -> None:
    origin, wrong = forks()
    for streams in ((origin, wrong[case]), (wrong[case], origin)):
        assert Target().refuse(write_export(*streams), match="origin|has no event")
    # Nor where the origin is here already.
    target = Target()
    target.take(write_export(origin))
    assert target.refuse(write_export(wrong[case]), match="origin|has no event")
    # Nor an origin that makes a fork wrong which is here.
    target = Target()
    target.take(write_export(wrong[case]))
    assert target.refuse(write_export(origin), match="origin|has no event")
    target.check()


@pytest.mark.req("TRANSFER-04")
def test_a_fork_that_repeats_its_origin_comes_in_before_or_after_it(target: Target) -> None:
    entries = first_session()
    good = fit_stream(fork_stream(entries, 5))
    assert len(target.take(write_export(good, fit_stream(entries)))) == 2
    target.check()
    later = Target()
    later.take(write_export(good))
    later.take(write_export(fit_stream(entries)))
    later.check()


# --- readings of spaces ---

READINGS: dict[str, dict[str, Any]] = {
    "other survivors": {"survivors": ["disk"]},
    "another head": {"head_seq": 1},
    "beyond the session": {"head_seq": 99},
    "a conclusion that was never drawn": {"concluded": ["x"]},
}


@pytest.mark.req("TRANSFER-04")
@for_each("case", READINGS)
def test_belief_readings_that_contradict_the_session_do_not_come_in(case: str) -> None:
    wrong = forge_readings(**READINGS[case])
    assert Target().refuse(wrong, match=r"ledger of `space:")
    # Nor where the session is here, nor a session that makes readings wrong which are here.
    space, sessions = split(wrong)
    target = Target()
    target.take(sessions)
    assert target.refuse(space, match=r"ledger of `space:")
    target = Target()
    target.take(space)
    assert target.refuse(sessions, match=r"ledger of `space:")


@pytest.mark.req("TRANSFER-04")
def test_a_session_that_a_space_has_recorded_as_absent_does_not_come_in() -> None:
    entries = [{**each, "stream_id": NOWHERE} for each in first_session()]
    session = write_export(fit_stream(entries))
    space, _ = split(b"\n".join(world_lines()))
    target = Target()
    target.take(space)
    assert target.refuse(session, match="was there, and was recorded as not found")
    target = Target()
    target.take(session)
    assert target.refuse(space, match="was there, and was recorded as not found")


def split(export: bytes) -> tuple[list[bytes], list[bytes]]:
    """The spaces of an export, and the rest of it, as two exports."""
    header, *lines = export.splitlines()
    spaces: list[bytes] = []
    rest: list[bytes] = []
    stream: list[bytes] = []
    for line in lines[:-1]:
        stream.append(line)
        end = json.loads(line).get("end_of")
        if end is not None:
            (spaces if end.startswith(SPACE_PREFIX) else rest).extend(stream)
            stream = []
    return tuple(  # type: ignore[return-value]
        [header, *found, json.dumps({"sessions": sum(b'"end_of"' in each for each in found)}).encode()]
        for found in (spaces, rest)
    )


@pytest.mark.req("TRANSFER-04")
def test_a_space_comes_in_without_its_sessions_and_they_may_follow(target: Target) -> None:
    space, sessions = split(b"\n".join(world_lines()))
    assert [each.session_id for each in target.take(space)] == [SPACE_STREAM]
    assert len(target.take(sessions)) == len(world_streams()) - 1
    target.check()
    # The same again changes nothing.
    before = target.log.journal_end()
    target.take([*world_lines()])
    assert target.log.journal_end() == before


# --- kits, and other logs of the same stream ---


def observed(forge: bool) -> InMemoryStore:
    """A session over a kit; with `forge`, one of its observations ruled out what the kit does not."""
    log = InMemoryStore()
    server = BeliefServer(store=log)
    server.kits.put(KIT, MediaType.YAML)
    session_id = server.declare_session(kit="coin").session_id
    if forge:
        reference = server.current_session(session_id).provider
        assert reference is not None
        reading = KitReading(KitRef(reference.id, str(reference.content_hash)), "heads")
        probe = server.requests.probe("toss", "heads", None, reading)
        message = server.requests.eliminate("eve", "1", ["heads"], None, probe)
        server._perform(server.requests.command(session_id, message), EliminateOutcome)
    else:
        server.observe(session_id, "toss", "heads")
    return log


@pytest.mark.req("TRANSFER-04")
def test_observations_that_their_kit_does_not_bear_out_do_not_come_in() -> None:
    log = observed(forge=True)
    session_id = log.sessions(None, 1)[0].session_id
    assert Target().refuse([*export_lines(log, [session_id, KIT_STREAM])], match="rules out")
    for first, second in ((session_id, KIT_STREAM), (KIT_STREAM, session_id)):
        target = Target()
        target.take([*export_lines(log, [first])])
        assert target.refuse([*export_lines(log, [second])], match="rules out")
    # The kit is here, with other contents after the one in question.
    target = Target()
    target.server.kits.put(KIT, MediaType.YAML)
    target.server.kits.put(KIT + "# second\n", MediaType.YAML)
    assert target.refuse([*export_lines(log, [session_id, KIT_STREAM])], match="rules out")


@pytest.mark.req("TRANSFER-04")
def test_observations_as_the_kit_has_them_come_in(target: Target) -> None:
    log = observed(forge=False)
    session_id = log.sessions(None, 1)[0].session_id
    assert len(target.take([*export_lines(log, [session_id, KIT_STREAM])])) == 2
    target.check()


@pytest.mark.req("TRANSFER-04")
def test_a_stream_that_is_here_with_another_past_keeps_the_others_out_too(target: Target) -> None:
    log = InMemoryStore()
    server = BeliefServer(store=log)
    first, second = declared(server), declared(server)
    target.take([*export_lines(log, [second])])
    target.server.eliminate(second, "s", "1", ["a"])
    server.eliminate(second, "s", "1", ["b"])
    assert target.refuse([*export_lines(log, [first, second])], Conflict, "another log of")


FILES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "the same stream twice": lambda lines: [*lines[:-1], *lines[1:-1], b'{"sessions":2}'],
    "the file is cut off": lambda lines: lines[:-1],
    "a stream that is never exported": lambda lines: [
        line.replace(b'"end_of":"', b'"end_of":"webhook:') for line in lines
    ],
}


@pytest.mark.req("TRANSFER-04")
@for_each("case", FILES)
def test_a_file_that_is_wrong_at_its_end_brings_nothing(case: str) -> None:
    log = InMemoryStore()
    declared(BeliefServer(store=log))
    lines = [*export_lines(log, [log.sessions(None, 1)[0].session_id])]
    assert Target().refuse(FILES[case](lines), InvalidRequest, "line|another kind")
