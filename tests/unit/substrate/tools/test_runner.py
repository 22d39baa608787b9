"""The runner and its Python tools: time, size, schema, credentials, and what to say when no one knows."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from cmbs.errors import InvalidRequest
from cmbs.substrate.kernel.events import OutcomeStatus
from cmbs.substrate.kernel.model import Tool, ToolKind
from cmbs.substrate.tools.credentials import Credentials
from cmbs.substrate.tools.event_loop import LoopClosed, LoopThread
from cmbs.substrate.tools.opening import open_tools
from cmbs.substrate.tools.python import PythonTools, current_call, discover_python_tools
from cmbs.substrate.tools.runner import CallContext, OutcomeUnknown, Runner
from tests.support.subtests import for_each
from tests.support.tool_calls import CALL, result_of, run, tool_of


def runner_of(function: Callable[..., Any], credentials: Credentials | None = None) -> Runner:
    return Runner({ToolKind.PYTHON: lambda: PythonTools({"probe": function})}, credentials)


def python_tool(**more: Any) -> Tool:
    return tool_of(ToolKind.PYTHON, **more)


# --- what a callable is given and gives -------------------------------------------------------------------------------


@pytest.mark.req("SS01-TOOL-01")
def test_a_callable_gets_the_args_by_name_and_its_result_is_canonical() -> None:
    def probe(*, service: str, grace: float = 1.0) -> dict[str, Any]:
        return {"service": service, "grace": grace}

    reply = run(runner_of(probe), python_tool(), {"service": "api"})
    assert bytes(reply.result) == b'{"grace":1,"service":"api"}'
    assert (reply.error, reply.result_bytes) == (None, len(bytes(reply.result)))


@pytest.mark.req("SS01-TOOL-01")
def test_an_async_callable_is_awaited() -> None:
    async def probe(n: int) -> int:
        await asyncio.sleep(0)
        return n + 1

    assert result_of(run(runner_of(probe), python_tool(), {"n": 1})) == 2


def test_a_tool_can_see_which_call_it_carries_out() -> None:
    def probe() -> list[Any]:
        return list(current_call())

    assert result_of(run(runner_of(probe), python_tool())) == list(CALL)
    with pytest.raises(LookupError):
        current_call()


def test_a_target_may_name_another_callable() -> None:
    tools = PythonTools()
    tools.register("other", lambda: "here")
    runner = Runner({ToolKind.PYTHON: lambda: tools})
    assert result_of(run(runner, tool_of(ToolKind.PYTHON, {"callable": "other"}))) == "here"
    assert run(runner, python_tool()).error == "no callable is registered as `probe`"


def test_a_name_stands_for_one_callable() -> None:
    tools = PythonTools({"probe": len})
    tools.register("probe", len)
    with pytest.raises(InvalidRequest, match="another callable is registered as `probe`"):
        tools.register("probe", max)


# --- what goes wrong --------------------------------------------------------------------------------------------------


def raising(exc: BaseException) -> Callable[..., NoReturn]:
    def probe() -> NoReturn:
        raise exc

    return probe


@pytest.mark.req("SS01-TOOL-03")
@for_each(
    ("function", "status", "said"),
    [
        (raising(ValueError("no such service")), OutcomeStatus.FAILED, "ValueError: no such service"),
        (raising(SystemExit(3)), OutcomeStatus.FAILED, "SystemExit: 3"),
        (raising(TimeoutError("the database")), OutcomeStatus.FAILED, "TimeoutError: the database"),
        (lambda extra: extra, OutcomeStatus.FAILED, "missing 1 required positional argument"),
        (object, OutcomeStatus.RESULT_REFUSED, "`object` is not a JSON type"),
        (lambda: float("nan"), OutcomeStatus.RESULT_REFUSED, "numbers must be finite"),
        (lambda: 2**53, OutcomeStatus.RESULT_REFUSED, "is not exact in I-JSON"),
        (lambda: "\ud800", OutcomeStatus.RESULT_REFUSED, "strings must be valid Unicode"),
        (lambda: "x" * 1_000, OutcomeStatus.RESULT_REFUSED, "has at least 1002 bytes, `probe` allows 1000"),
    ],
)
def test_what_goes_wrong_is_told(function: Callable[..., Any], status: OutcomeStatus, said: str) -> None:
    reply = run(runner_of(function), python_tool(max_result_bytes=1_000))
    assert (reply.status, bytes(reply.result)) == (status, b"null")
    assert said in str(reply.error)


def test_a_result_of_exactly_the_limit_is_taken() -> None:
    assert result_of(run(runner_of(lambda: "x" * 998), python_tool(max_result_bytes=1_000))) == "x" * 998


def test_an_error_is_one_line_of_text_within_a_limit() -> None:
    reply = run(runner_of(raising(ValueError("a\n\tb \ud800" + "x" * 10_000))), python_tool())
    assert str(reply.error).startswith("ValueError: a b ?xxx")
    assert (len(str(reply.error)), str(reply.error)[-1]) == (500, "…")


@pytest.mark.req("SS01-TOOL-03")
def test_the_result_must_fit_its_schema() -> None:
    schema = {"type": "object", "properties": {"ok": {"const": True}}}
    runner = runner_of(lambda ok: {"ok": ok})
    assert result_of(run(runner, python_tool(result_schema=schema), {"ok": True})) == {"ok": True}
    reply = run(runner, python_tool(result_schema=schema), {"ok": False})
    assert reply.status is OutcomeStatus.RESULT_REFUSED
    assert str(reply.error).startswith("the result does not fit its schema at `/ok`")


def test_a_schema_that_cannot_be_used_lets_no_result_through() -> None:
    reply = run(runner_of(lambda: 1), python_tool(result_schema={"$ref": "http://elsewhere/schema"}))
    assert reply.status is OutcomeStatus.RESULT_REFUSED
    assert str(reply.error).startswith("the result schema of `probe` cannot be used: ")


@pytest.mark.req("SS01-TOOL-06")
def test_credentials_are_in_no_error_and_in_no_result() -> None:
    secret = 'to"ken-12345'
    credentials = Credentials({"CMBS_TOOL_SECRET_A": f"Basic {secret}", "CMBS_TOOL_SECRET_B": "short", "C": "c" * 10})
    failed = run(runner_of(raising(ValueError(f"{secret} is short, {'c' * 10}")), credentials), python_tool())
    assert failed.error == f"ValueError: [redacted] is short, {'c' * 10}"
    told = run(runner_of(lambda: {"deep": [f"x{secret}x"]}, credentials), python_tool())
    assert (told.status, told.error) == (OutcomeStatus.RESULT_REFUSED, "the result holds a credential of the tool")
    assert credentials.get("C") is None


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.req("SS01-TOOL-03")
def test_a_callable_that_hangs_is_left_to_itself_and_takes_up_a_place() -> None:
    release = threading.Event()
    tools = PythonTools({"probe": lambda: release.wait(60)}, max_running=2)
    runner = Runner({ToolKind.PYTHON: lambda: tools})
    for _ in range(2):
        reply = run(runner, python_tool(timeout_ms=50))
        assert (reply.status, reply.error) == (OutcomeStatus.TIMED_OUT, "`probe` gave no answer within 50 ms")
    refused = run(runner, python_tool(timeout_ms=50))
    assert (refused.status, refused.error) == (OutcomeStatus.FAILED, "2 calls of Python tools are still running")
    release.set()
    for thread in threading.enumerate():
        if thread.name == "tool probe":
            thread.join(30)
    assert result_of(run(runner, python_tool())) is True
    runner.close()


@pytest.mark.req("SS01-TOOL-03")
def test_an_async_callable_that_hangs_is_cancelled() -> None:
    cancelled = threading.Event()

    async def probe() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    reply = run(runner_of(probe), python_tool(timeout_ms=50))
    assert reply.status is OutcomeStatus.TIMED_OUT
    assert cancelled.wait(30)


def test_how_long_it_took_is_measured() -> None:
    moments = iter([10.0, 10.25])
    runner = Runner({ToolKind.PYTHON: lambda: PythonTools({"probe": lambda: 1})}, monotonic=lambda: next(moments))
    assert run(runner, python_tool()).duration_ms == 250


# --- the runner -------------------------------------------------------------------------------------------------------


class Defective:
    def execute(self, tool: Tool, args: bytes, call: CallContext) -> bytes:
        raise KeyError("a defect")

    def close(self) -> None:
        pass


@pytest.mark.req("SS01-TOOL-04")
def test_after_a_defect_the_outcome_is_unknown() -> None:
    with pytest.raises(OutcomeUnknown, match="KeyError: 'a defect'"):
        run(Runner({ToolKind.PYTHON: Defective}), python_tool())


def test_a_kind_that_is_not_run_here_fails() -> None:
    reply = run(Runner({}), python_tool())
    assert (reply.status, reply.error) == (OutcomeStatus.FAILED, "this server runs no `python` tools")


def test_work_for_a_loop_that_was_closed_is_refused() -> None:
    async def one() -> int:
        return 1

    thread = LoopThread("test")
    assert thread.run(one) == 1
    thread.close()
    thread.close()
    with pytest.raises(LoopClosed):
        thread.run(one)


# --- opening ----------------------------------------------------------------------------------------------------------

PLUG_IN = """
def greet(name):
    return f"hello {name}"

