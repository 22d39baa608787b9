"""The console in Chromium: the slider over a large graph, a page that follows an hour of events, and a long session.

A real server and the built console are driven. Times of the main thread are processor time, so that other work on the
machine is not counted; frames and paints are by the clock, and stand beside an empty page and a short session of the
same run. Where there is no Chromium or no built console, nothing is measured.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Any

import msgspec
from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from bench.harness import ONTOLOGY, Effort, Result, at_most, hypothesis_ids, shown
from bench.load import drive, post
from bench.servers import HOST, cmbs_serve, post_all, tee_serve
from cmbs.console import ConsoleFiles
from cmbs.tee.client import open_channel, stub_on
from cmbs.tee.proto import tee_pb2 as pb
from scripts.install_chromium import find_chromium

NAME = "console"
NODES, EDGES, GRAPH_EVENTS = 2_000, 8_000, 100
UNIVERSE, LONG, SHORT = 4_000, 10_000, 10
# Ten events a second for an hour, looked at after each third.
FOLLOWED = (12_000, 24_000, 36_000)
SOURCES, CONNECTIONS = 6, 8
STEPS = 240
TIMEOUT_MS = 180_000.0
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--enable-precise-memory-info")
BLANK = "<!doctype html><title>empty</title><input type=range min=0 max=100 aria-label=Event>"

# One step a frame, as a hand on the slider moves it; when each frame came.
DRAG = """async ([last, steps]) => {
  const slider = document.querySelector("input[type=range]");
  const frames = [];
  for (let step = 0; step <= steps; step++) {
    frames.push(await new Promise(requestAnimationFrame));
    slider.value = String(Math.abs((step * 7) % (2 * last) - last));
    slider.dispatchEvent(new Event("input", {bubbles: true}));
  }
  return frames;
}"""
# The browser looks for larger paints until the first key. Where that came first, the first paint is all there is.
PAINTS = """() => new Promise((resolve) => {
  const first = performance.getEntriesByName("first-contentful-paint")[0];
  setTimeout(() => resolve([first.startTime, first.startTime]), 1000);
  new PerformanceObserver((list) => resolve([first.startTime, list.getEntries().at(-1).startTime]))
    .observe({type: "largest-contentful-paint", buffered: true});
})"""

_observation = count()


@dataclass(frozen=True, slots=True)
class Drag:
    """What a slider did: frames that were dropped, and the processor time of the main thread for each step."""

    dropped: int
    step_ms: float


@dataclass(frozen=True, slots=True)
class Opening:
    """When a page painted first and most, when it answered to a key, and the processor time until then; seconds."""

    first: float
    largest: float
    reacts: float
    busy: float


@dataclass(frozen=True, slots=True)
class Memory:
    """What a page holds after a garbage collection."""

    heap: float
    nodes: float


def run(effort: Effort) -> list[Result]:
    """Measure the three bars; nothing where there is no Chromium or no console."""
    program = find_chromium()
    if program is None or ConsoleFiles().find_page("") is None:
        print("  skipped: it needs Chromium and the console that `make console` builds", file=sys.stderr)
        return []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            with tee_serve("memory:") as tee, cmbs_serve("memory:", "--tee", f"{HOST}:{tee}") as port:
                slider = _measure_slider(browser, port, _merge_graph(tee), effort)
            with cmbs_serve("memory:") as port:
                return [*slider, *_measure_opening(browser, port, effort), *_measure_memory(browser, port)]
        finally:
            browser.close()


# --- the slider over a graph ---


def _merge_graph(port: int) -> list[str]:
    """A graph in layers, the same every time; the ids of its nodes."""
    said = pb.Provenance(source="agent://bench", trigger="scan")
    kinds = (pb.NODE_TYPE_MECHANISM, pb.NODE_TYPE_INFRASTRUCTURE, pb.NODE_TYPE_DEPENDENCY, pb.NODE_TYPE_SERVICE)
    ids = [f"unit-{number:04d}" for number in range(NODES)]
    nodes = [
        pb.Node(id=each, type=kinds[at * len(kinds) // NODES], label=each, hypothetical=True, provenance=[said])
        for at, each in enumerate(ids)
    ]
    pairs: dict[tuple[int, int], None] = {}
    for number in count(1):
        start = number * 7919 % NODES
        end = start + 40 + number * 104_729 % 460
        if end < NODES:
            pairs[start, end] = None
        if len(pairs) == EDGES:
            break
    edges = [
        pb.Edge(source=ids[start], target=ids[end], type=pb.EDGE_TYPE_PROPAGATES_TO, provenance=[said])
        for start, end in pairs
    ]
    with open_channel(f"{HOST}:{port}") as channel:
        calls = stub_on(channel)
        calls.MergeHypothesis(pb.HypothesisDelta(nodes=nodes), timeout=60)
        for first in range(0, EDGES, 2_000):
            calls.MergeHypothesis(pb.HypothesisDelta(edges=edges[first : first + 2_000]), timeout=60)
    return ids


def _measure_slider(browser: Browser, port: int, ids: list[str], effort: Effort) -> list[Result]:
    session = _declare(port, ids, causal_graph_ref="tee:main", causal_graph_version="")
    each = NODES // GRAPH_EVENTS
    for number in range(GRAPH_EVENTS - 1):
        _eliminate(port, session, ids[number * each : (number + 1) * each])
    over_graph: list[Drag] = []
    empty: list[Drag] = []
    with _open(browser, port) as (page, tools), _open(browser, port) as (blank, blank_tools):
        page.goto(f"/cases/{session}/graph")
        page.get_by_role("img", name=f"Causal graph at event {GRAPH_EVENTS - 1}").wait_for(timeout=TIMEOUT_MS)
        blank.set_content(BLANK)
        _drag(page, tools)
        for _ in range(effort.rounds):
            over_graph.append(_drag(page, tools))
            empty.append(_drag(blank, blank_tools))
    dropped, dropped_empty = (sum(drag.dropped for drag in drags) for drags in (over_graph, empty))
    step, step_empty = (statistics.median(drag.step_ms for drag in drags) for drags in (over_graph, empty))
    frames = STEPS * effort.rounds
    return [
        Result(
            NAME,
            f"slider over {NODES:,} nodes and {EDGES:,} edges: {dropped} of {frames:,} frames dropped",
            f"an empty page: {dropped_empty}",
            100 * (dropped - dropped_empty) / frames,
            at_most(1, "% more"),
        ),
        Result(
            NAME,
            f"a step of it: {shown(step)} ms of the main thread",
            f"an empty page: {shown(step_empty)} ms",
            step - step_empty,
            # A frame has 16.7 ms.
            at_most(12, "ms more"),
        ),
    ]


def _drag(page: Page, tools: CDPSession) -> Drag:
    page.bring_to_front()
    before = _read_metrics(tools)["TaskDuration"]
    frames: list[float] = page.evaluate(DRAG, [GRAPH_EVENTS - 1, STEPS])
    busy = _read_metrics(tools)["TaskDuration"] - before
    gaps = [after - earlier for earlier, after in pairwise(frames)]
    # Of the screen, 60 a second: a gap of two intervals is one frame that did not come.
    dropped = sum(max(0, round(gap * 60 / 1000) - 1) for gap in gaps)
    return Drag(dropped, 1000 * busy / STEPS)


# --- a long session ---


def _measure_opening(browser: Browser, port: int, effort: Effort) -> list[Result]:
    long, short = _declare(port, hypothesis_ids(UNIVERSE)), _declare(port, hypothesis_ids(UNIVERSE))
    _write(port, long, LONG - 1)
    _write(port, short, SHORT - 1)
    opened: dict[str, list[Opening]] = {long: [], short: []}
    for _ in range(effort.rounds):
        for session, size in ((long, LONG), (short, SHORT)):
            opened[session].append(_open_session(browser, port, session, size))
    at_length, at_once = (_take_median(opened[session]) for session in (long, short))
    return [
        Result(
            NAME,
            f"{LONG:,} events: first paint {shown(at_length.first)} s, largest {shown(at_length.largest)} s",
            f"{SHORT} events: {shown(at_once.first)} s, {shown(at_once.largest)} s",
            at_length.first,
            at_most(1, "s"),
        ),
        Result(
            NAME,
            f"{LONG:,} events: whole, and answers a key after {shown(at_length.reacts)} s, "
            f"{shown(at_length.busy)} s of the main thread",
            f"{SHORT} events: {shown(at_once.reacts)} s, {shown(at_once.busy)} s",
            at_length.reacts,
            at_most(2, "s"),
        ),
    ]


def _open_session(browser: Browser, port: int, session: str, size: int) -> Opening:
    with _open(browser, port) as (page, tools):
        page.goto(f"/cases/{session}")
        _wait_for_event(page, size - 1, size - 1)
        page.keyboard.press("ArrowLeft")
        _wait_for_event(page, size - 2, size - 1)
        reacts: float = page.evaluate("performance.now()")
        busy = _read_metrics(tools)["TaskDuration"]
        first, largest = page.evaluate(PAINTS)
        return Opening(first / 1000, largest / 1000, reacts / 1000, busy)


def _take_median(opened: list[Opening]) -> Opening:
    return Opening(
        statistics.median(each.first for each in opened),
        statistics.median(each.largest for each in opened),
        statistics.median(each.reacts for each in opened),
        statistics.median(each.busy for each in opened),
    )


# --- an hour that is followed ---


def _measure_memory(browser: Browser, port: int) -> list[Result]:
    session = _declare(port, hypothesis_ids(UNIVERSE))
    found: dict[int, Memory] = {}
    with _open(browser, port) as (page, tools):
        page.goto(f"/cases/{session}")
        page.get_by_text("live", exact=True).wait_for(timeout=TIMEOUT_MS)
        sent = 0
        for wanted in FOLLOWED:
            _write(port, session, wanted - sent)
            sent = wanted
            _wait_for_event(page, sent, sent)
            found[wanted] = _weigh(tools)
    first, last = found[FOLLOWED[0]], found[FOLLOWED[-1]]
    each = (last.heap - first.heap) / (FOLLOWED[-1] - FOLLOWED[0])
    return [
        Result(
            NAME,
            f"{FOLLOWED[-1]:,} events followed: heap {_show_heap(last)}, {shown(each)} bytes an event",
            "; ".join(f"{number:,}: {_show_heap(found[number])}" for number in FOLLOWED[:-1]),
            last.heap / first.heap,
            at_most(2),
        ),
        Result(
            NAME,
            f"{FOLLOWED[-1]:,} events followed: {last.nodes:,.0f} nodes in the document",
            f"{FOLLOWED[0]:,}: {first.nodes:,.0f}",
            last.nodes / first.nodes,
            at_most(1.1),
        ),
    ]


def _weigh(tools: CDPSession) -> Memory:
    # What is found dead in one collection can free more in the next.
    for _ in range(3):
        tools.send("HeapProfiler.collectGarbage")
    metrics = _read_metrics(tools)
    return Memory(metrics["JSHeapUsedSize"], metrics["Nodes"])


def _show_heap(memory: Memory) -> str:
    return f"{shown(memory.heap / 1e6)} MB"


# --- shared ---


@contextmanager
def _open(browser: Browser, port: int) -> Iterator[tuple[Page, CDPSession]]:
    """A page in a profile of its own, and the tools that measure it in processor time."""
    context = browser.new_context(base_url=f"http://{HOST}:{port}", viewport={"width": 1440, "height": 900})
    try:
        page = context.new_page()
        tools = context.new_cdp_session(page)
        tools.send("Performance.enable", {"timeDomain": "threadTicks"})
        yield page, tools
    finally:
        context.close()


def _read_metrics(tools: CDPSession) -> dict[str, float]:
    found: dict[str, Any] = tools.send("Performance.getMetrics")
    return {each["name"]: each["value"] for each in found["metrics"]}


def _wait_for_event(page: Page, at: int, head: int) -> None:
    shown_event = f"event {at} of {head},"
    page.wait_for_function(
        "text => document.querySelector('input[type=range]')?.getAttribute('aria-valuetext')?.startsWith(text)",
        arg=shown_event,
        timeout=TIMEOUT_MS,
    )


def _declare(port: int, ids: list[str], **ontology: str) -> str:
    body = {"ontology": {**ONTOLOGY.to_dict(), **ontology}, "hypotheses": ids, "title": "Measured"}
    (answer,) = post_all(port, "/v1/sessions", [msgspec.json.encode(body)])
    session_id: str = msgspec.json.decode(answer)["session_id"]
    return session_id


def _eliminate(port: int, session: str, ids: list[str]) -> None:
    body = {"source_id": "agent://bench", "observation_id": f"look-{next(_observation)}", "eliminated": ids}
    post_all(port, f"/v1/sessions/{session}/eliminate", [msgspec.json.encode(body)])


def _write(port: int, session: str, events: int) -> None:
    """So many events: reports of a few sources that rule out an id each or nothing new, and conclusions."""
    path = f"/v1/sessions/{session}"
    requests = []
    for _ in range(events):
        number = next(_observation)
        if number % 10 == 0:
            requests.append(post(f"{path}/conclusions", msgspec.json.encode({"conclusion_id": f"guess-{number}"})))
            continue
        report = {
            "source_id": f"agent://source-{number % SOURCES}",
            "observation_id": f"look-{number}",
            "eliminated": [f"hyp-{number % (UNIVERSE - 1):08d}"],
        }
        requests.append(post(f"{path}/eliminate", msgspec.json.encode(report)))
    answered = drive(port, [requests[first::CONNECTIONS] for first in range(CONNECTIONS)])
    if answered.not_ok:
        raise RuntimeError(f"{answered.not_ok} answers were not 200; the first: {answered.first_failure}")
