"""A session for each incident of a telemetry set, its windows sent as they are; does the true cause survive?

The set is made here, in the shape that public ones have: services that call each other, metrics of each, a baseline of
samples, and for each incident a window of samples and one cause. A table of causes and metrics becomes the kit; the
server reads the windows by what the kit declares. Needs a running server (`make serve`).

    python examples/telemetry_incidents.py [http://127.0.0.1:8080 [INCIDENTS [SEED]]]
"""

from __future__ import annotations

import json
import random
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple

from cmbs.documents.csv_text import Table
from cmbs.kit import Reduction, Window
from cmbs.kit.table import TableOptions, baselines_from, kit_from_table
from cmbs.kit.writing import format_kit

DEFAULT_URL = "http://127.0.0.1:8080"
# Who calls whom: what is wrong with a service shows in those that call it.
CALLS = {
    "web": ["cart", "search"],
    "cart": ["orders", "sessions"],
    "search": ["catalogue"],
    "orders": ["payments", "orders-db"],
    "catalogue": ["catalogue-db"],
}
SERVICES = sorted({*CALLS, *(callee for callees in CALLS.values() for callee in callees)})
# What each fault does to the metrics of its service; a failing or slow service makes its callers so.
FAULTS = {
    "cpu": {"cpu": "high", "latency": "high"},
    "memory-leak": {"memory": "high", "errors": "high"},
    "bad-deploy": {"errors": "high"},
    "traffic-loss": {"requests": "low"},
}
SPREADING = ("latency", "errors")
# The median of a metric and how far it spreads. No error in the baseline: a metric that never moves.
METRICS = {
    "cpu": (40.0, 3.0),
    "memory": (60.0, 2.0),
    "latency": (120.0, 9.0),
    "errors": (0.0, 0.0),
    "requests": (300.0, 20.0),
}
BASELINE_SAMPLES, WINDOW_SAMPLES = 120, 30


class Incident(NamedTuple):
    """One cause, and what was measured while it held: a window of samples for each metric."""

    cause: str
    windows: dict[str, list[float]]


def find_callers(service: str) -> Iterator[str]:
    """Every service that a fault of this one shows in, itself among them."""
    yield service
    for caller, callees in CALLS.items():
        if service in callees:
            yield from find_callers(caller)


def find_effects(cause: str) -> dict[str, str]:
    """The metrics that a cause moves, and where to."""
    service, _, fault = cause.partition("/")
    effects = {f"{service}.{metric}": side for metric, side in FAULTS[fault].items()}
    for metric in set(FAULTS[fault]).intersection(SPREADING):
        effects |= {f"{caller}.{metric}": "high" for caller in find_callers(service)}
    return effects


def measure(dice: random.Random, metric: str, side: str | None, samples: int) -> list[float]:
    """Samples of a metric. One that is moved shows it in some of them only, as real ones do."""
    median, spread = METRICS[metric.partition(".")[2]]
    # Within what the baseline calls normal, so that a calm metric is never abnormal by chance alone.
    values = [round(median + max(-2.0, min(2.0, dice.gauss(0, 1))) * spread, 3) for _ in range(samples)]
    if side is not None:
        step = (12 * spread or 5.0) * (1 if side == "high" else -1)
        for number in dice.sample(range(samples), samples // 3):
            values[number] = round(values[number] + step * dice.uniform(1, 2), 3)
    return values


def make_kit(dice: random.Random) -> str:
    """The kit of a table of causes and metrics, with baselines of samples; a window is abnormal where a sample is."""
    causes = [f"{service}/{fault}" for service in SERVICES for fault in FAULTS]
    metrics = [f"{service}.{metric}" for service in SERVICES for metric in METRICS]
    cells = [tuple(find_effects(cause).get(metric, "normal") for cause in causes) for metric in metrics]
    table = Table("causes.csv", ("cause", *metrics), tuple(range(2, len(causes) + 2)), (tuple(causes), *cells))
    baseline = [tuple(map(repr, measure(dice, metric, None, BASELINE_SAMPLES))) for metric in metrics]
    samples = Table("baseline.csv", tuple(metrics), tuple(range(2, BASELINE_SAMPLES + 2)), tuple(baseline))
    options = TableOptions("cause", window=Window(Reduction.ANY))
    return format_kit(
        kit_from_table(table, options, baselines_from(samples, metrics), kit_id="telemetry").kit, "k.json"
    )


def make_incidents(dice: random.Random, number: int) -> Iterator[Incident]:
    """Incidents with one cause each, and the windows of every metric."""
    for _ in range(number):
        cause = f"{dice.choice(SERVICES)}/{dice.choice(sorted(FAULTS))}"
        effects = find_effects(cause)
        metrics = [f"{service}.{metric}" for service in SERVICES for metric in METRICS]
        yield Incident(cause, {each: measure(dice, each, effects.get(each), WINDOW_SAMPLES) for each in metrics})


def call(url: str, body: bytes, actor: str = "agent:on-call") -> dict[str, Any]:
    headers = {"content-type": "application/json", "x-cmbs-actor": actor}
    request = urllib.request.Request(url, body, headers, method="POST")
    with urllib.request.urlopen(request, timeout=30) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def investigate(url: str, incident: Incident) -> list[str]:
    """A session of its own: every window that the kit has a probe for, sent as it is; what survives."""
    declared = call(f"{url}/v1/sessions", json.dumps({"kit": {"id": "telemetry"}}).encode())
    observations = f"{url}/v1/sessions/{declared['session_id']}/observations"
    survivors: list[str] = declared["snapshot"]["survivors"]
    for metric, samples in incident.windows.items():
        seen = json.dumps({"probe_id": metric, "response": samples}).encode()
        survivors = call(observations, seen)["snapshot"]["survivors"]
    return survivors


def main(url: str, number: int, seed: str) -> int:
    dice = random.Random(seed)
    call(f"{url}/v1/kits", make_kit(dice).encode(), "operator:desk")
    kept = left = 0
    for incident in make_incidents(dice, number):
        survivors = investigate(url, incident)
        kept += incident.cause in survivors
        left += len(survivors)
        print(f"{incident.cause:28} {'kept' if incident.cause in survivors else 'LOST'}, {len(survivors)} left")
    print(
        f"the truth survived in {kept} of {number}; "
        f"{left / number:.1f} of {len(SERVICES) * len(FAULTS)} causes left on average"
    )
    return 0 if kept == number else 1


if __name__ == "__main__":
    arguments = [*sys.argv[1:], "", "", ""]
    try:
        sys.exit(main(arguments[0] or DEFAULT_URL, int(arguments[1] or 12), arguments[2] or "0"))
    except urllib.error.URLError as exc:
        sys.exit(f"no server there: {exc}")
