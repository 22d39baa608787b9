"""Settings of webhooks, filters, and what is sent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cmbs.errors import InvalidRequest, LimitExceeded
from cmbs.ledger import StoredEntry, hash_entry
from cmbs.webhooks.kernel import model
from cmbs.webhooks.kernel.model import EventType, Filters, Settings, Subject, is_wanted
from cmbs.webhooks.kernel.payload import note_corruption, note_entry, write_body
from tests.support.subtests import for_each

NOW = "2026-01-01T00:00:00.000000Z"
SETTINGS = Settings("pager", "https://alerts.example/cmbs", tuple(each.value for each in model.SUBSCRIBABLE))


@for_each(
    "change",
    [
        {"webhook_id": ""},
        {"webhook_id": "a/b"},
        {"webhook_id": "a" * 129},
        {"events": ()},
        {"events": ("webhook.test",)},
        {"events": ("nothing",)},
        {"url": "ftp://alerts.example/"},
        {"url": "alerts.example"},
        {"url": "https:///cmbs"},
        {"url": "https://user@alerts.example/"},
        {"url": "https://:word@alerts.example/"},
        {"url": "https://alerts.example/#part"},
        {"url": "https://alerts.example/ä"},
        {"url": "https://alerts.example\\@thief.example/"},
        {"url": "https://alerts.example:0/"},
        {"url": "https://alerts.example:99999/"},
        {"url": "https://[::1/"},
        {"url": f"https://alerts.example/{'a' * 2048}"},
    ],
)
def test_settings_that_make_no_sense_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        model.validate_settings(msgspec.structs.replace(SETTINGS, **change))


@for_each(
    "change",
    [
        {"description": "a" * 501},
        {"filters": Filters(session_ids=("a" * 513,))},
        {"filters": Filters(space_ids=tuple(map(str, range(101))))},
        {"filters": Filters(labels={"team": "a" * 513})},
    ],
)
def test_settings_that_are_too_large_name_the_limit(change: dict[str, Any]) -> None:
    with pytest.raises(LimitExceeded):
        model.validate_settings(msgspec.structs.replace(SETTINGS, **change))


def test_settings_are_recorded_in_one_form() -> None:
    asked = Settings(
        "a", "https://a.example", ("ledger.corrupt", "gate.opened", "gate.opened"), Filters(("b", "a", "b"))
    )
    assert model.validate_settings(asked).events == ("gate.opened", "ledger.corrupt")
    assert model.validate_settings(asked).filters.session_ids == ("a", "b")


@pytest.mark.req("WEBHOOK-04")
@for_each(
    ("filters", "subject", "wanted"),
    [
        (Filters(), Subject("s", None, {}), True),
        (Filters(("s",)), Subject("s", None, {}), True),
        (Filters(("s",)), Subject("other", None, {}), False),
        (Filters(("s",)), Subject(None, "shop", {}), False),
        (Filters(("s",), ("shop",)), Subject(None, "shop", {}), True),
        (Filters(("s",)), Subject("s", "shop", {}), True),
        (Filters(labels={"team": "a"}), Subject("s", None, {"team": "a", "severity": "1"}), True),
        (Filters(labels={"team": "a"}), Subject("s", None, {"team": "b"}), False),
        (Filters(labels={"team": "a"}), Subject("s", None, None), True),
    ],
)
def test_filters_leave_out_what_is_not_wanted(filters: Filters, subject: Subject, wanted: bool) -> None:
    settings = msgspec.structs.replace(SETTINGS, events=("gate.opened",), filters=filters)
    assert is_wanted(settings, EventType.GATE_OPENED, subject) is wanted
    assert not is_wanted(settings, EventType.SESSION_CONCLUDED, subject)


@pytest.mark.req("WEBHOOK-04")
def test_a_body_names_the_entry_and_stays_small() -> None:
    raw = msgspec.json.encode({"event_id": "event-0", "seq": 0, "ts": NOW})
    stored = StoredEntry(raw, hash_entry(raw))
    note = note_entry(EventType.APPROVAL_WANTED, "space:a/b", stored, {"proposal_id": "p"}, "/proposals/p")
    body = msgspec.json.decode(write_body(note))
    assert body["type"] == "approval.wanted"
    assert body["timestamp"] == NOW
    assert body["data"] == {
        "space_id": "a/b",
        "seq": 0,
        "event_id": "event-0",
        "event_hash": stored.event_hash.hex(),
        "path": "/v1/spaces/a%2Fb/proposals/p",
        "proof_path": "/v1/spaces/a%2Fb/proofs/inclusion?at=0",
        "proposal_id": "p",
    }
    long = note_entry(EventType.SESSION_CONCLUDED, "s", stored, {"conclusion_id": "a" * model.MAX_DATA_BYTES})
    assert msgspec.json.decode(long.data)["truncated"] is True
    assert set(msgspec.json.decode(long.data)) == {"session_id", "seq", "event_id", "event_hash", "truncated"}


def test_damage_names_the_stream_as_routes_do() -> None:
    told = [
        msgspec.json.decode(note_corruption(each, 3, "bad", NOW).data) for each in ("s", "space:a", "identity:keys")
    ]
    assert [sorted(each.keys() - {"stream_id", "seq", "reason"}) for each in told] == [["session_id"], ["space_id"], []]
