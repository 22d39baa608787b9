"""Logs that earlier software wrote verify, can be moved, and go on, for ever."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cmbs.audit.fsck import all_sessions, check_space, check_stream
from cmbs.audit.spaces import all_spaces
from cmbs.audit.transfer import export_lines, import_lines, read_exported
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.server import BeliefServer
from cmbs.identity import Role
from cmbs.identity.kernel.model import KEYS_STREAM
from cmbs.identity.kernel.stream import verify_keys
from cmbs.identity.registry import KeyRegistry
from cmbs.ledger import StoredEntry, verify_chain
from cmbs.ledger.entry import VERSION
from cmbs.messages import ActorKind
from cmbs.stores import InMemoryStore, Store, open_store
from cmbs.substrate.kernel.events import Mode as SpaceMode
from cmbs.substrate.kernel.events import Propose, SetMode, SpaceVerb
from cmbs.substrate.kernel.model import Proposal, Provenance, ReasonCode, StateDelta
from cmbs.substrate.kernel.replay import verify_space
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.server import SubstrateServer
from tests.support.spaces import AGENT, ROOT, SPACE, STREAM

GOLDEN = Path(__file__).parent
DIRECTORIES = sorted(path.name for path in GOLDEN.iterdir() if (path / "export.jsonl").exists())
# A policy that is validated whole never has them.
UNREACHABLE = {ReasonCode.MALFORMED_CONSTRAINT, ReasonCode.MALFORMED_POLICY}
# Those that entries of the third version brought.
LATER_VERBS = {SpaceVerb.WITHDRAW, SpaceVerb.SET_GOVERNANCE, SpaceVerb.OPEN_CASE, SpaceVerb.CLOSE_CASE}
LATER_REASONS = {ReasonCode.NO_CASE}


def read_lines(directory: str, name: str = "export.jsonl") -> list[bytes]:
    return (GOLDEN / directory / name).read_bytes().splitlines()


def contents(directory: str) -> Iterator[dict[str, object]]:
    for line in (*read_lines(directory), *read_lines(directory, "keys.jsonl")):
        content = json.loads(line)
        if "entry" in content:
            yield content["entry"]


def open_database(directory: str, tmp_path: Path) -> Store:
    """The store as the earlier software left it."""
    path = tmp_path / "store.db"
    path.write_bytes(gzip.decompress((GOLDEN / directory / "store.db.gz").read_bytes()))
    return open_store(f"sqlite:///{path}")


def import_export(directory: str, _: Path) -> Store:
    """An empty store that took the export in."""
    store = InMemoryStore()
    server = BeliefServer(store=store)
    with closing(SubstrateServer(log=store, keeper_seconds=None)) as spaces:
        assert list(import_lines(server, read_lines(directory), spaces.import_space))
    return store


def is_verified(store: Store) -> bool:
    """Whether every stream verifies, and all that is derived from it fits."""
    reports = [check_stream(store, each.session_id) for each in all_sessions(store)]
    findings = [what for report in reports for what in report.findings]
    spaces = [check_space(store, space_id) for space_id in all_spaces(store)]
    findings += [what for report in spaces for what in report.findings]
    verify_keys(store.read(KEYS_STREAM), store.head(KEYS_STREAM))
    assert findings == []
    assert not spaces[0].summary.startswith("0 belief readings")
    return len(reports) > 1


def versions(entries: list[StoredEntry]) -> list[int]:
    return [json.loads(entry.raw)["v"] for entry in entries]


@pytest.mark.req("ARCH-3-GOLDEN-01")
@pytest.mark.parametrize("directory", DIRECTORIES)
@pytest.mark.parametrize("place", [open_database, import_export])
def test_a_golden_log_verifies(directory: str, place: Callable[[str, Path], Store], tmp_path: Path) -> None:
    with closing(place(directory, tmp_path)) as store:
        assert is_verified(store)
        names = [*(each.session_id for each in all_sessions(store)), STREAM]
        # The first line says what the file is and leaves out, which newer software says in more words.
        assert list(export_lines(store, names))[1:] == read_lines(directory)[1:]


@pytest.mark.req("ARCH-3-GOLDEN-01")
@pytest.mark.parametrize("directory", DIRECTORIES)
def test_a_golden_export_is_the_whole_of_what_the_database_holds(directory: str, tmp_path: Path) -> None:
    with closing(open_database(directory, tmp_path)) as store:
        keys = read_exported(read_lines(directory, "keys.jsonl"), KEYS_STREAM)
        assert store.read(KEYS_STREAM) == keys
    assert {content["v"] for content in contents(directory)} == {int(directory.removeprefix("v"))}


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_golden_logs_hold_every_verb_and_every_reason(directory: str) -> None:
    everything = list(contents(directory))
    assert {content["verb"] for content in everything} >= set(SpaceVerb) - LATER_VERBS
    text = json.dumps(everything)
    expected = set(ReasonCode) - UNREACHABLE - LATER_REASONS
    assert [reason for reason in expected if f'"{reason}"' not in text] == []


def assert_goes_on(store: Store, session_id: str) -> None:
    entries = store.read(session_id)
    verify_session(session_id, entries, store.head(session_id))
    verify_chain(session_id, entries, store.head(session_id))
    assert versions(entries)[-1] == VERSION
    assert versions(entries) == sorted(versions(entries))


@pytest.mark.req("ARCH-3-GOLDEN-01")
@pytest.mark.parametrize("directory", DIRECTORIES)
@pytest.mark.parametrize("place", [open_database, import_export])
def test_golden_streams_go_on_with_entries_of_today(
    directory: str, place: Callable[[str, Path], Store], tmp_path: Path
) -> None:
    with closing(place(directory, tmp_path)) as store:
        server = BeliefServer(store=store)
        for summary in all_sessions(store):
            if not summary.terminated:
                server.eliminate(summary.session_id, "today", "1", ["c", "b", "amber"])
                assert_goes_on(store, summary.session_id)
        with closing(SubstrateServer(log=store, keeper_seconds=None)) as spaces:
            space = spaces.current(SPACE)
            made = Proposal("today", space.snapshot_id, Provenance(AGENT.id, "2026-01-01T00:00:00Z"), [StateDelta()])
            spaces.perform(SpaceCommand(SPACE, AGENT, Propose(made)))
            spaces.perform(SpaceCommand(SPACE, ROOT, SetMode(SpaceMode.ENFORCE)))
        verify_space(SPACE, store.read(STREAM), store.head(STREAM))
        assert versions(store.read(STREAM))[-2:] == [VERSION, VERSION]
        KeyRegistry(store).create(ActorKind.OPERATOR, "today", roles=[Role.OPERATOR])
        assert is_verified(store)


@pytest.mark.req("ARCH-3-GOLDEN-01", "ARCH-4-CHECKPOINT-01")
@pytest.mark.parametrize("directory", DIRECTORIES)
def test_a_golden_stream_has_state_digests_from_the_next_digest_point_on(directory: str, tmp_path: Path) -> None:
    store = import_export(directory, tmp_path)
    server = BeliefServer(store=store)
    session_id = max(all_sessions(store), key=lambda each: each.universe_size).session_id
    for number in range(1_001):
        server.eliminate(session_id, "today", str(number), [])
    assert_goes_on(store, session_id)
    entries = store.read(session_id)
    assert [seq for seq, entry in enumerate(entries) if b'"state":{' in entry.raw] == [1_000]
