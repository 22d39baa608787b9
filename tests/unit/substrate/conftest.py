"""What tests of the substrate share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.embedded import Embedded
from tests.support.epochs import epochs_of
from tests.support.spaces import World, assert_replays


@pytest.fixture
def make() -> Iterator[Callable[..., Embedded]]:
    """Guards with a server of their own each, closed in the end."""
    made: list[Embedded] = []

    def build(*args: Any, **more: Any) -> Embedded:
        made.append(Embedded(*args, **more))
        return made[-1]

    yield build
    for each in made:
        each.server.close()


@pytest.fixture
def short_epochs() -> Iterator[None]:
    """What is settled leaves the state after a few entries, also when the log is replayed in the end."""
    with epochs_of(4):
        yield


@pytest.fixture
def make_world() -> Iterator[Callable[..., World]]:
    """Servers of spaces over any log; in the end the log of each must give the same space again."""
    made: list[World] = []

    def build(*args: Any, **more: Any) -> World:
        made.append(World(*args, **more))
        return made[-1]

    yield build
    for world in made:
        world.close()
        assert_replays(world)
