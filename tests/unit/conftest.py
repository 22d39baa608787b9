"""The stores that tests of several planes run over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.digest_points import digest_points_at
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


@pytest.fixture
def digests_everywhere() -> Iterator[None]:
    """Every entry but the first carries a state digest."""
    with digest_points_at(range(1, 1_000)):
        yield


@pytest.fixture(scope="module")
def digests_in_module() -> Iterator[None]:
    """As `digests_everywhere`, in all tests of a module from the first on that asks for it: properties need that."""
    with digest_points_at(range(1, 1_000)):
        yield
