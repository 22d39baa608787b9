"""A random history of calls by several actors through two servers over one log, and what must hold of it.

The history keeps what it saw itself: which claims it won, what it ran then, what operators had approved and taken away.
That is compared with what the servers say on the way, and with the ledger in the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any

from cmbs.audit.fsck import check_database, check_space
from cmbs.belief.server import BeliefServer
from cmbs.http import BeliefApp
from cmbs.http.service import Service
from cmbs.stores import open_store
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.kernel.checkpoint import freeze_space
from cmbs.substrate.kernel.events import OutcomeStatus, hash_of_nonce
from cmbs.substrate.kernel.limits import SpaceLimits
from cmbs.substrate.kernel.model import Tool
from cmbs.substrate.kernel.replay import read_space_event, verify_space
from cmbs.substrate.server import SubstrateServer
from cmbs.substrate.tools.runner import CallContext, OutcomeUnknown, ToolReply
from cmbs.testing import ManualClock, SequentialIds
from tests.support.in_process import client_of
from tests.support.space_client import ALLOW, ASK, LEAD, OPS, OTHER, PLANNER, SpaceClient
from tests.support.spaces import eventually, raw

Json = dict[str, Any]
GATEWAY, STRANGER = "executor:gateway", "executor:stranger"
AGENTS = (PLANNER, OTHER)
EVERYONE = (*AGENTS, GATEWAY, STRANGER, OPS)
# Who runs each tool.
TOOLS = {"own": "caller", "risky": "caller", "remote": "gateway", "served": "server"}
# Of calls of the server with this argument, the outcome is lost.
LOST = 2
ENDED = {"done", "failed", "denied", "withdrawn", "expired"}
DENY = '{{"v":1,"effect":"deny","subject":{{"tool_id":"{}"}}}}'
ONTOLOGY = {
    "hypothesis_space_id": "space",
    "hypothesis_version": "1",
    "causal_graph_ref": "none",
    "causal_graph_version": "1",
}


class EffectRunner:
    """Runs tools of the server: each run is an effect, and of some the outcome is lost."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self._lock = Lock()

    def run(self, tool: Tool, args: bytes, call: CallContext) -> ToolReply:
        with self._lock:
            self.effects.append(call.execution_id)
        if f'"n":{LOST}'.encode() in args:
            raise OutcomeUnknown("the line went dead")
        return ToolReply(OutcomeStatus.SUCCEEDED, raw({"ran": call.execution_id}), None, 1, 10)

    def close(self) -> None:
        pass


@dataclass
class Made:
    """A call that the history made: by whom, of what, and what it did with it."""

    call_id: str
    maker: str
    tool_id: str
    n: int
    case_id: str | None
    # The nonce of the claim that was won; empty for one that began with its proposal.
    nonce: str | None = None
    n_effects: int = 0
    ended: str | None = None

    @property
    def runner(self) -> str | None:
        """Who may claim and report it; None for one that the server runs."""
        return {"caller": self.maker, "gateway": GATEWAY}.get(TOOLS[self.tool_id])

    @property
    def approval_key(self) -> tuple[str, int, str | None]:
        """What one approval of it is good for: it may cover another call that is the same."""
        return self.maker, self.n, self.case_id


@dataclass
class Permissions:
    """What operators have taken away, as far as calls depend on it."""

    retired: set[str] = field(default_factory=set)
    forbidden: set[str] = field(default_factory=set)
    revoked: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)
    approved: Counter[tuple[str, int, str | None]] = field(default_factory=Counter)


