"""The golden logs verify, can be moved, and go on; and the types have the fingerprint that is written down."""

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
from cmbs.ledger import verify_chain
from cmbs.ledger.format import FINGERPRINT
from cmbs.messages import ActorKind
from cmbs.stores import InMemoryStore, Store, open_store
from cmbs.substrate.kernel.events import Mode as SpaceMode
from cmbs.substrate.kernel.events import Propose, SetMode, SpaceVerb
from cmbs.substrate.kernel.model import Proposal, Provenance, ReasonCode, StateDelta
from cmbs.substrate.kernel.replay import verify_space
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.server import SubstrateServer
from tests.golden.fingerprint import compute_fingerprint
from tests.golden.play import GOLDEN
from tests.support.spaces import AGENT, ROOT, SPACE, STREAM

# A policy that is validated whole never has them.
UNREACHABLE = {ReasonCode.MALFORMED_CONSTRAINT, ReasonCode.MALFORMED_POLICY}


def read_lines(name: str = "export.jsonl") -> list[bytes]:
    return (GOLDEN / name).read_bytes().splitlines()


def contents() -> Iterator[dict[str, object]]:
    for line in (*read_lines(), *read_lines("keys.jsonl")):
        content = json.loads(line)
        if "entry" in content:
            yield content["entry"]


def open_database(tmp_path: Path) -> Store:
    """The store as it was left."""
    path = tmp_path / "store.db"
    path.write_bytes(gzip.decompress((GOLDEN / "store.db.gz").read_bytes()))
    return open_store(f"sqlite:///{path}")


def import_export(_: Path) -> Store:
    """An empty store that took the export in."""
    store = InMemoryStore()
    server = BeliefServer(store=store)
    with closing(SubstrateServer(log=store, keeper_seconds=None)) as spaces:
        assert list(import_lines(server, read_lines(), spaces.import_space))
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


@pytest.mark.req("ARCH-3-GOLDEN-01")
@pytest.mark.parametrize("place", [open_database, import_export])
def test_a_golden_log_verifies(place: Callable[[Path], Store], tmp_path: Path) -> None:
    with closing(place(tmp_path)) as store:
        assert is_verified(store)
        names = [*(each.session_id for each in all_sessions(store)), STREAM]
        assert list(export_lines(store, names)) == read_lines()


@pytest.mark.req("ARCH-3-GOLDEN-01")
def test_a_golden_export_is_the_whole_of_what_the_database_holds(tmp_path: Path) -> None:
    with closing(open_database(tmp_path)) as store:
        keys = read_exported(read_lines("keys.jsonl"), KEYS_STREAM)
        assert store.read(KEYS_STREAM) == keys
    assert {content["format"] for content in contents()} == {"cmbs/1"}


def test_golden_logs_hold_every_verb_and_every_reason() -> None:
    everything = list(contents())
    assert {content["verb"] for content in everything} >= set(SpaceVerb)
    text = json.dumps(everything)
    expected = set(ReasonCode) - UNREACHABLE
    assert [reason for reason in expected if f'"{reason}"' not in text] == []


def assert_goes_on(store: Store, session_id: str) -> None:
    entries = store.read(session_id)
    verify_session(session_id, entries, store.head(session_id))
    verify_chain(session_id, entries, store.head(session_id))


@pytest.mark.req("ARCH-3-GOLDEN-01")
@pytest.mark.parametrize("place", [open_database, import_export])
def test_golden_streams_go_on_with_entries_of_today(place: Callable[[Path], Store], tmp_path: Path) -> None:
    with closing(place(tmp_path)) as store:
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
        KeyRegistry(store).create(ActorKind.OPERATOR, "today", roles=[Role.OPERATOR])
        assert is_verified(store)


@pytest.mark.req("ARCH-3-GOLDEN-01", "ARCH-4-CHECKPOINT-01")
def test_a_golden_stream_has_state_digests_from_the_next_digest_point_on(tmp_path: Path) -> None:
    store = import_export(tmp_path)
    server = BeliefServer(store=store)
    session_id = max(all_sessions(store), key=lambda each: each.universe_size).session_id
    for number in range(1_001):
        server.eliminate(session_id, "today", str(number), [])
    assert_goes_on(store, session_id)
    entries = store.read(session_id)
    assert [seq for seq, entry in enumerate(entries) if b'"state":"' in entry.raw] == [1_000]


@pytest.mark.req("ARCH-3-FORMAT-01")
def test_the_types_of_entries_and_states_have_the_fingerprint_that_is_written_down() -> None:
    assert compute_fingerprint() == FINGERPRINT, "the format has changed: run `make golden` and commit the diff"
