"""`cmbs tee serve` as a process of its own, that may be killed and come back on the same port."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cmbs.tee.client import open_channel, stub_on
from cmbs.tee.proto import tee_pb2 as pb
from tests.support.http_server import TIMEOUT_SECONDS, environment_with, free_port, run_cmbs
from tests.support.tee import node
from tests.support.warm import start


def grow(port: int, node_ids: Iterable[str] = (), edges: Iterable[pb.Edge] = ()) -> int:
    """Merge into the main graph of the Tee on a port; the version that the graph has then."""
    with open_channel(f"127.0.0.1:{port}") as channel:
        delta = pb.HypothesisDelta(nodes=map(node, node_ids), edges=edges)
        merge = stub_on(channel).MergeHypothesis
        return int(merge(delta, timeout=TIMEOUT_SECONDS, wait_for_ready=True).causal_graph_version)


class TeeProcess:
    """A Tee over a store that outlives it."""

    def __init__(self, directory: Path, store_url: str, *arguments: str, **variables: str) -> None:
        self.directory = directory
        self.port = free_port()
        self.endpoint = f"127.0.0.1:{self.port}"
        self._command = ["cmbs", "tee", "serve", "--port", str(self.port), "--store", store_url, *arguments]
        self._variables = variables
        self.start()

    def start(self) -> None:
        """Serve; returns once it listens."""
        self._process = start(
            *self._command,
            cwd=self.directory,
            env=environment_with(self._variables),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert str(self.port) in self._process.stdout.readline()

    def stop(self, number: int) -> int:
        """End it by a signal; its exit code."""
        self._process.send_signal(number)
        code = self._process.wait(TIMEOUT_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def kill(self) -> None:
        """End it without any warning."""
        self.stop(signal.SIGKILL)

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command of `cmbs tee` against it."""
        return run_cmbs("tee", *arguments, directory=self.directory, variables={"CMBS_TEE": self.endpoint, **variables})

    def grow(self, node_ids: Iterable[str]) -> int:
        """Merge nodes into the main graph; its version then."""
        return grow(self.port, node_ids)


@contextmanager
def tee_serving(directory: Path, store_url: str, *arguments: str, **variables: str) -> Iterator[TeeProcess]:
    """A Tee that listens, and is ended in the end."""
    tee = TeeProcess(directory, store_url, *arguments, **variables)
    try:
        yield tee
    finally:
        tee.kill()
