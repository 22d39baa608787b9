"""Names of cases: unique in a server, claimed by the append, and found wherever an id is looked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.audit.fsck import check_stream
from cmbs.audit.transfer import export_lines, import_lines
from cmbs.belief.kernel import names as kernel
from cmbs.belief.kernel.names import CaseNames, ClaimName, NameMessage, ReleaseName
from cmbs.belief.names import NAMES, NameRegistry
from cmbs.belief.server import BeliefServer
from cmbs.errors import Conflict, Forbidden, InvalidRequest, LedgerCorrupt, LimitExceeded, RecordNotFound
from cmbs.ledger import StoredEntry
from cmbs.messages import Actor, ActorKind, OntologyBundle
from cmbs.spi.audit_log import NAMES_STREAM
from cmbs.stores import open_store
from cmbs.stores.memory import InMemoryStore
from cmbs.testing import ManualClock, SequentialIds
from tests.support.cases import NamedIds, declare_as
from tests.support.exports import check_export, refuse_export
from tests.support.forging import sealed
from tests.support.postgres import fresh_database
from tests.support.store_fixture import declared
from tests.support.subtests import for_each

ONTOLOGY = OntologyBundle("s", "1", "g", "1")
AGENT = Actor(ActorKind.AGENT, "medic", authenticated=True, key_id="k")
OPERATOR = Actor(ActorKind.OPERATOR, "ann", authenticated=True, key_id="o")
NOW = "2026-01-01T00:00:00.000000Z"


def tell(names: CaseNames | None, message: NameMessage, by: Actor = OPERATOR) -> CaseNames:
    """The names after a message; what it may not do is raised, and a repeat changes nothing."""
    event = NAMES.record(NAMES_STREAM, names, message, by, "e", NOW)
    if event is None:
        assert names is not None
        return names
    return NAMES.fold(names, event.stored)[0]


# --- the rules --------------------------------------------------------------------------------------------------------


@pytest.mark.req("CASE-NAME-01")
@for_each(
    "name",
    ["", " ", "a b", "-a", ".", "a/b", "a:b", "ä", "x" * 65, 3, None, "00000000-0000-4000-8000-000000000001"],
)
def test_what_is_no_word_or_looks_like_an_id_is_no_name(name: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        kernel.check_name(name)
    assert refused.value.details["field"] == "name"
    for good in ("INC-1042", "a", "2026.11.19_db", "x" * 64):
        assert kernel.check_name(good) == good


@pytest.mark.req("CASE-NAME-01", "CASE-NAME-02")
def test_a_name_is_one_cases_and_a_case_has_one() -> None:
    names = tell(None, ClaimName("INC-1", "s1"), AGENT)
    assert tell(names, ClaimName("INC-1", "s1"), AGENT) is names
    with pytest.raises(Conflict) as taken:
        tell(names, ClaimName("inc-1", "s2"))
    assert taken.value.details["session_id"] == "s1"
    with pytest.raises(Conflict, match="has the name `INC-1`"):
        tell(names, ClaimName("INC-2", "s1"))
    with pytest.raises(Conflict, match="has no name"):
        tell(names, ClaimName("INC-2", "s2", "INC-9"))
    # Only in upper and lower case another: it is the case's own.
    again = tell(names, ClaimName("inc-1", "s1", "INC-1"))
    assert (again.name_of("s1"), again.find("INC-1")) == ("inc-1", "s1")
    renamed = tell(names, ClaimName("INC-2", "s1", "INC-1"))
    assert (renamed.find("INC-1"), renamed.find("inc-2"), renamed.name_of("s1")) == (None, "s1", "INC-2")
    assert tell(renamed, ClaimName("INC-1", "s2")).find("INC-1") == "s2"
    released = tell(renamed, ReleaseName("INC-2", "s1"))
    assert (released.find("INC-2"), released.name_of("s1")) == (None, None)
    for message in (ReleaseName("INC-2", "s1"), ReleaseName("INC-1", "s2")):
        with pytest.raises(RecordNotFound):
            tell(released, message)
    with pytest.raises(RecordNotFound):
        tell(None, ReleaseName("INC-1", "s1"))
    with pytest.raises(ValueError, match="names are in"):
        kernel.decide_name("names:other", None, ClaimName("a", "s"), OPERATOR)


@pytest.mark.req("CASE-NAME-02")
def test_names_are_given_up_by_operators_alone() -> None:
    names = tell(None, ClaimName("INC-1", "s1"), AGENT)
    for message in (ClaimName("INC-2", "s1", "INC-1"), ReleaseName("INC-1", "s1")):
        with pytest.raises(Forbidden) as refused:
            tell(names, message, AGENT)
        assert refused.value.details["reason"] == "not_an_operator"
        # Without keys, no caller is known to be another.
        assert tell(names, message, Actor(ActorKind.AGENT, "medic")).find("INC-1") is None


def test_there_are_only_so_many_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "MAX_NAMES", 1)
    names = tell(None, ClaimName("a", "s1"))
    with pytest.raises(LimitExceeded, match="case_names"):
        tell(names, ClaimName("b", "s2"))
    assert tell(names, ClaimName("b", "s1", "a")).find("b") == "s1"


def test_names_are_searched_in_any_case_and_not_without_end() -> None:
    names: CaseNames | None = None
    for number in range(4):
        names = tell(names, ClaimName(f"INC-{number}", f"s{number}"))
    assert names is not None
    assert names.search("nc-2", 9) == ["s2"]
    assert len(names.search("inc", 3)) == 3


SESSIONS, WORDS = st.sampled_from(["s1", "s2", "s3"]), st.sampled_from(["a", "A", "b", "c"])
MESSAGES = st.one_of(
    st.builds(ClaimName, WORDS, SESSIONS, st.none() | WORDS),
    st.builds(ReleaseName, WORDS, SESSIONS),
)


@pytest.mark.req("CASE-NAME-01", "CASE-NAME-02")
@given(st.lists(st.tuples(MESSAGES, st.sampled_from([AGENT, OPERATOR])), max_size=12))
def test_whatever_is_asked_names_stay_unique_and_replay_says_the_same(asked: list[tuple[NameMessage, Actor]]) -> None:
    names: CaseNames | None = None
    entries: list[StoredEntry] = []
    for number, (message, by) in enumerate(asked):
        try:
            event = NAMES.record(NAMES_STREAM, names, message, by, f"e{number}", NOW)
        except (Conflict, Forbidden, RecordNotFound):
            continue
        if event is not None:
            entries.append(event.stored)
            names, _ = NAMES.fold(names, event.stored)
    assert NAMES.catch_up(NAMES_STREAM, None, entries) == names
    if names is not None:
        assert {name.lower(): session for session, name in names.names.items()} == dict(names.sessions)
        assert NAMES.verify(NAMES_STREAM, entries, names.head) == names
        with pytest.raises(LedgerCorrupt, match="and not in the recorded head"):
            NAMES.verify(NAMES_STREAM, entries[:-1], names.head)


@pytest.mark.req("CASE-NAME-04")
@for_each(
    ("old", "new"),
    [
        (b'"verb":"CLAIM_NAME"', b'"verb":"TAKE_NAME"'),
        (b'"name":"INC-1"', b'"name":"INC 1"'),
        (b'"outcome":null', b'"outcome":{}'),
        (b'"kind":"operator"', b'"kind":"stranger"'),
        (b'"instead_of":null', b'"instead_of":"INC-0"'),
    ],
)
def test_a_forged_name_is_refused_with_every_hash_right_here_and_offline(old: bytes, new: bytes) -> None:
    server = BeliefServer(store=InMemoryStore())
    server.names.rename(declared(server), "INC-1", OPERATOR)
    (entry,) = server.log.read(NAMES_STREAM)
    assert old in entry.raw
    forged = sealed(entry.raw.replace(old, new))
    with pytest.raises(LedgerCorrupt):
        NAMES.catch_up(NAMES_STREAM, None, [forged])
    lines = b"\n".join(export_lines(server.log, [NAMES_STREAM])) + b"\n"
    assert check_export(lines).figures["names"] == 1
    head, hashes = (each.event_hash.hex().encode() for each in (entry, forged))
    refuse_export(lines.replace(entry.raw, forged.raw).replace(head, hashes))


def test_offline_a_name_that_is_taken_or_given_up_by_an_agent_is_refused() -> None:
    server = BeliefServer(store=InMemoryStore())
    first, second = declared(server), declared(server)
    server.names.rename(first, "a", OPERATOR)
    server.names.rename(second, "b", OPERATOR)
    server.names.rename(first, "c", OPERATOR)
    server.names.release(second, OPERATOR)
    server.names.release(second, OPERATOR)
    entries = server.log.read(NAMES_STREAM)
    assert len(entries) == 4
    lines = b"\n".join(export_lines(server.log, [NAMES_STREAM])) + b"\n"
    assert check_export(lines).figures["names"] == 1
    names = NAMES.catch_up(NAMES_STREAM, None, entries[:3])
    for forged in (
        entries[3].raw.replace(b'"kind":"operator"', b'"kind":"agent"'),
        entries[3].raw.replace(b'"name":"b"', b'"name":"a"'),
        entries[3].raw.replace(b'"RELEASE_NAME"', b'"CLAIM_NAME"').replace(b'{"name"', b'{"instead_of":null,"name"'),
    ):
        assert forged != entries[3].raw
        with pytest.raises(LedgerCorrupt):
            NAMES.catch_up(NAMES_STREAM, names, [sealed(forged)])
        changed = lines.replace(entries[3].raw, forged)
        refuse_export(changed.replace(entries[3].event_hash.hex().encode(), sealed(forged).event_hash.hex().encode()))


# --- the server -------------------------------------------------------------------------------------------------------


@pytest.mark.req("CASE-NAME-01")
def test_a_declaration_with_a_name_that_is_taken_declares_nothing() -> None:
    ids = NamedIds()
    server = BeliefServer(store=InMemoryStore(), ids=ids)
    first = declared(server, name="INC-1")
    with pytest.raises(Conflict) as taken:
        declared(server, name="inc-1")
    assert taken.value.details["session_id"] == first
    declare_as(server, ids, "old")
    with pytest.raises(InvalidRequest, match="is the id of a session"):
        declared(server, name="old")
    assert {each.session_id for each in server.list_sessions()} == {first, "old"}


@pytest.mark.req("CASE-NAME-01")
def test_a_repeat_of_a_declaration_keeps_the_name_that_its_case_has_by_now() -> None:
    server = BeliefServer(store=InMemoryStore())
    first = server.declare_session(ONTOLOGY, ["a"], name="INC-1", idempotency_key="k")
    server.names.rename(first.session_id, "INC-2", OPERATOR)
    declared(server, name="INC-1")
    again = server.declare_session(ONTOLOGY, ["a"], name="INC-1", idempotency_key="k")
    assert again.session_id == first.session_id
    assert server.names.name_of(first.session_id) == "INC-2"


@pytest.mark.req("CASE-NAME-01")
def test_a_name_that_another_took_meanwhile_is_a_conflict_and_the_session_has_none() -> None:
    store = InMemoryStore()
    server, other = BeliefServer(store=store), BeliefServer(store=store)
    command = server.declaration(ONTOLOGY, ["a"], name="INC-1")
    winner = declared(other, name="INC-1")
    with pytest.raises(Conflict) as taken:
        asyncio.run(server.perform_async(command))
    assert taken.value.details["session_id"] == winner
    assert server.names.name_of(command.session_id) is None
    assert server.query_belief(command.session_id).n_survivors == 1


@pytest.mark.req("CASE-NAME-03")
def test_ids_win_over_names_and_what_is_neither_stays_what_it_is() -> None:
    store = InMemoryStore()
    server = BeliefServer(store=store)
    names = server.names
    assert names.resolve("INC-1") == "INC-1"
    assert (names.find("INC-1"), names.search("INC"), names.read()) == (None, (), None)
    session_id = declared(server, name="INC-1")
    assert [names.resolve(each) for each in ("INC-1", "inc-1", session_id, "INC-2", "space:x")] == [
        *(session_id, session_id, session_id),
        *("INC-2", "space:x"),
    ]
    assert (names.search("c-1"), names.search("")) == ((session_id,), ())


@pytest.mark.req("CASE-NAME-04")
def test_a_fork_and_an_import_never_take_a_name_in_use() -> None:
    source = BeliefServer(store=InMemoryStore())
    kept, taken = declared(source, name="INC-1"), declared(source, name="INC-2")
    fork = source.fork_session(kept).session_id
    assert source.names.name_of(fork) is None
    lines = list(export_lines(source.log, [kept, taken, NAMES_STREAM]))
    target = BeliefServer(store=InMemoryStore())
    here = declared(target, name="INC-2")
    list(import_lines(target, lines))
    assert [target.names.name_of(each) for each in (kept, taken, here)] == ["INC-1", None, "INC-2"]
    head = target.log.head(NAMES_STREAM)
    list(import_lines(target, lines))
    assert target.log.head(NAMES_STREAM) == head
    # Where there are none yet, their log is taken over as it is, if all its cases are there.
    for sessions, is_whole in (([kept, taken], True), ([kept], False)):
        empty = BeliefServer(store=InMemoryStore())
        list(import_lines(empty, export_lines(source.log, [*sessions, NAMES_STREAM])))
        assert (empty.log.read(NAMES_STREAM) == source.log.read(NAMES_STREAM)) == is_whole
        assert [empty.names.name_of(each) for each in sessions] == ["INC-1", "INC-2"][: len(sessions)]
        assert empty.names.find("INC-2") == (taken if is_whole else None)


def test_the_register_is_part_of_what_is_checked_and_watched() -> None:
    server = BeliefServer(store=InMemoryStore())
    seen: list[str] = []
    server.observe_appends(lambda appends: seen.extend(each.stream_id for each in appends))
    declared(server, name="INC-1")
    assert seen[-1] == NAMES_STREAM
    assert check_stream(server.log, NAMES_STREAM).findings == []
    head = server.log.head(NAMES_STREAM)
    assert head is not None
    server.expect_head(NAMES_STREAM, head)
    assert server.find_behind() == []
    assert str(NAMES.not_found(NAMES_STREAM)).startswith("RECORD_NOT_FOUND")
    assert [NAMES.owns(each) for each in (NAMES_STREAM, "names:other", "s")] == [True, False, False]


# --- several processes ------------------------------------------------------------------------------------------------


def assert_names_are_unique_over(open_log: Callable[[], Any]) -> None:
    """Two servers over one database claim the same names for their own sessions, at once."""
    with closing(BeliefServer(store=open_log())) as one, closing(BeliefServer(store=open_log())) as two:
        wanted = [f"INC-{number}" for number in range(6)]

        def claim(server: BeliefServer) -> dict[str, str]:
            got: dict[str, str] = {}
            for name in wanted:
                session_id = declared(server)
                with suppress(Conflict):
                    server.names.claim(name, session_id, OPERATOR)
                    got[name] = session_id
            return got

        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(claim, (one, two))
        assert not first.keys() & second.keys()
        assert {**first, **second}.keys() == set(wanted)
        for server in (one, two):
            assert {name: server.names.find(name) for name in wanted} == {**first, **second}
        names = NAMES.catch_up(NAMES_STREAM, None, one.log.read(NAMES_STREAM))
        assert names is not None
        assert len(names.sessions) == len(wanted)


@pytest.mark.req("CASE-NAME-01")
def test_of_two_processes_over_one_file_one_has_each_name(tmp_path: Path) -> None:
    assert_names_are_unique_over(lambda: open_store(f"sqlite:///{tmp_path / 'cmbs.db'}"))


@pytest.mark.req("CASE-NAME-01")
@pytest.mark.postgres
def test_of_two_processes_over_one_postgres_one_has_each_name() -> None:
    with fresh_database() as url:
        assert_names_are_unique_over(lambda: open_store(url))


def test_a_registry_of_its_own_reads_what_others_wrote(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'cmbs.db'}"
    with closing(BeliefServer(store=open_store(url))) as server, closing(open_store(url)) as log:
        registry = NameRegistry(log, ManualClock(), SequentialIds())
        session_id = declared(server, name="INC-1")
        assert registry.find("INC-1") == session_id
        server.names.rename(session_id, "INC-2")
        assert (registry.find("INC-1"), registry.find("INC-2")) == (None, session_id)
        registry.close()
