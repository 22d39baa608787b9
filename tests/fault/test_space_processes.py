"""Spaces under kill -9 and under several processes: an effect that has begun is in doubt, and nothing happens twice."""

from __future__ import annotations

import subprocess
from contextlib import closing

import pytest

from cmbs.audit.fsck import check_space
from cmbs.stores import open_store
from cmbs.substrate.kernel.events import OutcomeStatus, RecordOutcome
from cmbs.substrate.kernel.replay import read_space_event
from cmbs.substrate.kernel.words import ExecutionStatus, ProposalStatus
from cmbs.testing import ManualClock
from tests.fault.conftest import CheckFaults
from tests.support.spaces import ROOT, SPACE, World, status, wait_until_settled
from tests.support.warm import start

MUCH_LATER = "2999-01-01T00:00:00Z"
PROPOSALS = 60
PROCESSES = 3


def start_process(*arguments: str) -> subprocess.Popen[str]:
    return start("tests.support.space_process", *arguments, stdout=subprocess.PIPE, text=True)


def kill_between_intent_and_outcome(url: str, idempotent: str) -> None:
    """Let a process begin an effect, and kill it before it can say what came of it."""
    process = start_process("stuck", url, idempotent)
    assert process.stdout is not None
    with process.stdout as printed:
        running = printed.readline()
        process.kill()
    assert process.wait() == -9
    assert running.startswith('t {"x":1} x-')


@pytest.mark.req("SS01-EXEC-02")
def test_an_effect_that_was_cut_off_is_in_doubt_and_not_begun_again(store_url: str, check_faults: CheckFaults) -> None:
    kill_between_intent_and_outcome(store_url, "once")
    with closing(open_store(store_url)) as store:
        world = World(store, clock=ManualClock())
        ((execution_id, execution),) = world.space.executions.items()
        assert (execution.status, status(world.space, "p")) == (ExecutionStatus.RUNNING, ProposalStatus.RUNNING)
        world.server.keep()
        assert world.space.executions[execution_id].status is ExecutionStatus.RUNNING
        world.clock.set(MUCH_LATER)
        for _ in range(2):
            world.server.keep()
        assert world.space.executions[execution_id].status is ExecutionStatus.IN_DOUBT
        assert ("goal.a" in world.space.state, world.runner.calls) == (False, [])
        # An operator who has looked what came of it ends the doubt.
        world.say(RecordOutcome(execution_id, OutcomeStatus.SUCCEEDED), ROOT)
        assert (status(world.space, "p"), world.space.state["goal.a"]) == (ProposalStatus.COMMITTED, "1")
        world.close()
        assert check_space(store, SPACE).findings == []
    check_faults(store_url, [], kills=1)


@pytest.mark.req("SS01-EXEC-02")
def test_an_effect_that_was_cut_off_is_tried_again_where_that_does_no_harm(store_url: str) -> None:
    kill_between_intent_and_outcome(store_url, "idempotent")
    with closing(open_store(store_url)) as store:
        world = World(store, clock=ManualClock(MUCH_LATER))
        world.server.keep()
        assert wait_until_settled(world, "p") is ProposalStatus.COMMITTED
        ((_, args, context),) = world.runner.calls
        assert (args, context.attempt, context.idempotency_key) == (b'{"x":1}', 2, "k1")
        world.close()
        assert check_space(store, SPACE).findings == []


@pytest.mark.slow
@pytest.mark.req("SS01-STREAM-01")
def test_several_processes_on_one_space_act_as_one(store_url: str, check_faults: CheckFaults) -> None:
    processes = [start_process("propose", store_url, f"process{number}", str(PROPOSALS)) for number in range(PROCESSES)]
    answers: dict[str, set[str]] = {}
    for process in processes:
        assert process.stdout is not None
        with process.stdout as printed:
            for line in printed:
                event_id, proposal_id = line.split()
                answers.setdefault(proposal_id, set()).add(event_id)
        assert process.wait() == 0
    shared = PROPOSALS // 3
    assert len(answers) == shared + PROCESSES * (PROPOSALS - shared)
    # Processes that proposed the same got the same answer.
    assert all(len(event_ids) == 1 for event_ids in answers.values())
    with closing(open_store(store_url)) as store:
        assert check_space(store, SPACE).findings == []
        events = [read_space_event(stored) for stored in store.read(f"space:{SPACE}")]
        proposed = {each.body.event_id for each in events if each.body.verb == "PROPOSE"}
        assert proposed == {event_id for event_ids in answers.values() for event_id in event_ids}
        world = World(store)
        committed = {name for name, record in world.space.proposals.items() if record.status == "committed"}
        assert (
            committed == set(answers) == {key.removeprefix("goal.") for key in world.space.state if key[:5] == "goal."}
        )
        world.close()
    check_faults(store_url, [(f"space:{SPACE}", next(iter(event_ids))) for event_ids in answers.values()])
