"""The stores that tests of several planes run over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.store_fixture import PLACES, StoreFixture


@pytest.fixture(params=PLACES)
def fixture(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreFixture]:
    """Each embedded store in turn."""
    with StoreFixture.at(request.param, tmp_path) as fixture:
        yield fixture


@pytest.fixture
def sqlite_fixture(tmp_path: Path) -> Iterator[StoreFixture]:
    """A store in a file."""
    with StoreFixture.at("sqlite", tmp_path) as fixture:
        yield fixture
