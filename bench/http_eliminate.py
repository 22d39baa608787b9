"""ELIMINATE over HTTP from 32 connections, n = 100: on SQLite and in memory, beside a plain FastAPI server with a dict.

All run under granian, at once, and take turns under load. Each request eliminates one id that still survives, so that
each one is a new event, answered with the survivors that are left.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count

import msgspec

from bench.harness import ONTOLOGY, SOURCE, Effort, Result, at_least, hypothesis_ids, shown
from bench.load import LoadReport, drive, post
from bench.servers import baseline, cmbs_serve, disk_directory, post_all

NAME = "http_eliminate"
CONNECTIONS = 32
SESSION_SIZE = 100
ELIMINATIONS_PER_SESSION = 90
DURABLE, MEMORY, DICT = "cmbs, sqlite", "cmbs, memory", "FastAPI with a dict"

_observation = count()


class _Declared(msgspec.Struct):
    session_id: str


@dataclass(slots=True)
class Subject:
    """A running server and what the load generator saw of it."""

    name: str
    port: int
    reports: list[LoadReport] = field(default_factory=list)

    def load(self, requests: int) -> None:
        """One round of load; every answer must be a 200."""
        report = drive(self.port, self._plan(requests))
        if report.not_ok:
            raise RuntimeError(f"{self.name}: {report.not_ok} answers were not 200; the first: {report.first_failure}")
        self.reports.append(report)

    def _plan(self, requests: int) -> list[list[bytes]]:
        """For each connection, its requests: sessions of its own, one after the other."""
        each = -(-requests // (CONNECTIONS * ELIMINATIONS_PER_SESSION))
        sessions = iter(self._declare(CONNECTIONS * each))
        return [[request for _ in range(each) for request in _eliminations(next(sessions))] for _ in range(CONNECTIONS)]

    def _declare(self, sessions: int) -> list[str]:
        body = msgspec.json.encode({"ontology": ONTOLOGY, "hypotheses": hypothesis_ids(SESSION_SIZE)})
        answers = post_all(self.port, "/v1/sessions", [body] * sessions)
        return [msgspec.json.decode(answer, type=_Declared).session_id for answer in answers]

    @property
    def rate(self) -> float:
        """Requests in a second, the median of the rounds."""
        return statistics.median(report.rate for report in self.reports)

    def __str__(self) -> str:
        p50 = statistics.median(report.p50 for report in self.reports)
        p99 = statistics.median(report.p99 for report in self.reports)
        return f"{self.name}: {shown(self.rate)}/s, p50 {shown(p50 * 1e3)} ms, p99 {shown(p99 * 1e3)} ms"


def run(effort: Effort) -> list[Result]:
    """Compare the servers under the same load."""
    with _servers() as subjects:
        for subject in subjects.values():
            subject.load(CONNECTIONS * ELIMINATIONS_PER_SESSION)
            subject.reports.clear()
        for _ in range(effort.rounds):
            for subject in subjects.values():
                subject.load(effort.operations)
    plain = subjects[DICT]
    return [
        Result(NAME, str(each), str(plain), each.rate / plain.rate, at_least(2.5))
        for each in (subjects[DURABLE], subjects[MEMORY])
    ]


@contextmanager
def _servers() -> Iterator[dict[str, Subject]]:
    with ExitStack() as stack:
        directory = stack.enter_context(disk_directory())
        ports = {
            DURABLE: stack.enter_context(cmbs_serve(f"sqlite:///{directory}/bench.db")),
            MEMORY: stack.enter_context(cmbs_serve("memory:")),
            DICT: stack.enter_context(baseline("fastapi_dict")),
        }
        yield {name: Subject(name, port) for name, port in ports.items()}


def _eliminations(session_id: str) -> list[bytes]:
    """The requests that take a session from all of its hypotheses to a few."""
    path = f"/v1/sessions/{session_id}/eliminate"
    return [
        post(
            path,
            msgspec.json.encode(
                {
                    "source_id": SOURCE,
                    "observation_id": f"observation-{next(_observation)}",
                    "eliminated": [hypothesis_id],
                    "justification": {"probe": "probe-1", "value": number},
                }
            ),
        )
        for number, hypothesis_id in enumerate(hypothesis_ids(ELIMINATIONS_PER_SESSION))
    ]
