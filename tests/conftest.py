"""What every test run begins and ends with: its effort, the tests that it leaves out, and what it says of both."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import coverage
import pytest
from hypothesis import HealthCheck, settings

from tests.support.effort import CI_MARKERS, EFFORT, EFFORTS, MARKERS, REPEATABLE
from tests.support.fault_summary import write_fault_summary
from tests.support.mutation_summary import write_mutation_summary
from tests.support.subtests import lean_subtests

if TYPE_CHECKING:
    from tests.support.spaces import World

# They are shipped, so pytest does not know them for tests: with this their failures show values.
pytest.register_assert_rewrite(
    "cmbs.testing.contracts.audit_log",
    "cmbs.testing.contracts.elimination_store",
    "cmbs.testing.contracts.hypothesis_provider",
    "cmbs.testing.contracts.store",
    "cmbs.testing.contracts.stored_rows",
)

# No deadline: how long an example takes is the business of bench/, not of a test. Where the examples must be the same
# again they depend on nothing; pytest-randomly seeds only the order of tests and the `random` of a test.
for effort in EFFORTS.values():
    settings.register_profile(
        effort.name,
        max_examples=effort.examples,
        deadline=None,
        derandomize=REPEATABLE,
        print_blob=REPEATABLE,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile(EFFORT.name)

__all__ = ["lean_subtests"]
TESTS = Path(__file__).parent
# A kernel is covered by its own tests. Those of drivers, commands and transports would hide what these lack.
NO_KERNEL_TESTS = (
    *("browser", "fault", "system", "transport"),
    *(f"unit/{name}" for name in ("client", "frameworks", "mcp", "spi", "stores")),
)
LEFT_OUT = pytest.StashKey[Counter[str]]()


def _run_by(marker: str) -> str:
    return "`make check`" if marker in CI_MARKERS else "`make test-deep`"


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        # Coverage is that of the worker: processes that tests start are not measured, which takes twice as long.
        os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        # What collecting makes lives as long as the run: looking through it for garbage takes a quarter of the time.
        gc.disable()
    config.stash[LEFT_OUT] = Counter()
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}; {_run_by(name)} runs it")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what runs over a backend by a parameter of that name, and leave out what is too much for this effort."""
    kept: list[pytest.Item] = []
    deselected: list[pytest.Item] = []
    left_out = config.stash[LEFT_OUT]
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            for value in item.callspec.params.values():
                if isinstance(value, str) and value in MARKERS:
                    item.add_marker(value)
        names = [name for name in MARKERS if name in EFFORT.left_out and item.get_closest_marker(name)]
        if names:
            deselected.append(item)
            left_out.update(names[-1:])
        else:
            kept.append(item)
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = kept


def pytest_collection_finish(session: pytest.Session) -> None:
    """Look for garbage again; start Neo4j while other tests run, if one of them needs it: that takes longest."""
    gc.freeze()
    gc.enable()
    is_first_worker = getattr(session.config, "workerinput", {}).get("workerid") == "gw0"
    if is_first_worker and any(item.get_closest_marker("neo4j") for item in session.items):
        from tests.support.neo4j import start_early

        start_early()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what was left out to the process that prints the summary; under xdist that is another one."""
    left_out = session.config.stash[LEFT_OUT]
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker of xdist has collected all tests, so the counts of any one of them are those of the run."""
    config: pytest.Config = node.config
    config.stash[LEFT_OUT] = Counter(getattr(node, "workeroutput", {}).get("left_out", {})) or config.stash[LEFT_OUT]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name a failure at once: a long run says the rest at its end, and may be stopped before."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        sys.stderr.write(f"\nfailed: {report.nodeid}\n")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    write_fault_summary(terminalreporter)
    write_mutation_summary(terminalreporter)
    if (seed := config.getoption("randomly_seed", None)) is not None:
        terminalreporter.line(f"random order: the same again with --randomly-seed={seed}")
    left_out = config.stash[LEFT_OUT]
    skipped = Counter(str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", []))
    if left_out or skipped:
        terminalreporter.section(f"not run (effort `{EFFORT.name}`)")
    for name, number in left_out.items():
        terminalreporter.line(f"{number:5} left out: {MARKERS[name]} ({_run_by(name)} runs it)")
    for reason, number in skipped.most_common():
        terminalreporter.line(f"{number:5} skipped: {reason.removeprefix('Skipped: ')}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Where `make check` measures the coverage of the kernels, measure their own tests alone."""
    measuring = coverage.Coverage.current()
    place = item.path.relative_to(TESTS).as_posix()
    if measuring is None or EFFORT.everything or not place.startswith(tuple(f"{each}/" for each in NO_KERNEL_TESTS)):
        return (yield)
    measuring.stop()
    try:
        return (yield)
    finally:
        measuring.start()


@pytest.fixture(autouse=True)
def no_checker_left() -> Iterator[None]:
    """Fail a test that leaves a server over a Tee open: its thread would disturb the tests after it."""
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread.name == "cmbs-agreement" and thread not in before]
    assert not left, "a server over a Tee was not closed"


@pytest.fixture
def world() -> Iterator[World]:
    """A space to ask things of; in the end its log must give the same space again."""
    from tests.support.spaces import World, assert_replays

    world = World()
    yield world
    world.close()
    assert_replays(world)
