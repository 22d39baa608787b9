"""Signatures of guarded functions: as schemas, and as the types in which arguments and results arrive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pytest

from cmbs.errors import InvalidRequest
from cmbs.substrate.guard.refusals import CallDenied
from cmbs.substrate.kernel.model import ReasonCode
from tests.support.embedded import Embedded
from tests.support.spaces import ROOT

# --- signatures -------------------------------------------------------------------------------------------------------


class Level(StrEnum):
    LOW = "low"
    HIGH = "high"


@dataclass
class Target:
    host: str
    port: int = 80


def test_arguments_are_checked_and_arrive_as_the_types_that_the_function_declares(
    make: Callable[..., Embedded],
) -> None:
    embedded = make()
    got: list[Any] = []

    @embedded.guard.tool("scan")
    def scan(targets: list[Target], level: Level, since: datetime, note=None) -> Target:  # type: ignore[no-untyped-def] # noqa: ANN001
        got.append((targets, level, since, note))
        return targets[0]

    embedded.guard.enrol(ROOT)
    since = datetime(2026, 1, 1, tzinfo=UTC)
    assert scan([Target("a")], Level.HIGH, since) == Target("a", 80)
    assert got == [([Target("a")], Level.HIGH, since, None)]
    with pytest.raises(CallDenied) as refused:
        scan([Target("a", "eighty")], Level.LOW, since)  # type: ignore[arg-type]
    assert refused.value.decision.reason_code is ReasonCode.ARGS_INVALID
    assert len(got) == 1


def test_a_schema_may_be_given(make: Callable[..., Embedded]) -> None:
    embedded = make()
    restart = embedded.guard_tool(
        args_schema={"properties": {"service": {"enum": ["api"]}}}, result_schema={"minProperties": 2}
    )
    assert restart("api")["restarted"] == "api"
    with pytest.raises(CallDenied):
        restart("db")
    assert embedded.ran == ["api"]


def positional(a: int, /) -> int:
    return a


def variable(*many: int) -> int:
    return len(many)


def name_it(**many: int) -> int:
    return len(many)


def opaque(a: threading.Lock) -> None:
    del a


def unknown(a: Nowhere) -> None:  # type: ignore[name-defined] # noqa: F821 - that is the point
    del a


@pytest.mark.parametrize("function", [positional, variable, name_it, opaque, unknown])
def test_a_function_whose_arguments_are_no_json_cannot_be_a_tool(
    make: Callable[..., Embedded], function: Callable[..., Any]
) -> None:
    with pytest.raises(InvalidRequest, match=function.__name__):
        make().guard.tool("t")(function)


def test_a_schema_that_is_no_json_is_refused(make: Callable[..., Embedded]) -> None:
    with pytest.raises(InvalidRequest, match="the schema of a tool must be JSON"):
        make().guard.tool("t", args_schema={"const": object()})(lambda: None)


def test_a_result_that_is_not_what_the_function_declares_is_plain_data(make: Callable[..., Embedded]) -> None:
    embedded = make()

    @embedded.guard.tool("restart")
    def restart() -> int:
        return "done"  # type: ignore[return-value]

    embedded.guard.enrol(ROOT)
    assert restart() == "done"  # type: ignore[comparison-overlap]
