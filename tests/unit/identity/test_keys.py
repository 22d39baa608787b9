"""Keys: made, kept as a hash, revoked; a stream that verifies, and that no one forges."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cmbs.errors import InvalidRequest, LedgerCorrupt, LimitExceeded
from cmbs.identity.kernel.model import KEYS_STREAM, MAX_KEYS, Key, Keys, KeyStatus, read_claimed_actor, validate_key
from cmbs.identity.kernel.scopes import SCOPES_OF, Role, Scope
from cmbs.identity.kernel.stream import KeyKind, Stamp, verify_keys
from cmbs.identity.registry import KeyRegistry
from cmbs.identity.tokens import hash_of, holds_key, key_id_of, new_key, without_keys
from cmbs.ledger import StoredEntry
from cmbs.ledger.entry import hash_entry
from cmbs.messages import Actor, ActorKind
from cmbs.spi import AuditLog
from cmbs.stores import SQLiteStore
from cmbs.stores.memory import InMemoryStore
from cmbs.streams.server import StreamServer
from cmbs.testing import ManualClock, SequentialIds
from tests.support.subtests import for_each

NOW = "2026-05-01T00:00:00.000000Z"
LATER = "2026-06-01T00:00:00.000000Z"


@pytest.fixture(params=["memory", "sqlite"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AuditLog]:
    store = InMemoryStore() if request.param == "memory" else SQLiteStore(tmp_path / "keys.db")
    yield store
    store.close()


def registry_of(log: AuditLog, clock: ManualClock | None = None) -> KeyRegistry:
    return KeyRegistry(log, clock=clock or ManualClock(NOW), ids=SequentialIds())


# --- the text of a key ------------------------------------------------------------------------------------------------


@pytest.mark.req("ID-KEY-01")
def test_a_key_is_recognisable_and_no_two_are_alike() -> None:
    made = [new_key() for _ in range(50)]
    assert len({key.text for key in made} | {key.key_id for key in made}) == 100
    for key in made:
        assert re.fullmatch(r"cmbs_[0-9a-f]{16}_[0-9a-f]{64}", key.text)
        assert key_id_of(key.text) == key.key_id
        assert hash_of(key.text) == key.key_hash


@for_each("text", ["", "cmbs_", "cmbs_0123456789abcdef", "cmbs_0123456789abcdeF_" + "0" * 64, "x" * 10**6])
def test_what_is_no_key_has_no_id(text: str) -> None:
    assert key_id_of(text) is None


def test_a_key_is_found_wherever_it_hides_and_cut_down_to_its_id() -> None:
    key = new_key()
    text = f'{{"note":"use {key.text}, please"}}'.encode()
    assert holds_key(text)
    shown = without_keys(text)
    assert not holds_key(shown)
    assert key.text.encode() not in shown
    assert key.key_id.encode() in shown
    for harmless in (b"", b"cmbs_", b"cmbs_keys are listed by id"):
        assert not holds_key(harmless)
        assert without_keys(harmless) == harmless


# --- making and revoking ----------------------------------------------------------------------------------------------


@pytest.mark.req("ID-KEY-01")
def test_only_the_hash_of_a_key_is_stored(log: AuditLog) -> None:
    key, text = registry_of(log).create(ActorKind.AGENT, "planner", roles=[Role.AGENT])
    stored = b"".join(entry.raw for entry in log.read(KEYS_STREAM))
    assert key.key_hash.encode() in stored
    assert hash_of(text).hex() == key.key_hash
    assert text.rpartition("_")[2].encode() not in stored
    assert not holds_key(stored)


@pytest.mark.req("ID-KEY-02")
def test_a_key_carries_kind_id_roles_scopes_and_an_end(log: AuditLog) -> None:
    key, _ = registry_of(log).create(
        ActorKind.TOOL,
        "prober",
        roles=[Role.READER, Role.AGENT, Role.READER],
        scopes=[Scope.SPACES_CASES, "spaces:approve@shop"],
        expires_at=LATER,
        label="for the prober",
    )
    assert key.roles == [Role.AGENT, Role.READER]
    assert key.grants.everywhere == SCOPES_OF[Role.READER] | SCOPES_OF[Role.AGENT] | {Scope.SPACES_CASES}
    assert key.grants.patterns == {Scope.SPACES_APPROVE: ("shop",)}
    scopes = ("spaces:approve@shop", "spaces:cases")
    assert key.actor == Actor(
        ActorKind.TOOL, "prober", authenticated=True, key_id=key.key_id, roles=("agent", "reader"), scopes=scopes
    )
    record = registry_of(log).look().by_id[key.key_id]
    assert record.key == key
    assert [record.status(now) for now in (NOW, LATER)] == [KeyStatus.ACTIVE, KeyStatus.EXPIRED]


@pytest.mark.req("ID-KEY-03")
def test_a_revoked_key_stays_revoked_and_is_seen_by_others(log: AuditLog) -> None:
    mine, others = registry_of(log), registry_of(log)
    with pytest.raises(InvalidRequest, match="there is no such key"):
        mine.revoke("0" * 16)
    assert log.head(KEYS_STREAM) is None
    key, _ = mine.create(ActorKind.AGENT, "planner", roles=[Role.AGENT])
    assert others.look().by_id[key.key_id].status(NOW) is KeyStatus.ACTIVE
    mine.revoke(key.key_id, "left on a train")
    record = others.look().by_id[key.key_id]
    assert (record.status(NOW), record.revoked_reason) == (KeyStatus.REVOKED, "left on a train")
    with pytest.raises(InvalidRequest, match="was revoked before"):
        others.revoke(key.key_id)
    with pytest.raises(InvalidRequest, match="no such key"):
        others.revoke("0" * 16)


def test_two_who_make_keys_at_once_both_have_one(log: AuditLog) -> None:
    mine, others = registry_of(log), registry_of(log)
    mine.look()
    others.look()
    made = [maker.create(ActorKind.AGENT, "x", roles=[Role.AGENT]).key for maker in (mine, others, mine)]
    assert list(registry_of(log).look().by_id) == [key.key_id for key in made]


def test_a_look_is_spared_while_the_last_one_is_young(log: AuditLog) -> None:
    moments = iter([0.0, 0.0, 10.0, 10.3, 10.3, 11.0, 11.0])
    watching = KeyRegistry(log, elapsed=lambda: next(moments))
    assert watching.look(0.5).by_id == {}
    registry_of(log).create(ActorKind.AGENT, "x", roles=[Role.AGENT])
    assert watching.look(20).by_id == {}
    assert watching.look(0.5) is not None
    assert len(watching.look(0.5).by_id) == 1


@pytest.mark.req("ID-KEY-04")
@for_each(
    ("options", "message"),
    [
        ({"kind": ActorKind.POLICY_ENGINE}, "holds no key"),
        ({"actor_id": ""}, "`id` must not be empty"),
        ({"actor_id": "a\x1b[2J"}, "cannot be printed"),
        ({"label": "two\nlines"}, "cannot be printed"),
        ({"roles": []}, "needs a role or a scope"),
        ({"expires_at": "2020-01-01T00:00:00.000000Z"}, "has passed"),
        ({"expires_at": "tomorrow"}, "must be a moment"),
    ],
)
def test_a_key_that_makes_no_sense_is_refused(options: dict[str, object], message: str) -> None:
    log = InMemoryStore()
    wanted: dict[str, object] = {"kind": ActorKind.AGENT, "actor_id": "x", "roles": [Role.AGENT], **options}
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        registry_of(log).create(**wanted)  # type: ignore[arg-type]
    assert log.head(KEYS_STREAM) is None


def test_names_and_numbers_of_keys_are_bounded() -> None:
    with pytest.raises(LimitExceeded, match="id_length"):
        registry_of(InMemoryStore()).create(ActorKind.AGENT, "x" * 257, roles=[Role.AGENT])
    key = Key("f" * 16, "0" * 64, ActorKind.AGENT, "x", [Role.AGENT])
    full = Keys({f"{number:016x}": None for number in range(MAX_KEYS)})  # type: ignore[misc]
    with pytest.raises(LimitExceeded, match="keys"):
        validate_key(key, full)
    with pytest.raises(InvalidRequest, match="already"):
        validate_key(msgspec.structs.replace(key, key_id="0" * 16), full)


# --- the stream -------------------------------------------------------------------------------------------------------


def entries_of(log: AuditLog) -> list[StoredEntry]:
    registry = registry_of(log)
    first = registry.create(ActorKind.AGENT, "planner", roles=[Role.AGENT]).key
    registry.create(ActorKind.OPERATOR, "root", roles=[Role.OPERATOR])
    registry.revoke(first.key_id, "old")
    return log.read(KEYS_STREAM)


@pytest.mark.req("ID-KEY-05")
def test_the_stream_of_keys_is_a_chain_that_decides_to_itself(log: AuditLog) -> None:
    entries = entries_of(log)
    assert [entry.event_hash for entry in entries] == [hash_entry(entry.raw) for entry in entries]
    assert verify_keys(entries, log.head(KEYS_STREAM)) == registry_of(log).look()


@pytest.mark.req("ID-KEY-05")
def test_the_stream_of_keys_can_be_adopted_byte_for_byte(log: AuditLog) -> None:
    entries, copy = entries_of(log), InMemoryStore()
    adopting = StreamServer(copy, KeyKind(lambda by: Stamp(by, "unused", NOW)), capacity=1)
    assert adopting.adopt(KEYS_STREAM, entries).keys == registry_of(log).look()
    assert copy.read(KEYS_STREAM) == entries


def resealed(raw: bytes) -> StoredEntry:
    return StoredEntry(raw, hash_entry(raw))


FORGERIES = [
    ("another scope", 0, lambda raw: raw.replace(b'"roles":["agent"]', b'"roles":["operator"]')),
    ("another hash", 1, lambda raw: re.sub(rb'"key_hash":"..', b'"key_hash":"zz', raw)),
    ("an id that is none", 0, lambda raw: re.sub(rb'"key_id":"..', b'"key_id":"ZZ', raw)),
    ("an end that is none", 1, lambda raw: raw.replace(b'"expires_at":null', b'"expires_at":"x"')),
    ("a time that is none", 1, lambda raw: raw.replace(b'"ts":"2026', b'"ts":"year')),
    ("an unknown verb", 2, lambda raw: raw.replace(b"REVOKE_KEY", b"REVIVE_KEY")),
    ("an unknown field", 2, lambda raw: raw.replace(b'"verb":', b'"v":3,"verb":')),
    ("spaces", 2, lambda raw: raw.replace(b'"verb":', b'"verb": ')),
    ("a revocation of no key", 2, lambda raw: re.sub(rb'"key_id":"[0-9a-f]{16}', b'"key_id":"' + b"0" * 16, raw)),
    ("no format", 2, lambda raw: raw.replace(b'"format":"cmbs/1",', b"")),
    ("another format", 2, lambda raw: raw.replace(b'"format":"cmbs/1"', b'"format":"cmbs/2"')),
    ("another place", 2, lambda raw: raw.replace(b'"seq":2', b'"seq":3')),
]


@pytest.mark.req("ID-KEY-05")
@for_each(("place", "forged"), [each[1:] for each in FORGERIES], ids=[each[0] for each in FORGERIES])
def test_a_forged_stream_is_refused_whole(place: int, forged: object) -> None:
    entries = entries_of(InMemoryStore())
    spoilt = forged(entries[place].raw)  # type: ignore[operator]
    assert spoilt != entries[place].raw
    # An entry of another content may be good in itself; then what follows no longer continues it.
    with pytest.raises(LedgerCorrupt) as caught:
        verify_keys([*entries[:place], resealed(spoilt), *entries[place + 1 :]], None)
    assert caught.value.stream_id == KEYS_STREAM


def test_a_stream_that_was_cut_short_or_has_a_gap_is_refused(log: AuditLog) -> None:
    entries = entries_of(log)
    assert len(verify_keys(entries, log.head(KEYS_STREAM)).by_id) == 2
    assert verify_keys([], None) == Keys()
    for cut in (entries[:-1], []):
        with pytest.raises(LedgerCorrupt, match="not in the recorded head"):
            verify_keys(cut, log.head(KEYS_STREAM))
    for gap in (entries[1:], [entries[0], *entries[2:]]):
        with pytest.raises(LedgerCorrupt):
            verify_keys(gap, None)


# --- who a caller without a key says that it is -----------------------------------------------------------------------


@pytest.mark.req("ID-OPEN-02")
def test_a_caller_without_a_key_is_who_it_says_and_unauthenticated() -> None:
    assert read_claimed_actor("operator:alice") == Actor(ActorKind.OPERATOR, "alice")
    assert read_claimed_actor("tool:a:b").id == "a:b"
    assert not read_claimed_actor("operator:alice").authenticated


@for_each("said", ["", "alice", "agent:", "policy_engine:x", "root:x", "agent:\x07", "agent:" + "x" * 300])
def test_a_caller_cannot_be_just_any_actor(said: str) -> None:
    with pytest.raises((InvalidRequest, LimitExceeded)):
        read_claimed_actor(said)