class CallHistory:
    """One history, from a seed."""

    def __init__(self, seed: int, spaces: Sequence[SpaceClient], servers: Sequence[SubstrateServer], log: Any) -> None:
        self.random = Random(seed)
        self.steps: list[str] = []
        self.calls: dict[str, Made] = {}
        self._spaces = spaces
        self._servers = servers
        self._log = log
        self._clock: ManualClock = servers[0]._clock  # type: ignore[assignment]
        self._numbers = count()
        self._permissions = Permissions()
        self._tokens = {agent: f"token of {agent}" for agent in AGENTS}
        self._cases: list[str] = []

    @property
    def space(self) -> SpaceClient:
        """One of the servers."""
        return self.random.choice(self._spaces)

    def send(
        self, path: str, body: Json, who: str, space: SpaceClient | None = None, executor: str | None = None
    ) -> Json | None:
        """A write; None where it was refused with an error, which is never the fault of the server."""
        headers = {} if executor is None else {"cmbs_executor": executor}
        answer = (space or self.space).post(path, body, who, **headers)
        self.steps.append(f"{who} {path} {body} -> {answer.status_code} {answer.text[:160]}")
        assert answer.status_code < 500, answer.text
        found: Json = answer.json()
        return found if answer.status_code == 200 else None

    # --- setting up ---

    def open(self) -> None:
        self._spaces[0].create({"constraint.any": ALLOW, "constraint.risky": ASK}, operators_needed=1)
        for tool_id in TOOLS:
            self._register(tool_id)
        for agent in AGENTS:
            self._issue(agent)
        for _ in range(2):
            declared = {"ontology": ONTOLOGY, "hypotheses": ["a", "b"], "agents": ["planner", "other"]}
            case_id = self._spaces[0].declare(declared).json()["session_id"]
            self._cases.append(case_id)
            assert self.send("/cases", {"case_id": case_id}, OPS)

    def _register(self, tool_id: str) -> None:
        tool: Json = {"tool_id": tool_id, "kind": "caller", "args_schema": {"type": "object"}}
        if TOOLS[tool_id] == "server":
            tool |= {"kind": "http", "target": {"url": "https://tools.invalid/", "method": "POST"}}
        else:
            tool["executor"] = TOOLS[tool_id]
        tool["description"] = f"version {next(self._numbers)}"
        assert self.send("/tools", tool, OPS)
        self._permissions.retired.discard(tool_id)

    def _issue(self, agent: str) -> None:
        token_id = self._tokens[agent] = f"token {next(self._numbers)} of {agent}"
        token = {"token_id": token_id, "agent_id": agent.partition(":")[2], "tool_ids": list(TOOLS)}
        assert self.send("/capabilities", token, OPS)

    # --- steps ---

    def step(self) -> None:
        actions: list[tuple[Callable[[], None], int]] = [
            (self._make, 8),
            (self._propose, 2),
            (self._claim, 8),
            (self._race, 3),
            (self._report, 6),
            (self._settle_approval, 6),
            (self._withdraw, 2),
            (self._take_away, 2),
            (self._give_back, 2),
            (self._let_time_pass, 2),
            (self._look, 3),
        ]
        [action] = self.random.choices([each for each, _ in actions], [weight for _, weight in actions])
        action()

    def _make(self) -> None:
        maker, tool_id = self.random.choice(EVERYONE[:3]), self.random.choice(list(TOOLS))
        n, case_id = self.random.randrange(3), self.random.choice([None, None, *self._cases])
        body: Json = {"tool_id": tool_id, "args": {"n": n}, "defer_ms": 600_000, "ask_ms": 600_000}
        if case_id is not None:
            body["case_id"] = case_id
        if self.random.random() < 0.3:
            body |= {"idempotency_key": f"key {self.random.randrange(4)}", "joins": self.random.random() < 0.5}
        nonce = f"nonce {next(self._numbers)}"
        executor = maker
        claims = self.random.random() < 0.4
        if claims:
            body["claim"] = {"nonce_hash": hash_of_nonce(nonce)}
            if TOOLS[tool_id] == "gateway" and self.random.random() < 0.7:
                executor = self.random.choice([GATEWAY, STRANGER])
        answer = self.send("/calls", body, maker, executor=None if executor == maker else executor)
        if answer is None:
            return
        made = self._note(answer, maker)
        assert maker in AGENTS or answer["status"] == "denied", answer
        if claims and answer["status"] == "running" and not answer.get("joined") and made.runner is not None:
            assert made.runner == executor
            self._run(made, nonce)

    def _propose(self) -> None:
        maker, number = self.random.choice(AGENTS), next(self._numbers)
        tools = self.random.sample(["own", "remote", "risky"], self.random.choice([1, 2]))
        candidates = [
            {
                "type": "tool_call",
                "tool_id": tool_id,
                "args": {"n": number},
                "capability_token_id": self._tokens[maker],
                "idempotency_key": f"{number}",
            }
            for tool_id in tools
        ]
        space, atomic = self.space, self.random.random() < 0.5
        parts = {"proposal_id": f"p{number}", "atomic": atomic, "defer_ms": 600_000, "ask_ms": 600_000}
        proposal = space.proposal(*candidates, who=maker, **parts)
        answer = self.send("/proposals", proposal, maker, space)
        for place, call_id in sorted((answer or {"calls": {}})["calls"].items()):
            made = self.calls[call_id] = Made(call_id, maker, tools[int(place)], number, None)
            # What an agent proposes of tools that it runs itself begins with the entry.
            if self._read(made)["status"] == "running":
                assert made.runner == maker
                self._run(made, "")

    def _claim(self) -> None:
        made = self._choose()
        if made is not None:
            self._try_claim(made, self.random.choice((made.runner or OPS, made.runner or OPS, *EVERYONE)), self.space)

    def _race(self) -> None:
        """Two processes of the one who runs the call claim it at the same time."""
        made = self._choose()
        if made is not None and made.runner is not None:
            call_hash, runner = self._read(made)["call_hash"], made.runner
            nonces = [f"nonce {next(self._numbers)}" for _ in self._spaces]

            def send(space: SpaceClient, nonce: str) -> Json | None:
                body = {"nonce_hash": hash_of_nonce(nonce), "call_hash": call_hash}
                return self.send(f"/calls/{made.call_id}/claim", body, runner, space)

            with ThreadPoolExecutor(len(nonces)) as pool:
                answers = list(pool.map(send, self._spaces, nonces))
            for nonce, answer in zip(nonces, answers, strict=True):
                self._follow_claim(made, runner, nonce, answer)

    def _try_claim(self, made: Made, who: str, space: SpaceClient) -> None:
        shown = self._read(made)
        is_repeat = made.nonce and self.random.random() < 0.3
        nonce = made.nonce if is_repeat and made.nonce else f"nonce {next(self._numbers)}"
        body = {"nonce_hash": hash_of_nonce(nonce), "call_hash": shown["call_hash"]}
        wrong = self.random.random() < 0.1
        if wrong:
            body["call_hash"] = "0" * 64
        answer = self.send(f"/calls/{made.call_id}/claim", body, who, space)
        if wrong and made.nonce is None:
            assert answer is None or answer["status"] != "running" or "refusal" in answer, answer
        else:
            self._follow_claim(made, who, nonce, answer)

    def _follow_claim(self, made: Made, who: str, nonce: str, answer: Json | None) -> None:
        if answer is None or answer["status"] != "running" or "refusal" in answer:
            return
        assert who == made.runner, f"{who} claimed a call for {made.runner} to run"
        if made.nonce is None:
            self._run(made, nonce)
        assert made.nonce == nonce, f"{made} was claimed twice"

    def _run(self, made: Made, nonce: str) -> None:
        """What was started has its effect, once; and it was allowed when it was."""
        assert made.nonce is None, f"{made} was started twice"
        made.nonce, made.n_effects = nonce, made.n_effects + 1
        gone = self._permissions
        token_id = self._spaces[0].get(f"/calls/{made.call_id}").json()["capability_token_id"]
        assert made.tool_id not in gone.retired | gone.forbidden, f"{made} started without permission"
        assert token_id not in gone.revoked, f"{made} started with a revoked token"
        assert made.case_id not in gone.closed, f"{made} started under a closed case"
        if made.tool_id == "risky":
            gone.approved[made.approval_key] -= 1
            assert gone.approved[made.approval_key] >= 0, f"{made} started without an approval"

    def _report(self) -> None:
        made = self._choose()
        if made is None:
            return
        before = self._read(made)["status"]
        who = self.random.choice((made.runner or OPS, made.runner or OPS, *EVERYONE))
        body: Json = {"status": self.random.choice(["succeeded", "failed"]), "result": {"by": who}}
        nonce = self.random.choice([made.nonce, made.nonce, None, "guessed"])
        if nonce:
            body["nonce"] = nonce
        self.send(f"/calls/{made.call_id}/outcome", body, who)
        after = self._read(made)["status"]
        if made.runner is not None and before != after:
            # One that began with its proposal has no nonce.
            knows = who == made.runner and made.nonce is not None and made.nonce in ("", nonce)
            settles = who == OPS and before == "in_doubt"
            assert knows or settles, f"{who} settled {made}, which was {before}"
            assert after in ("done", "failed")

    def _settle_approval(self) -> None:
        pending = self._spaces[0].get("/approvals?status=pending").json()["approvals"]
        if not pending:
            return
        approval = self.random.choice(pending)
        verb, who = self.random.choice(["approve", "approve", "approve", "reject"]), self.random.choice([LEAD, PLANNER])
        body = {"call_hash": approval["call_hash"]} if verb == "approve" else {}
        answer = self.send(f"/approvals/{approval['approval_id']}/{verb}", body, who)
        if verb == "approve" and answer is not None and answer["step"]["granted"]:
            assert who == LEAD
            proposer, args = approval["proposer"], approval["args"]
            key = f"{proposer['kind']}:{proposer['id']}", int(args["n"]), approval["case_id"]
            self._permissions.approved[key] += 1

    def _withdraw(self) -> None:
        made = self._choose()
        if made is not None:
            before, who = self._read(made)["status"], self.random.choice(EVERYONE)
            self.send(f"/calls/{made.call_id}/withdraw", {}, who)
            after = self._read(made)["status"]
            assert before == after or who in (made.maker, OPS) or made.runner is None, f"{who} withdrew {made}"

    def _take_away(self) -> None:
        gone, tool_id = self._permissions, self.random.choice(list(TOOLS))
        match self.random.choice(["retire", "forbid", "revoke", "close", "register"]):
            case "retire":
                self.send(f"/tools/{tool_id}/retire", {}, OPS)
                gone.retired.add(tool_id)
            case "forbid":
                self._change_policy(set={f"constraint.no_{tool_id}": DENY.format(tool_id)})
                gone.forbidden.add(tool_id)
            case "revoke":
                agent = self.random.choice(AGENTS)
                if self._tokens[agent] not in gone.revoked:
                    assert self.send(f"/capabilities/{self._tokens[agent]}/revoke", {}, OPS)
                    gone.revoked.add(self._tokens[agent])
            case "close":
                case_id = self.random.choice(self._cases)
                self.send(f"/cases/{case_id}/close", {"reason": "over"}, OPS)
                gone.closed.add(case_id)
            case _:
                self._register(tool_id)

    def _give_back(self) -> None:
        gone = self._permissions
        for tool_id in sorted(gone.retired):
            self._register(tool_id)
        for tool_id in sorted(gone.forbidden):
            self._change_policy(unset=[f"constraint.no_{tool_id}"])
        gone.forbidden.clear()
        for agent in AGENTS:
            if self._tokens[agent] in gone.revoked:
                self._issue(agent)
        for case_id in sorted(gone.closed):
            assert self.send("/cases", {"case_id": case_id}, OPS)
        gone.closed.clear()

    def _change_policy(self, **parts: Any) -> None:
        space = self.space
        change = space.policy_change(f"change {next(self._numbers)}", **parts)
        assert self.send("/policy/changes", change, OPS, space)

    def _let_time_pass(self) -> None:
        self._clock.advance(timedelta(seconds=self.random.choice([1, 40, 400])))
        self.random.choice(self._servers).keep()

    def _look(self) -> None:
        self.random.choice(self._servers).keep()

    # --- what is seen ---

    def _choose(self) -> Made | None:
        """One of the calls, mostly of those that go on."""
        going_on = [each for each in self.calls.values() if each.ended is None]
        among = going_on if going_on and self.random.random() < 0.9 else list(self.calls.values())
        return self.random.choice(among) if among else None

    def _note(self, answer: Json, maker: str) -> Made:
        made = self.calls.get(answer["call_id"])
        if made is None:
            case_id = answer["case_id"]
            made = Made(answer["call_id"], maker, answer["tool_id"], int(answer["args"]["n"]), case_id)
            self.calls[made.call_id] = made
        assert made.maker == maker, f"{maker} joined {made}"
        return made

    def _read(self, made: Made) -> Json:
        """A call as an operator sees it; what has ended stays as it ended."""
        found: Json = self.space.get(f"/calls/{made.call_id}").json()
        assert made.ended in (None, found["status"]), f"{made} is {found['status']}"
        made.ended = found["status"] if found["status"] in ENDED else None
        return found

    # --- the end ---

    def close(self) -> None:
        """Let everything end, and compare the ledger with what was seen."""
        self._give_back()
        assert eventually(self._is_quiet), "something goes on without end"
        for made in self.calls.values():
            if made.runner is None and made.n != LOST:
                # The server knows what came of what it ran, late or not.
                assert eventually(partial(self._is_known, made)), f"{made} is in doubt"
            if self._read(made)["status"] == "in_doubt":
                assert self.send(f"/calls/{made.call_id}/outcome", {"status": "failed"}, OPS)
            assert self._read(made)["status"] in ENDED, f"{made} does not end: {self._read(made)['status']}"

    def _is_known(self, made: Made) -> bool:
        """Whether it is on record what came of a call."""
        return bool(self._read(made)["status"] != "in_doubt")

    def _is_quiet(self) -> bool:
        """Whether nothing goes on after some time more; what is asked anew meanwhile has its own time."""
        self._clock.advance(timedelta(hours=2))
        for server in self._servers:
            server.keep()
        going_on = [self._read(each)["status"] for each in self.calls.values() if each.ended is None]
        return set(going_on) <= {"in_doubt"}

    def check_ledger(self, effects: Sequence[str]) -> None:
        """Every start on record is one effect, and every effect a start on record; the log is whole and replays."""
        entries = list(self._log.read("space:s"))
        intents = [each for entry in entries for each in read_space_event(entry).result.intents if not each.ready]
        started = Counter(each.execution_id for each in intents)
        assert set(started.values()) <= {1}, "an execution was started twice"
        served = [each.execution_id for each in intents if TOOLS[each.tool_id] == "server"]
        assert sorted(served) == sorted(effects), "the server's runs are others than its starts on record"
        assert sum(each.n_effects for each in self.calls.values()) == len(intents) - len(served)
        assert check_space(self._log, "s").findings == check_database(self._log) == []
        replayed = freeze_space(verify_space("s", entries, self._log.head("space:s")))
        for server in self._servers:
            assert freeze_space(server.current("s")) == replayed


@contextmanager
def open_history(seed: int, directory: Path) -> Iterator[tuple[CallHistory, EffectRunner]]:
    """A history over an SQLite file, with two servers that each have caches and turns of their own."""
    clock, runner = ManualClock(), EffectRunner()
    limits = SpaceLimits(agent_executions_at_once=2)
    url = f"sqlite:///{directory / f'{seed}.db'}"
    with ExitStack() as stack:
        spaces, servers = [], []
        for number in range(2):
            log = open_store(url)
            belief = BeliefServer(store=log, clock=clock, ids=SequentialIds(10 + number))
            server = SubstrateServer(
                log=log,
                clock=clock,
                ids=SequentialIds(number),
                belief=ServedBelief(belief),
                runner=runner,
                limits=limits,
                keeper_seconds=None,
            )
            app = BeliefApp(Service(belief, spaces=server))
            stack.callback(app.close)
            spaces.append(SpaceClient(stack.enter_context(client_of(app)).request))
            servers.append(server)
        history = CallHistory(seed, spaces, servers, servers[0].log)
        history.open()
        yield history, runner
