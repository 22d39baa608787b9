"""Three lines to guard a function: a decorator and a policy file bring all the rest."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cmbs import guard
from cmbs.documents.findings import InvalidDocument
from cmbs.errors import RecordNotFound
from cmbs.messages import Actor, ActorKind, OntologyBundle
from cmbs.substrate.guard import close_guards, open_belief
from cmbs.substrate.guard.refusals import CallDeferred, CallDenied, CallFailed, GuardError
from cmbs.substrate.kernel.events import SetGovernance, SettlePolicy
from cmbs.substrate.kernel.requests import SpaceCommand

POLICY = """
format: 2
rules:
  - {name: restart, v: 1, effect: allow, subject: {tool_id: restart}}
  - {name: status, v: 1, effect: allow, subject: {tool_id: status}}
  - name: not_the_database
    v: 1
    effect: deny
    subject: {tool_id: restart}
    when: {op: eq, args: [$args.service, database]}
    reason: ask a person
"""
GATED = """
format: 2
rules:
  - name: restart
    v: 1
    effect: allow
    subject: {tool_id: restart}
    when: {op: eq, args: [$belief.incident.n_survivors, 1]}
    on_fail: defer
"""


@pytest.fixture(autouse=True)
def closed_afterwards() -> Iterator[None]:
    yield
    close_guards()


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "ops policy.yaml"
    file.write_text(POLICY, "utf-8")
    return file


@pytest.mark.req("GATES-GUARD-01")
def test_one_decorator_and_one_file_guard_a_function(policy: Path) -> None:
    ran: list[str] = []

    @guard(policy)
    def restart(service: str, grace: int = 5) -> str:
        """Restart a service."""
        ran.append(service)
        return f"{service} in {grace}"

    assert restart("api") == "api in 5"
    assert (restart.__name__, list(inspect.signature(restart).parameters)) == ("restart", ["service", "grace"])
    with pytest.raises(CallDenied, match=r"CONSTRAINT_DENIED: .*ask a person.*propose it with another `args.service`"):
        restart("database")
    assert ran == ["api"]
    space = restart.guard.server.current(restart.guard.space_id)
    assert (space.space_id, sorted(space.tools), list(space.capabilities)) == (
        "ops-policy",
        ["restart"],
        ["agent:restart"],
    )


@pytest.mark.req("GATES-GUARD-01")
def test_an_async_function_stays_one_and_functions_under_one_file_share_a_space(policy: Path) -> None:
    @guard(policy, writes=False)
    async def status(service: str) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"service": service}

    @guard(policy, tool_id="restart", agent="scout")
    def begin_again(service: str) -> str:
        return service

    assert asyncio.run(status("api")) == {"service": "api"}
    assert begin_again("api") == "api"
    assert status.guard.server is begin_again.guard.server
    assert sorted(status.guard.server.current("ops-policy").tools) == ["restart", "status"]


@pytest.mark.req("GATES-GUARD-02")
def test_the_same_call_with_the_same_arguments_has_its_effect_once(policy: Path) -> None:
    ran: list[str] = []

    @guard(policy)
    def restart(service: str) -> int:
        ran.append(service)
        return len(ran)

    @guard(policy, writes=False)
    def status(service: str) -> int:
        ran.append(service)
        return len(ran)

    assert [restart("api"), restart("api"), restart("web"), restart(service="api")] == [1, 1, 2, 1]
    assert restart.under_key("again")("api") == 3
    assert [status("api"), status("api")] == [4, 5]


@pytest.mark.req("GATES-GUARD-02")
def test_a_call_that_failed_may_be_tried_again(policy: Path) -> None:
    attempts: list[str] = []

    @guard(policy)
    def restart(service: str) -> int:
        attempts.append(service)
        if len(attempts) == 1:
            raise LookupError(service)
        return len(attempts)

    with pytest.raises(CallFailed, match="LookupError"):
        restart("api")
    assert (restart("api"), restart("api")) == (2, 2)


@pytest.mark.req("GATES-GUARD-01")
def test_a_gate_on_belief_says_what_is_left_to_do(tmp_path: Path) -> None:
    file = tmp_path / "gated.yaml"
    belief = open_belief(file)
    session_id = belief.declare_session(OntologyBundle("shop", "1", "graph", "1"), ["a", "b", "c"]).session_id
    file.write_text(GATED.replace("incident", session_id), "utf-8")

    @guard(file)
    def restart(service: str) -> str:
        return service

    with pytest.raises(CallDeferred, match=f"eliminate 2 more of the hypotheses in session `{session_id}`") as deferred:
        restart("api")
    refusal = deferred.value.refusal
    assert refusal is not None
    assert (refusal.field, refusal.found, refusal.accepted) == (f"$belief.{session_id}.n_survivors", "3", 1)
    belief.eliminate(session_id, "probe", "o1", ["a", "b"])
    assert restart.guard.wait(deferred.value.proposal_id, seconds=30) == "api"


@pytest.mark.req("GATES-GUARD-03")
def test_a_store_keeps_the_space_and_a_changed_file_is_in_force_at_the_next_start(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMBS_GUARD_STORE", f"sqlite:///{tmp_path / 'guard.db'}")

    def build() -> Any:
        @guard(policy)
        def restart(service: str) -> str:
            return service

        return restart

    assert build()("api") == "api"
    close_guards()
    restart = build()
    assert restart("web") == "web"
    assert len(restart.guard.server.current("ops-policy").proposals) == 2
    policy.write_text(POLICY.replace("database", "web"), "utf-8")
    close_guards()
    restart = build()
    with pytest.raises(CallDenied):
        restart("web")
    [change] = restart.guard.server.current("ops-policy").policy_changes.values()
    assert change.status == "applied"
    close_guards()
    with pytest.raises(CallDenied):
        build()("web")


def test_where_a_space_asks_for_two_operators_a_changed_file_waits_for_the_second(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CMBS_GUARD_STORE", f"sqlite:///{tmp_path / 'guard.db'}")

    def build() -> Any:
        @guard(policy)
        def restart(service: str) -> str:
            return service

        return restart

    server = build().guard.server
    root, lead = Actor(ActorKind.OPERATOR, "root"), Actor(ActorKind.OPERATOR, "lead")
    assert server.perform(SpaceCommand("ops-policy", root, SetGovernance(2))).event.result.granted
    policy.write_text(POLICY.replace("database", "web"), "utf-8")
    for _ in range(2):
        with pytest.raises(GuardError, match="a second operator has to authorise policy change `file-"):
            build()
    [change_id] = server.current("ops-policy").policy_changes
    assert server.perform(SpaceCommand("ops-policy", lead, SettlePolicy(change_id, True))).event.result.granted
    close_guards()
    with pytest.raises(CallDenied):
        build()("web")


def test_a_file_that_is_not_there_or_no_policy_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(GuardError, match="cannot be read"):
        guard(tmp_path / "none.yaml")(lambda: None)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("format: 2\nrules: 3\n", "utf-8")
    with pytest.raises(InvalidDocument):
        guard(wrong)(lambda: None)


def test_a_call_names_its_case(policy: Path) -> None:
    @guard(policy)
    def restart(service: str) -> str:
        return service

    case_id = open_belief(policy).declare_session(OntologyBundle("shop", "1", "graph", "1"), ["a", "b"]).session_id
    with pytest.raises(RecordNotFound):
        restart.in_case("incident-8")("api")
    assert restart.in_case(case_id)("api") == "api"
    # The same call of the same case is answered by the first.
    assert restart.in_case(case_id)("api") == "api"
    space = restart.guard.server.current("ops-policy")
    assert {record.message.proposal.case_id for record in space.proposals.values()} == {case_id}
    assert len(space.executions) == 1


@pytest.mark.slow
def test_a_program_with_guarded_functions_ends_by_itself(policy: Path) -> None:
    program = f"""
from cmbs import guard

@guard({json.dumps(str(policy))})
def restart(service: str) -> str:
    return service

print(restart("api"))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "api\n"), ended.stderr
