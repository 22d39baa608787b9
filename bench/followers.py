"""Conclusions on one session over HTTP from 32 connections, while a thousand follow it and while none does.

One server over SQLite; rounds with followers and without take turns. The followers are in a process of their own and
read whatever comes. `python -m bench.followers PORT PATH COUNT` is that process: it prints a line once all are
connected, and at the end of its input how many entries came.
"""

from __future__ import annotations

import selectors
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

import msgspec

from bench.harness import ONTOLOGY, Effort, Result, at_least, hypothesis_ids, shown
from bench.load import LoadReport, drive, post
from bench.servers import HOST, REPOSITORY, cmbs_serve, disk_directory, post_all

NAME = "followers"
FOLLOWERS = 1_000
CONNECTIONS = 32
SESSION_SIZE = 10
_READ_BYTES = 1 << 18

_conclusion = count()


class _Declared(msgspec.Struct):
    session_id: str


def run(effort: Effort) -> list[Result]:
    """Writes with followers against writes without."""
    alone: list[LoadReport] = []
    followed: list[LoadReport] = []
    received = 0
    options = ("--max-connections", str(FOLLOWERS + 200))
    with (
        disk_directory() as directory,
        cmbs_serve(f"sqlite:///{directory}/bench.db", *options, CMBS_MAX_FOLLOWERS=str(FOLLOWERS)) as port,
    ):
        body = msgspec.json.encode({"ontology": ONTOLOGY, "hypotheses": hypothesis_ids(SESSION_SIZE)})
        (answer,) = post_all(port, "/v1/sessions", [body])
        path = f"/v1/sessions/{msgspec.json.decode(answer, type=_Declared).session_id}"
        _write(port, path, CONNECTIONS)
        for _ in range(effort.rounds):
            alone.append(_write(port, path, effort.operations))
            with _following(port, f"{path}/events") as counts:
                followed.append(_write(port, path, effort.operations))
            received += counts[0]
    rates = [statistics.median(report.rate for report in reports) for reports in (followed, alone)]
    slow = [statistics.median(report.p99 for report in reports) * 1e3 for reports in (followed, alone)]
    each = received / (FOLLOWERS * effort.rounds)
    return [
        Result(
            NAME,
            f"{FOLLOWERS} followers: {shown(rates[0])} writes/s, p99 {shown(slow[0])} ms; {shown(each)} entries each",
            f"none: {shown(rates[1])} writes/s, p99 {shown(slow[1])} ms",
            rates[0] / rates[1],
            at_least(0.9),
        )
    ]


def _write(port: int, path: str, operations: int) -> LoadReport:
    each = -(-operations // CONNECTIONS)
    plan = [
        [
            post(f"{path}/conclusions", msgspec.json.encode({"conclusion_id": f"conclusion-{next(_conclusion)}"}))
            for _ in range(each)
        ]
        for _ in range(CONNECTIONS)
    ]
    report = drive(port, plan)
    if report.not_ok:
        raise RuntimeError(f"{report.not_ok} answers were not 200; the first: {report.first_failure}")
    return report


@contextmanager
def _following(port: int, path: str) -> Iterator[list[int]]:
    """Follow while the block runs; the entries that came are counted at its end."""
    counts: list[int] = []
    command = [sys.executable, "-m", "bench.followers", str(port), path, str(FOLLOWERS)]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if process.stdin is None or process.stdout is None or process.stdout.readline() != "following\n":
        raise RuntimeError("the followers could not connect")
    yield counts
    process.stdin.close()
    counts.append(int(process.stdout.readline()))
    process.wait()


def follow(port: int, path: str, number: int) -> None:
    """Follow over so many connections until the input ends."""
    selector = selectors.DefaultSelector()
    request = f"GET {path} HTTP/1.1\r\nHost: {HOST}\r\nAccept: text/event-stream\r\n\r\n".encode()
    for _ in range(number):
        connection = socket.create_connection((HOST, port))
        connection.sendall(request)
        # The head of the answer: it is followed from now on.
        received = b""
        while b"event: head" not in received:
            received += connection.recv(_READ_BYTES)
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ)
    print("following", flush=True)
    selector.register(sys.stdin, selectors.EVENT_READ)
    entries = 0
    while True:
        for key, _ in selector.select():
            if key.fileobj is sys.stdin:
                print(entries, flush=True)
                return
            if isinstance(key.fileobj, socket.socket):
                entries += key.fileobj.recv(_READ_BYTES).count(b"event: entry")


if __name__ == "__main__":
    follow(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
