"""An observation over HTTP beside an ELIMINATE of the same ids, from 32 connections, durable on SQLite.

One server, whose sessions are over one kit: a hundred hypotheses, and a probe for most of them, of which one answer
rules out ten ids. Half of the rounds send the probe and the answer, half the ids.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from contextlib import closing
from itertools import count
from typing import Any

import msgspec

from bench.harness import SOURCE, Effort, Result, at_most, hypothesis_ids, shown
from bench.load import LoadReport, drive, post
from bench.servers import cmbs_serve, disk_directory, post_all
from cmbs.belief.kernel.kit_stream import MediaType
from cmbs.belief.server import BeliefServer
from cmbs.stores import open_store

NAME = "http_observe"
CONNECTIONS = 32
SESSION_SIZE = 100
PROBES = 90
IDS_PER_ANSWER = 10
KIT_ID = "bench"

_number = count()


class _Declared(msgspec.Struct):
    session_id: str


def run(effort: Effort) -> list[Result]:
    """Compare both requests on one server, in turns."""
    observed: list[LoadReport] = []
    eliminated: list[LoadReport] = []
    with disk_directory() as directory:
        url = f"sqlite:///{directory}/bench.db"
        with closing(BeliefServer(store=open_store(url))) as server:
            server.kits.put(json.dumps(_make_kit()), MediaType.JSON)
        with cmbs_serve(url) as port:
            for request in (_observe, _eliminate):
                _load(port, request, CONNECTIONS * PROBES)
            for _ in range(effort.rounds):
                observed.append(_load(port, _observe, effort.operations))
                eliminated.append(_load(port, _eliminate, effort.operations))
    ratio = _rate(eliminated) / _rate(observed)
    return [Result(NAME, _describe("observation", observed), _describe("ELIMINATE", eliminated), ratio, at_most(1.3))]


def _load(port: int, request: Callable[[str, int], bytes], requests: int) -> LoadReport:
    """One round of load over new sessions; every answer must be a 200."""
    each = -(-requests // (CONNECTIONS * PROBES))
    body = msgspec.json.encode({"kit": KIT_ID})
    answers = post_all(port, "/v1/sessions", [body] * (CONNECTIONS * each))
    sessions = iter(msgspec.json.decode(answer, type=_Declared).session_id for answer in answers)
    plan = [
        [
            request(session_id, number)
            for session_id in [next(sessions) for _ in range(each)]
            for number in range(PROBES)
        ]
        for _ in range(CONNECTIONS)
    ]
    report = drive(port, plan)
    if report.not_ok:
        raise RuntimeError(f"{report.not_ok} answers were not 200; the first: {report.first_failure}")
    return report


def _observe(session_id: str, number: int) -> bytes:
    body = {"source_id": SOURCE, "probe_id": f"probe-{number}", "response": "gone"}
    return post(f"/v1/sessions/{session_id}/observations", msgspec.json.encode(body))


def _eliminate(session_id: str, number: int) -> bytes:
    observation = {"source_id": SOURCE, "observation_id": f"observation-{next(_number)}"}
    body = {**observation, "eliminated": _ids_of(number)}
    return post(f"/v1/sessions/{session_id}/eliminate", msgspec.json.encode(body))


def _ids_of(number: int) -> list[str]:
    """What the answer to a probe rules out: each probe one id more, and nine that others rule out too."""
    return hypothesis_ids(SESSION_SIZE)[number : number + IDS_PER_ANSWER]


def _make_kit() -> dict[str, Any]:
    probes = [
        {"id": f"probe-{number}", "outcomes": [{"id": "gone", "eliminates": _ids_of(number)}, _KEPT]}
        for number in range(PROBES)
    ]
    hypotheses = hypothesis_ids(SESSION_SIZE)
    return {"id": KIT_ID, "version": "1", "soundness": "sound", "hypotheses": hypotheses, "probes": probes}


_KEPT: dict[str, Any] = {"id": "here", "eliminates": []}


def _rate(reports: list[LoadReport]) -> float:
    return statistics.median(report.rate for report in reports)


def _describe(name: str, reports: list[LoadReport]) -> str:
    p50 = statistics.median(report.p50 for report in reports)
    p99 = statistics.median(report.p99 for report in reports)
    return f"{name}: {shown(_rate(reports))}/s, p50 {shown(p50 * 1e3)} ms, p99 {shown(p99 * 1e3)} ms"
