"""The whole server over faulty stores, seed by seed; and proof that the simulation notices stores that lie."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import count

import pytest

from cmbs.ledger import Head
from cmbs.spi import Append, EliminationProvenance, EliminationResult
from cmbs.stores.memory import InMemoryStore
from cmbs.testing.simulation import Shape, SimulationFailed, shape_of, simulate
from cmbs.testing.simulation.__main__ import main
from tests.support.effort import EFFORT, EFFORTS, Effort

# So many histories in one test: what `fast` runs. `ci` and `deep` add tests of as many.
CHUNK = EFFORTS["fast"].seeds
# Within so many seeds a store that lies is detected.
MAX_SEEDS_TO_DETECT = 100


def first_seeds(effort: Effort) -> range:
    """The seeds that the tests of an effort begin with."""
    return range(0, effort.seeds, CHUNK)


# `make test` runs the first test. `make test-ci` selects what is marked, so the others are.
@pytest.mark.req("ARCH-2-03", "ARCH-2-04", "ARCH-4-01")
@pytest.mark.parametrize(
    "first", [pytest.param(first, marks=[pytest.mark.slow] if first else []) for first in first_seeds(EFFORT)]
)
def test_nothing_acknowledged_is_lost_and_nothing_is_applied_twice(first: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first, first + CHUNK):
        counts += simulate(seed).counts
    # A chunk in which nothing went wrong would show nothing.
    assert (
        min(counts[what] for what in ("faults", "crashes", "kills", "overtaken", "unavailable", "entries")) > CHUNK // 4
    )


def test_an_effort_runs_as_many_histories_as_it_says() -> None:
    for effort in EFFORTS.values():
        assert len(first_seeds(effort)) * CHUNK == effort.seeds


def test_seeds_take_turns_between_the_shapes() -> None:
    assert {shape_of(seed) for seed in range(2)} == set(Shape)


# --- stores that lie ---


class LosesAppends(InMemoryStore):
    """Acknowledges every tenth append and does not write it."""

    def __init__(self) -> None:
        super().__init__()
        self._appends = count(1)

    def append(self, appends: Sequence[Append]) -> None:
        if next(self._appends) % 10:
            super().append(appends)


class WritesTwice(InMemoryStore):
    """Has an entry twice once a stream has three."""

    def _write(self, item: Append) -> None:
        super()._write(item)
        stream = self._streams[item.stream_id]
        if item.seq == 3:
            stream.entries.append(item.entry)


class LetsForksIn(InMemoryStore):
    """Takes an entry whatever it continues."""

    def _refuse_stale_one(self, item: Append) -> None:
        pass

    def _refuse_stale(self, appends: Sequence[Append]) -> None:
        pass


class ForgetsIntents(InMemoryStore):
    """Acknowledges intents and does not keep them."""

    def put_intent(self, append: Append) -> None:
        pass


class ShowsAnOldHead(InMemoryStore):
    """Notices only every other time that a stream has grown."""

    def __init__(self) -> None:
        super().__init__()
        self._old: dict[str, Head | None] = {}
        self._asked = count()

    def head(self, stream_id: str) -> Head | None:
        if next(self._asked) % 2 or self._old.get(stream_id) is None:
            self._old[stream_id] = super().head(stream_id)
        return self._old[stream_id]


class DropsTombstonesOfItsTransaction(InMemoryStore):
    """Writes the entry and not what it eliminates."""

    def _write(self, item: Append) -> None:
        before = set(self._streams[item.stream_id].tombstones) if item.seq else set()
        super()._write(item)
        self._streams[item.stream_id].tombstones = before


class LosesTombstones(InMemoryStore):
    """Acknowledges every third elimination and does not apply it."""

    def __init__(self) -> None:
        super().__init__()
        self._calls = count(1)

    def eliminate(
        self, session_id: str, eliminated: AbstractSet[str], provenance: EliminationProvenance
    ) -> EliminationResult:
        if next(self._calls) % 3:
            return super().eliminate(session_id, eliminated, provenance)
        return EliminationResult(frozenset(eliminated), frozenset())


class EliminatesTooMuch(InMemoryStore):
    """Eliminates one hypothesis more than it was told to."""

    def eliminate(
        self, session_id: str, eliminated: AbstractSet[str], provenance: EliminationProvenance
    ) -> EliminationResult:
        return super().eliminate(session_id, {*eliminated, "h0"}, provenance)


def find_failure(
    shape: Shape, make_log: type[InMemoryStore] = InMemoryStore, make_remote: type[InMemoryStore] = InMemoryStore
) -> SimulationFailed | None:
    for seed in range(MAX_SEEDS_TO_DETECT):
        try:
            simulate(seed, shape, make_log=make_log, make_remote=make_remote)
        except SimulationFailed as exc:
            return exc
    return None


@pytest.mark.parametrize("shape", Shape)
@pytest.mark.parametrize("lying", [LosesAppends, WritesTwice, LetsForksIn, ShowsAnOldHead])
def test_a_log_that_lies_is_detected(lying: type[InMemoryStore], shape: Shape) -> None:
    failure = find_failure(shape, make_log=lying)
    assert failure is not None
    assert "--seed" in str(failure)


def test_a_log_that_drops_tombstones_of_its_own_transaction_is_detected() -> None:
    assert find_failure(Shape.TOGETHER, make_log=DropsTombstonesOfItsTransaction) is not None


@pytest.mark.parametrize("lying", [LosesTombstones, EliminatesTooMuch])
def test_a_store_beside_the_log_that_lies_is_detected(lying: type[InMemoryStore]) -> None:
    assert find_failure(Shape.SAGA, make_remote=lying) is not None


def test_a_log_that_forgets_what_was_intended_is_detected() -> None:
    assert find_failure(Shape.SAGA, make_log=ForgetsIntents) is not None


# --- by hand ---


@pytest.mark.parametrize("seed", [4, 5])
def test_a_seed_is_the_same_run_in_every_process(seed: int) -> None:
    trace: list[str] = []
    simulate(seed, trace=trace)
    command = [sys.executable, "-m", "cmbs.testing.simulation", "--seed", str(seed)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONHASHSEED": str(seed)}
    )
    assert done.stdout.splitlines() == [f"seed {seed}, {shape_of(seed)}:", *trace, "good"]


def test_seeds_can_be_run_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "4", "--from", "100"]) == 0
    assert capsys.readouterr().out.startswith("4 seeds good: ")


def test_a_run_that_fails_ends_with_1_and_names_its_seed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InMemoryStore, "put_intent", ForgetsIntents.put_intent)
    assert main(["--seeds", str(MAX_SEEDS_TO_DETECT), "--shape", "saga"]) == 1
    printed = capsys.readouterr().err
    assert "see it again: python -m cmbs.testing.simulation --shape saga --seed" in printed
    seed = printed.rsplit(maxsplit=1)[-1]
    assert main(["--seed", seed, "--shape", "saga"]) == 1
    assert f"seed {seed} (saga)" in capsys.readouterr().out