answer = 42
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install a distribution that offers tools: `install(name, entry_point=target)`; its module has the same name."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name: str, **targets: str) -> None:
        (tmp_path / f"{name}.py").write_text(PLUG_IN, "utf-8")
        metadata = tmp_path / f"{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", "utf-8")
        lines = [f"{entry_point} = {name}:{target}" for entry_point, target in targets.items()]
        (metadata / "entry_points.txt").write_text("\n".join(["[cmbs.tools]", *lines, ""]), "utf-8")

    return install


def test_installed_distributions_offer_tools(install: Callable[..., None]) -> None:
    install("tools_that_greet", greet="greet")
    runner = open_tools({}, PythonTools({"probe": lambda: "mine"}))
    assert result_of(run(runner, tool_of(ToolKind.PYTHON, tool_id="greet"), {"name": "you"})) == "hello you"
    assert result_of(run(runner, python_tool())) == "mine"
    runner.close()


@pytest.mark.parametrize(
    ("target", "said"),
    [("nothing", "tool `greet` .* does not load: AttributeError"), ("answer", "tool `greet` .* cannot be called")],
)
def test_a_plug_in_that_is_broken_is_named(install: Callable[..., None], target: str, said: str) -> None:
    install(f"tools_with_{target}", greet=target)
    with pytest.raises(InvalidRequest, match=said):
        discover_python_tools()


def test_two_plug_ins_of_one_name_are_refused(install: Callable[..., None]) -> None:
    install("tools_of_one", greet="greet")
    install("tools_of_another", greet="greet")
    with pytest.raises(InvalidRequest, match="two tools are named `greet`"):
        discover_python_tools()


@pytest.mark.parametrize(("kind", "module"), [(ToolKind.HTTP, "http"), (ToolKind.MCP, "mcp")])
def test_without_its_dependencies_a_kind_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, kind: ToolKind, module: str
) -> None:
    monkeypatch.setitem(sys.modules, f"cmbs.substrate.tools.{module}", None)
    reply = run(open_tools({}), tool_of(kind, {}))
    assert (reply.status, reply.error) == (
        OutcomeStatus.FAILED,
        f"{module.upper()} tools are not available: install `cmbs[tools]` to run them",
    )
