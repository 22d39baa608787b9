"""What models read of a call: it is true of who runs it, says whether anything was done, and what to do next."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cmbs.api.spaces import CallResponse, CallWait
from cmbs.calls.sentences import (
    describe_call,
    describe_error,
    describe_joined,
    describe_not_made,
    describe_status,
    describe_unrecorded,
    describe_withdrawn,
)
from cmbs.errors import InvalidRequest
from cmbs.refusals import Refusal
from cmbs.substrate.kernel.words import CallStatus

REFUSAL = Refusal(code="NO_ALLOW", message="no rule allows it", next="ask an operator")
UNTIL = "2026-01-01T00:00:00.000000Z"
RUNNERS = {
    "server": "Then the server runs it.",
    "caller": "Then you claim it and run it: it does not run by itself.",
    "gateway": "Then executor `gateway` runs it.",
}


def build(status: str, executor: str = "caller", **parts: Any) -> CallResponse:
    """A call as the server shows it."""
    shown = {
        "call_id": "c-1-0",
        "status": status,
        "tool_id": "restart",
        "actor": {"kind": "agent", "id": "planner", "authenticated": True, "key_id": None},
        "case_id": None,
        "executor": executor,
        "call_hash": "0" * 64,
        "tool_hash": None,
        "capability_token_id": None,
        "idempotency_key": None,
        "reason_code": "ALLOWED",
        "proposal_id": "p",
        "candidate": 0,
        "seq": 1,
        "event_id": "e",
    }
    return msgspec.convert({**shown, **parts}, CallResponse)


def wait(kind: str, **parts: Any) -> dict[str, Any]:
    return {"waits_for": msgspec.to_builtins(msgspec.convert({"kind": kind, "until": UNTIL, **parts}, CallWait))}


@pytest.mark.req("CALL-WORDS-01")
@pytest.mark.parametrize("executor", RUNNERS)
def test_a_call_that_waits_says_for_what_and_who_runs_it_then(executor: str) -> None:
    asked = describe_call(build("waiting", executor, refusal=REFUSAL, **wait("approval", approval_ids=["a-1"])))
    assert asked.startswith(
        f"Not done yet: an operator has to approve the call (`a-1`), where operators sign in, until {UNTIL}. "
    )
    assert "`NO_ALLOW`: no rule allows it; ask an operator" in asked
    parked = describe_call(build("waiting", executor, **wait("change", keys=["fact.ready"])))
    assert "it waits for a change of fact.ready" in parked
    assert "what it depends on" in describe_call(build("waiting", executor))
    for text in (asked, parked):
        assert RUNNERS[executor] in text
        assert [each in text for each in RUNNERS.values()].count(True) == 1
        assert "Do not make the same call again" in text


@pytest.mark.req("CALL-WORDS-01")
def test_a_call_that_is_allowed_says_who_runs_it_and_how() -> None:
    own = describe_call(build("waiting", **wait("executor")))
    assert own == f"Allowed, and not run: claim call `c-1-0`, until {UNTIL}, and run it only if that succeeds."
    theirs = describe_call(build("waiting", "gateway", **wait("executor")))
    assert theirs == f"Allowed: executor `gateway` runs call `c-1-0`, until {UNTIL}. Wait for it."
    queued = describe_call(build("waiting", "server", **wait("turn")))
    assert queued == "Allowed: the server runs call `c-1-0` when it is its turn. Wait for it."
    assert describe_call(build("running"), may_run=True).startswith("Allowed, and yours to run: run it now, once")
    assert describe_call(build("running", "server")).startswith("The server runs this call now.")
    assert describe_call(build("running")).startswith("Unknown: this call was begun by another process of yours")
    assert "executor `gateway`" in describe_call(build("running", "gateway"))
    forged = describe_call(build("running", refusal=REFUSAL))
    assert forged.startswith("Refused: `NO_ALLOW`: no rule allows it; ask an operator\nUnknown: ")


@pytest.mark.req("CALL-WORDS-01")
def test_a_call_that_is_over_says_what_came_of_it() -> None:
    assert describe_call(build("done", result={"up": True})) == '{"up":true}'
    assert describe_call(build("done", result="up")) == "up"
    assert describe_status(build("done", result="up")) == "Done. Call `c-1-0`."
    assert describe_call(build("failed", error="it broke")) == "Failed: it broke. It is on record as call `c-1-0`."
    assert describe_call(build("failed", outcome="timed_out")).startswith("Failed: timed_out.")
    assert describe_call(build("failed")).startswith("Failed: its result was refused.")
    for status, why in (
        ("denied", "the call is not allowed"),
        ("withdrawn", "the call was withdrawn"),
        ("expired", "what the call waited for did not come in time"),
    ):
        told = describe_call(build(status, refusal=REFUSAL))
        expected = (
            f"Not done: {why}. Nothing was changed.\n`NO_ALLOW`: no rule allows it; ask an operator\nCall `c-1-0`."
        )
        assert told == expected
    assert "`ALLOWED`." in describe_call(build("denied"))
    assert describe_call(build("in_doubt")).startswith("Unknown: this call was started, and no outcome")


@pytest.mark.req("CALL-WORDS-01")
def test_every_status_has_a_sentence_that_names_the_call() -> None:
    for status in CallStatus:
        assert "`c-1-0`" in describe_status(build(status.value))


@pytest.mark.req("CALL-WORDS-01")
def test_what_was_not_made_joined_withdrawn_or_not_recorded_is_said() -> None:
    assert describe_joined(build("running")) == ""
    assert describe_joined(build("running", joined=True)) == (
        "This call was made before, as `c-1-0`; it was not made again."
    )
    for status in ("withdrawn", "denied", "expired"):
        assert describe_withdrawn(build(status), "no") == "Not done: no. Nothing was changed. Call `c-1-0`."
    assert describe_withdrawn(build("running"), "no").startswith("Unknown: ")
    assert describe_not_made("no") == "Not done: no. Nothing was changed."
    assert describe_unrecorded(build("running"), "it is away").startswith(
        "Unknown: the call was made, and its outcome is not on record (it is away). Read the state"
    )
    assert describe_error(InvalidRequest("bad", {"next": "better"})).endswith("bad; better. Nothing was changed.")
    assert "better" not in describe_error(InvalidRequest("bad"))
