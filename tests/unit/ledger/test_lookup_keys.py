"""Which keys an entry of a space has: what a log keeps to find it again."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest

from cmbs.ledger.lookup_keys import Lookup, lookup_key, lookup_keys
from tests.support.subtests import for_each

INTENT = {"tool_id": "t", "idempotency_key": "k"}


def entry(verb: str, payload: Any = None, outcome: Any = None, **parts: Any) -> bytes:
    content = {"event_id": "e", "verb": verb, "payload": payload or {}, "outcome": outcome or {}, "seq": 7}
    return json.dumps(content | parts).encode()


@pytest.mark.req("SS01-SCALE-02")
@for_each(
    ("raw", "expected"),
    [
        (entry("SET_MODE"), []),
        (entry("SET_MODE", idempotency_key="r"), [(Lookup.REQUEST, "r")]),
        (entry("PROPOSE", outcome={"statuses": {"p": "denied"}}), [(Lookup.PROPOSAL, "p")]),
        (
            entry("WAKE", outcome={"statuses": {"p": "running"}, "intents": [INTENT, {"tool_id": "u"}]}),
            [(Lookup.PROPOSAL, "p"), (Lookup.CALL, "t", "k")],
        ),
        (
            entry("START", {"execution_id": "x"}, {"intents": [{**INTENT, "attempt": 2}]}),
            [(Lookup.EXECUTION, "x")],
        ),
        (entry("MARK_IN_DOUBT", {"execution_id": "x"}), [(Lookup.EXECUTION, "x")]),
        (entry("RECORD_OUTCOME", {"execution_id": "x"}), [(Lookup.EXECUTION, "x")]),
        (entry("RECORD_OUTCOME", {"execution_id": "x"}, {"granted": False}), []),
        (entry("APPROVE", {"approval_id": "a"}), [(Lookup.APPROVAL, "a")]),
        (entry("REJECT", {"approval_id": "a"}), [(Lookup.APPROVAL, "a")]),
        (entry("EXPIRE", {"of": "approval", "id": "a"}), [(Lookup.APPROVAL, "a")]),
        (entry("EXPIRE", {"of": "memory", "id": "a"}), []),
        (entry("REGISTER_TOOL", {"tool": {"tool_id": "t"}}), [(Lookup.TOOL, "t")]),
    ],
)
def test_an_entry_is_found_by_its_event_and_by_all_that_it_is_about(
    raw: bytes, expected: list[tuple[Any, ...]]
) -> None:
    keys = {lookup_key(Lookup.EVENT, "e"), *(lookup_key(*parts) for parts in expected)}
    assert lookup_keys(raw) == sorted(keys)


@for_each("raw", [b"", b"[]", b"\xff", entry("START", {"execution_id": 7}), entry("PROPOSE", outcome=[1])])
def test_bytes_that_are_no_entry_have_no_keys(raw: bytes) -> None:
    assert lookup_keys(raw) == []


def test_keys_are_numbers_that_every_database_has_a_type_for() -> None:
    keys = {lookup_key(kind, name) for kind in Lookup for name in ("", "a", "\x00", "\ud800", "é" * 999)}
    assert len(keys) == len(Lookup) * 5
    assert all(-(2**63) <= key < 2**63 for key in keys)


def test_what_is_hashed_is_as_documented() -> None:
    digest = sha256(b"cmbs/1/lookup\0" + b"call\0tool\0key").digest()
    assert lookup_key(Lookup.CALL, "tool", "key") == int.from_bytes(digest[:8], "big", signed=True)
