"""A server for the agents of these tests, and no way out of the machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.support.agent_frameworks import World, open_world
from tests.support.effort import EFFORT

# None is a socket file.
LOOPBACK = (None, "127.0.0.1", "::1", "localhost")
OF_FRAMEWORKS = ("test_langchain.py", "test_openai_agents.py", "test_pydantic_ai.py")


class LeftOut(pytest.Module):
    """A module that is not imported."""

    def collect(self) -> NoReturn:
        pytest.skip("imports an agent framework, which takes seconds (`make check` runs it)")


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Import the frameworks where what is slow is run: each worker would, to collect tests that it may not even run."""
    if "slow" not in EFFORT.left_out or module_path.name not in OF_FRAMEWORKS:
        return None
    return LeftOut.from_parent(parent, path=module_path)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_world(f"sqlite:///{tmp_path_factory.mktemp('frameworks') / 'cmbs.db'}") as world:
        yield world


@pytest.fixture
def world(served: World) -> World:
    served.ran.clear()
    return served


@pytest.fixture(autouse=True)
def outside(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What was to be sent to another machine, traces of the frameworks above all: nothing, in any of these tests.

    Their own switches are set as the guide sets them. What they leave open is refused here before it is sent.
    """
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    tried: list[Any] = []

    def refuse(name: str, host_of: Any) -> None:
        real = getattr(socket, name) if name == "getaddrinfo" else getattr(socket.socket, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            host = host_of(args)
            if host not in LOOPBACK:
                tried.append(host)
                raise OSError(f"a test is not to reach `{host}`")
            return real(*args, **kwargs)

        monkeypatch.setattr(socket if name == "getaddrinfo" else socket.socket, name, call)

    refuse("getaddrinfo", lambda args: args[0])
    refuse("connect", lambda args: args[1][0] if isinstance(args[1], tuple) else None)
    yield tried
    assert tried == []
