"""Three lines to guard a function: one import, one decorator, one policy file.

    from cmbs import guard

    @guard("policy.yaml")
    def restart(service: str) -> str: ...

The decorator brings all that a guarded function needs: a store, a space under the policy of the file, the tool from the
signature, and a capability token. Functions under one policy in one store share a space.
"""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, ParamSpec, TypeVar

from cmbs.belief.server import BeliefServer
from cmbs.documents.nodes import MAX_BYTES
from cmbs.errors import SpaceNotFound
from cmbs.messages import Actor, ActorKind
from cmbs.stores import open_store
from cmbs.substrate.belief_source import ServedBelief
from cmbs.substrate.guard.guard import Guard, GuardedTool
from cmbs.substrate.guard.refusals import GuardError
from cmbs.substrate.kernel.events import CreateSpace, MediaType, PolicySource, ProposePolicy
from cmbs.substrate.kernel.model import ToolKind
from cmbs.substrate.kernel.policy.file import compile_file
from cmbs.substrate.kernel.policy.policy import Policy, compile_policy
from cmbs.substrate.kernel.requests import SpaceCommand
from cmbs.substrate.kernel.state import Space
from cmbs.substrate.server import SubstrateServer
from cmbs.substrate.tools.python import PythonTools
from cmbs.substrate.tools.runner import Runner
from cmbs.system import RandomIds

P = ParamSpec("P")
R = TypeVar("R")

STORE_SETTING = "CMBS_GUARD_STORE"
DEFAULT_STORE = "memory:"
DEFAULT_AGENT = "agent"
_OUTSIDE_AN_ID = re.compile(r"[^A-Za-z0-9._~-]+")


def guard(
    policy: str | os.PathLike[str],
    *,
    tool_id: str | None = None,
    agent: str = DEFAULT_AGENT,
    store: str | None = None,
    space: str | None = None,
    operator: str = "guard",
    wait_seconds: float = 0.0,
    **tool: Any,
) -> Callable[[Callable[P, R]], GuardedTool[P, R]]:
    """Guard a function, plain or async, by a policy file: a call runs only when the policy allows it.

    The tool is named after the function, and the space after the file, where `tool_id` and `space` do not say. `store`
    is a URL as `open_store` takes it; without one that of `CMBS_GUARD_STORE`, or memory. `operator` creates the space,
    registers the tool and issues the token. `wait_seconds` is how long a call waits for what defers it, or for an
    approval. `tool` is what else a tool has: `writes`, `idempotent`, `timeout_ms`, `facts`, ….

    Calls of a function with effects that have the same arguments are one call: within one case, or within one process
    where there is no case. GuardError where the space has another policy than the file.
    """
    file = Path(policy)
    space_id = _name_space(file, space)

    def decorate(function: Callable[P, R]) -> GuardedTool[P, R]:
        name = tool_id if tool_id is not None else function.__name__
        host = _open_host(store, space_id)
        governor = Actor(ActorKind.OPERATOR, operator)
        _put_in_force(host.server, space_id, governor, load_policy(file), file)
        actor = Actor(ActorKind.AGENT, agent)
        own = Guard(host.server, host.tools, space_id, actor, f"{agent}:{name}", wait_seconds=wait_seconds)
        own.key_by_args(host.run)
        made: GuardedTool[P, R] = own.tool(name, **tool)(function)
        own.enrol(governor)
        return made

    return decorate


def open_belief(policy: str | os.PathLike[str], *, store: str | None = None, space: str | None = None) -> BeliefServer:
    """The belief server whose sessions the gates of functions under this policy read; named as for `guard`."""
    return _open_host(store, _name_space(Path(policy), space)).belief


class LoadedPolicy(NamedTuple):
    """A policy file as it was written, and the pairs that it compiles to."""

    pairs: dict[str, str]
    source: PolicySource


def load_policy(file: Path) -> LoadedPolicy:
    """A policy file; InvalidDocument names every fault by its line, GuardError where there is no file."""
    try:
        with file.open("rb") as source:
            data = source.read(MAX_BYTES + 1)
    except OSError as exc:
        raise GuardError(f"the policy file `{file}` cannot be read: {exc.strerror}") from exc
    compiled = compile_file(data, str(file))
    media_type = MediaType.JSON if file.suffix.lower() == ".json" else MediaType.YAML
    return LoadedPolicy(compiled.pairs, PolicySource(media_type, data.decode("utf-8-sig")))


# --- what the functions of a process share ----------------------------------------------------------------------------


class _Host(NamedTuple):
    """Everything that one space in one store needs."""

    server: SubstrateServer
    belief: BeliefServer
    tools: PythonTools
    # Names the calls of this process.
    run: str


_hosts: dict[tuple[str, str], _Host] = {}
_opening = Lock()


def _name_space(file: Path, space: str | None) -> str:
    return space or _OUTSIDE_AN_ID.sub("-", file.stem).strip("-._~") or "guard"


def _open_host(store: str | None, space_id: str) -> _Host:
    """The servers of a space, the same ones for as long as the process runs."""
    url = store or os.environ.get(STORE_SETTING) or DEFAULT_STORE
    with _opening:
        if (url, space_id) not in _hosts:
            if not _hosts:
                atexit.register(close_guards)
            log, tools = open_store(url), PythonTools()
            belief = BeliefServer(store=log)
            runner = Runner({ToolKind.PYTHON: lambda: tools})
            server = SubstrateServer(log=log, belief=ServedBelief(belief), runner=runner)
            _hosts[url, space_id] = _Host(server, belief, tools, RandomIds().new_id())
        return _hosts[url, space_id]


def close_guards() -> None:
    """Let what runs come to its end, and close the stores of all guarded functions; they cannot be called any more."""
    with _opening:
        atexit.unregister(close_guards)
        while _hosts:
            _, host = _hosts.popitem()
            host.server.close()
            host.belief.close()


def _put_in_force(server: SubstrateServer, space_id: str, operator: Actor, policy: LoadedPolicy, file: Path) -> None:
    """Create the space under the policy, or see to it that it has this one.

    A space of this process's own has one operator, so that an edited file is in force at the next start.
    """
    wanted = compile_policy(policy.pairs)
    try:
        current = server.current(space_id)
    except SpaceNotFound:
        create = CreateSpace(space_id, policy=policy.pairs, source=policy.source, operators_needed=1)
        server.perform(SpaceCommand(space_id, operator, create))
        return
    if current.policy.policy_hash == wanted.policy_hash:
        return
    changed = _propose_change(server, current, operator, wanted, policy.source)
    if changed.policy.policy_hash != wanted.policy_hash:
        change_id = _name_change(wanted)
        raise GuardError(
            f"space `{space_id}` has another policy than `{file}`; a second operator has to authorise policy change"
            f" `{change_id}`, or name another `space`"
        )


def _name_change(wanted: Policy) -> str:
    return f"file-{wanted.policy_hash[:16]}"


def _propose_change(
    server: SubstrateServer, space: Space, operator: Actor, wanted: Policy, source: PolicySource
) -> Space:
    """Propose the policy of a file for a space that has another, once; what the space is then."""
    change_id = _name_change(wanted)
    if change_id in space.policy_changes:
        return space
    before, after = space.policy.pairs, wanted.pairs
    change = ProposePolicy(
        change_id,
        space.policy.policy_hash,
        {key: text for key, text in after.items() if before.get(key) != text},
        sorted(key for key in before if key not in after),
        reason="the policy file changed",
        source=source,
    )
    return server.perform(SpaceCommand(space.space_id, operator, change)).space
