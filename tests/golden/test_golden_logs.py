"""The golden logs verify, can be moved, and go on; and the types have the fingerprint that is written down."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from enum import StrEnum
from pathlib import Path

import pytest

from cmbs.audit.fsck import check_database, check_stream
from cmbs.audit.plain_rows import all_sessions, all_streams
from cmbs.audit.transfer import export_lines, import_lines, read_exported
from cmbs.belief.kernel.events import VERB_OF
from cmbs.belief.kernel.kind import BeliefFolding
from cmbs.belief.kernel.kit_stream import KitVerb
from cmbs.belief.kernel.names import NameVerb
from cmbs.belief.kernel.replay import verify_session
from cmbs.belief.server import BeliefServer
from cmbs.identity.kernel.scopes import Role
from cmbs.identity.kernel.stream import KeyVerb
from cmbs.identity.registry import KeyRegistry
from cmbs.ledger import state_digest, verify_chain
from cmbs.ledger.format import FINGERPRINT
from cmbs.messages import ActorKind
from cmbs.spi.audit_log import (
    HEADS_PREFIX,
    IDENTITY_PREFIX,
    KIT_PREFIX,
    NAMES_PREFIX,
    NAMES_STREAM,
    RESERVED_PREFIXES,
    SPACE_PREFIX,
    WEBHOOK_PREFIX,
)
from cmbs.stores import InMemoryStore, Store, open_store
from cmbs.substrate.kernel.events import Mode as SpaceMode
from cmbs.substrate.kernel.events import Propose, SetMode, SpaceVerb
from cmbs.substrate.kernel.kind import SpaceFolding
from cmbs.substrate.kernel.model import Proposal, Provenance, ReasonCode, StateDelta
from cmbs.substrate.kernel.replay import verify_space
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.server import SubstrateServer
from cmbs.transparency.kernel.records import HeadsVerb
from cmbs.webhooks.kernel.events import WebhookVerb
from tests.golden.fingerprint import compute_fingerprint
from tests.golden.play import GOLDEN
from tests.support.spaces import AGENT, ROOT, SPACE, STREAM

# What is never in an export that is moved.
KEPT = {"keys.jsonl": IDENTITY_PREFIX, "webhooks.jsonl": WEBHOOK_PREFIX, "heads.jsonl": HEADS_PREFIX}
# The verbs of each kind of stream but sessions, which have no prefix.
VERBS: dict[str, type[StrEnum]] = {
    SPACE_PREFIX: SpaceVerb,
    IDENTITY_PREFIX: KeyVerb,
    HEADS_PREFIX: HeadsVerb,
    KIT_PREFIX: KitVerb,
    WEBHOOK_PREFIX: WebhookVerb,
    NAMES_PREFIX: NameVerb,
}
# A policy that is validated whole never has them.
UNREACHABLE = {ReasonCode.MALFORMED_CONSTRAINT, ReasonCode.MALFORMED_POLICY}


def read_lines(name: str = "export.jsonl") -> list[bytes]:
    return (GOLDEN / name).read_bytes().splitlines()


def contents() -> Iterator[dict[str, object]]:
    for line in (line for name in ("export.jsonl", *KEPT) for line in read_lines(name)):
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
    take_in(store, read_lines())
    return store


def take_in(store: Store, lines: Iterable[bytes]) -> None:
    with closing(SubstrateServer(log=store, keeper_seconds=None)) as spaces:
        assert list(import_lines(BeliefServer(store=store), lines, spaces.import_space))


def list_moved(store: Store) -> list[str]:
    """The streams of an export, in its order."""
    return [*all_streams(store, KIT_PREFIX), *(each.session_id for each in all_sessions(store)), STREAM, NAMES_STREAM]


def is_verified(store: Store) -> bool:
    """Whether every stream verifies, and all that is derived from it fits."""
    others = [stream_id for prefix in RESERVED_PREFIXES for stream_id in all_streams(store, prefix)]
    reports = [check_stream(store, each) for each in (*(each.session_id for each in all_sessions(store)), *others)]
    assert [what for report in reports for what in report.findings] == []
    assert not check_stream(store, STREAM).summary.startswith("0 belief readings")
    return len(reports) > len(others) + 1


@pytest.mark.req("ARCH-3-GOLDEN-01")
def test_a_golden_export_verifies_and_gives_itself(tmp_path: Path) -> None:
    with closing(import_export(tmp_path)) as store:
        assert is_verified(store)
        assert list(export_lines(store, list_moved(store))) == read_lines()


@pytest.mark.slow
@pytest.mark.req("ARCH-3-GOLDEN-01")
def test_a_golden_database_verifies_and_can_be_moved(tmp_path: Path) -> None:
    with closing(open_database(tmp_path)) as store, closing(InMemoryStore()) as target:
        assert is_verified(store)
        assert check_database(store) == []
        lines = list(export_lines(store, list_moved(store)))
        take_in(target, lines)
        assert is_verified(target)
        assert list(export_lines(target, list_moved(target))) == lines


@pytest.mark.req("ARCH-3-GOLDEN-01")
def test_a_golden_database_holds_all_that_was_exported(tmp_path: Path) -> None:
    with closing(open_database(tmp_path)) as store:
        for stream_id in list_moved(store):
            exported = read_exported(read_lines(), stream_id)
            assert exported
            assert store.read(stream_id)[: len(exported)] == exported
        for name, prefix in KEPT.items():
            assert list(export_lines(store, all_streams(store, prefix))) == read_lines(name)
    assert {content["format"] for content in contents()} == {"cmbs/1"}


@pytest.mark.req("ARCH-3-GOLDEN-01", "ARCH-4-CHECKPOINT-01")
def test_a_golden_session_and_a_golden_space_have_a_state_digest_and_the_checkpoint_that_it_is_of(
    tmp_path: Path,
) -> None:
    with closing(open_database(tmp_path)) as store:
        long = [each for each in list_moved(store) if len(store.read(each)) > 1_000]
        assert [each == STREAM for each in long] == [False, True]
        for stream_id in long:
            entries = store.read(stream_id)
            assert [seq for seq, entry in enumerate(entries) if b'"state":"' in entry.raw] == [1_000]
            checkpoint = store.checkpoint(stream_id)
            assert checkpoint is not None
            folding = SpaceFolding() if stream_id == STREAM else BeliefFolding()
            state = folding.thaw(stream_id, checkpoint[1], entries[0], entries[1_000])
            assert state is not None
            assert state.head.seq == 999


def test_golden_logs_hold_every_kind_of_stream_with_all_its_verbs() -> None:
    assert VERBS.keys() == set(RESERVED_PREFIXES)
    found: dict[str, set[object]] = {}
    for content in contents():
        stream_id = str(content["stream_id"])
        prefix = next((each for each in RESERVED_PREFIXES if stream_id.startswith(each)), "")
        found.setdefault(prefix, set()).add(content["verb"])
    sessions = {verb.value for verb in VERB_OF.values()}
    assert found == {"": sessions, **{prefix: {verb.value for verb in verbs} for prefix, verbs in VERBS.items()}}


def test_golden_logs_hold_every_reason() -> None:
    text = json.dumps(list(contents()))
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
                if server.current_session(summary.session_id).kit_hash is None:
                    server.eliminate(summary.session_id, "today", "1", ["c", "b", "amber"])
                else:
                    server.observe(summary.session_id, "toss", "heads", "today")
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
@pytest.mark.parametrize("points", ["_POINTS", "_EVEN_POINTS"])
def test_where_the_state_digests_of_a_stream_are_is_part_of_the_fingerprint(
    monkeypatch: pytest.MonkeyPatch, points: str
) -> None:
    before = compute_fingerprint()
    monkeypatch.setattr(state_digest, points, range(1_000, 2_000_000, 999))
    assert compute_fingerprint() != before


@pytest.mark.req("ARCH-3-FORMAT-01")
def test_the_types_of_entries_and_states_have_the_fingerprint_that_is_written_down() -> None:
    assert compute_fingerprint() == FINGERPRINT, "the format has changed: run `make golden` and commit the diff"
