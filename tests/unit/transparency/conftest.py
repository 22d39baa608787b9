"""The stores that notaries are tested over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.store_fixture import BACKENDS, StoreFixture


@pytest.fixture(params=BACKENDS)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreFixture]:
    with StoreFixture.at(request.param, tmp_path) as fixture:
        yield fixture


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[StoreFixture]:
    with StoreFixture.at("sqlite", tmp_path) as fixture:
        yield fixture
