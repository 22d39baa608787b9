"""Every operation of an OpenAPI document, tried with what schemathesis makes of its schemas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import schemathesis
from hypothesis import settings
from schemathesis.checks import load_all_checks
from schemathesis.core.result import Ok
from schemathesis.pytest.lazy import get_all_tests

Case = schemathesis.Case[Any]


def try_every_operation(
    subtests: pytest.Subtests, schema: Any, check: Callable[[Case], None], max_examples: int
) -> None:
    """Call `check` with cases of each operation: its examples, those at the edges of its schemas, and random ones.

    `schema.parametrize()` does the same when tests are collected, for half a minute in every worker, also where none
    of them is run.
    """

    def run(case: Case) -> None:
        check(case)

    load_all_checks()
    chosen = settings(max_examples=max_examples)
    for made in get_all_tests(schema=schema, test_func=run, settings=chosen, given_kwargs={}):
        assert isinstance(made, Ok), made
        operation, test = made.ok()
        with subtests.test(operation=operation.label):
            test()
