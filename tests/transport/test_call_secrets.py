"""What of a call is for its agent, for its runner and for operators: what it says, and every hash of that.

Args are often few words of a known form. With their hash, a reader tries them one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from cmbs.api.operations import OPERATIONS
from cmbs.identity.kernel.scopes import Role
from cmbs.messages import ActorKind
from cmbs.substrate.kernel.events import hash_of_nonce
from tests.support.keyed_spaces import Served, serving_with_keys
from tests.support.space_client import ALLOW, ASK

SPACE = "/v1/spaces/vault"
PIN, ANSWER = "pin 1234", "door 5678"


class Vault(NamedTuple):
    """A space with one call that ran, and one that waits for approval; what names them, and what is secret of them."""

    served: Served
    ids: dict[str, str]
    secrets: set[str]

    def read_all(self, key: dict[str, str]) -> Iterator[tuple[str, Any]]:
        """What a holder of this key reads of the space, by operation."""
        for operation in OPERATIONS:
            if operation.method == "GET" and operation.path.startswith(("/v1/spaces", "/v1/inbox")):
                yield operation.operation_id, self.served.get(operation.path.format_map(self.ids), key)


@pytest.fixture
def vault() -> Iterator[Vault]:
    with serving_with_keys() as served:
        ops, planner = served.operator, served.planner
        policy = {"constraint.any": ALLOW, "constraint.risky": ASK}
        served.post("/v1/spaces", {"space_id": "vault", "policy": policy}, ops)
        for tool_id, executor in (("open", "gateway"), ("risky", "caller")):
            tool = {"tool_id": tool_id, "kind": "caller", "args_schema": {"type": "object"}, "executor": executor}
            assert served.post(f"{SPACE}/tools", tool, ops).json()["granted"]
        token = {"token_id": "t", "agent_id": "planner", "tool_ids": ["open", "risky"]}
        served.post(f"{SPACE}/capabilities", token, ops)
        ran = served.post(f"{SPACE}/calls", {"tool_id": "open", "args": {"pin": PIN}}, planner).json()
        gateway = served.key(ActorKind.EXECUTOR, "gateway", Role.EXECUTOR)
        [listed] = served.get(f"{SPACE}/calls", gateway).json()["calls"]
        claim = {"nonce_hash": hash_of_nonce("n"), "call_hash": listed["call_hash"]}
        assert served.post(f"{SPACE}/calls/{ran['call_id']}/claim", claim, gateway).json()["status"] == "running"
        outcome = {"status": "succeeded", "result": {"door": ANSWER}, "nonce": "n"}
        assert served.post(f"{SPACE}/calls/{ran['call_id']}/outcome", outcome, gateway).json()["status"] == "done"
        waits = served.post(f"{SPACE}/calls", {"tool_id": "risky", "args": {"pin": PIN}}, planner).json()
        execution = served.get(f"{SPACE}/executions/{ran['execution_id']}", ops).json()
        [approval] = served.get(f"{SPACE}/approvals", ops).json()["approvals"]
        hashes = {approval["call_hash"], approval["args_hash"], execution["args_hash"], execution["result_hash"]}
        hashes |= {ran["call_hash"], waits["call_hash"]}
        assert all(len(each) == 64 for each in hashes)
        ids = {
            "space_id": "vault",
            "call_id": ran["call_id"],
            "proposal_id": waits["proposal_id"],
            "approval_id": approval["approval_id"],
            "execution_id": ran["execution_id"],
            "tool_id": "open",
            "token_id": "t",
            "case_id": "none",
            "entry_id": "none",
            "change_id": "none",
        }
        yield Vault(served, ids, {PIN, ANSWER, *hashes})


@pytest.mark.req("CALL-HIDE-01")
@pytest.mark.parametrize(
    ("kind", "name", "granted"),
    [
        (ActorKind.AGENT, "mallory", [Role.AGENT]),
        (ActorKind.TOOL, "risky", [Role.READER]),
        (ActorKind.EXECUTOR, "other gateway", [Role.EXECUTOR]),
        # Of the agent's own name, and of another kind.
        (ActorKind.ENCODER, "planner", [Role.READER, "spaces:propose", "spaces:execute"]),
        (ActorKind.EXECUTOR, "planner", [Role.EXECUTOR]),
        (ActorKind.AGENT, "gateway", [Role.AGENT]),
    ],
)
def test_no_other_actor_reads_what_a_call_says_or_a_hash_to_check_a_guess_against(
    subtests: pytest.Subtests, vault: Vault, kind: ActorKind, name: str, granted: list[str]
) -> None:
    key = vault.served.key(kind, name, *granted)
    n_read = 0
    for operation_id, answer in vault.read_all(key):
        with subtests.test(operation=operation_id):
            assert [each for each in vault.secrets if each in answer.text] == []
        n_read += answer.status_code == 200
    assert n_read > 15
    guess = {"nonce_hash": hash_of_nonce("x"), "call_hash": "0" * 64}
    for path, body in (("claim", guess), ("outcome", {"status": "failed", "nonce": "x"}), ("withdraw", {})):
        answer = vault.served.post(f"{SPACE}/calls/{vault.ids['call_id']}/{path}", body, key)
        assert [each for each in vault.secrets if each in answer.text] == []


@pytest.mark.req("CALL-HIDE-01")
def test_its_agent_and_operators_read_all_of_it_and_its_runner_what_is_sent(vault: Vault) -> None:
    for key in (vault.served.planner, vault.served.operator):
        texts = "".join(answer.text for _, answer in vault.read_all(key))
        assert [each for each in vault.secrets if each not in texts] == []
    gateway = vault.served.key(ActorKind.EXECUTOR, "gateway", Role.EXECUTOR)
    call = vault.served.get(f"{SPACE}/calls/{vault.ids['call_id']}", gateway).json()
    assert (call["args"], call["result"], call["call_hash"] in vault.secrets) == ({"pin": PIN}, {"door": ANSWER}, True)


@pytest.mark.req("CALL-HIDE-01")
def test_an_actor_of_another_kind_neither_joins_nor_withdraws_what_an_agent_of_its_name_calls(vault: Vault) -> None:
    served = vault.served
    body = {"tool_id": "risky", "args": {"pin": PIN}, "idempotency_key": "mine", "joins": True}
    mine = served.post(f"{SPACE}/calls", body, served.planner).json()
    namesake = served.key(ActorKind.ENCODER, "planner", Role.READER, "spaces:propose")
    theirs = served.post(f"{SPACE}/calls", body, namesake).json()
    assert (theirs["status"], theirs["call_id"] != mine["call_id"], theirs.get("joined")) == ("denied", True, None)
    refused = served.post(f"{SPACE}/calls/{mine['call_id']}/withdraw", {}, namesake).json()
    assert (refused["status"], refused["refusal"]["code"]) == ("waiting", "NOT_AUTHORISED")
