"""An incident to look at: checkout is slow, two agents look into it, and one of them concludes too early."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import msgspec

Say = Callable[[str], None]

_HYPOTHESES = [
    "cart-cache-eviction",
    "checkout-cpu-saturation",
    "checkout-memory-leak",
    "currency-service-latency",
    "dns-resolution-failure",
    "kafka-consumer-lag",
    "orders-db-connection-pool",
    "orders-db-lock-contention",
    "payment-gateway-throttling",
    "release-2026-03-regression",
    "shipping-quote-timeouts",
    "tls-certificate-expiry",
]
# (who, observation, what it rules out, why)
_OBSERVATIONS: list[tuple[str, str, list[str], dict[str, Any]]] = [
    ("metrics", "cpu-and-memory-normal", ["checkout-cpu-saturation", "checkout-memory-leak"], {"cpu_p95": 0.34}),
    ("traces", "downstream-spans-fast", ["currency-service-latency", "shipping-quote-timeouts"], {"p99_ms": 41}),
    ("metrics", "dns-and-tls-probes-green", ["dns-resolution-failure", "tls-certificate-expiry"], {"probes": 12}),
    ("traces", "payment-spans-fast", ["payment-gateway-throttling"], {"p99_ms": 88}),
    ("metrics", "dns-and-tls-probes-green", ["dns-resolution-failure", "tls-certificate-expiry"], {"probes": 12}),
    ("metrics", "queue-depth-flat", ["kafka-consumer-lag", "cart-cache-eviction"], {"lag": 3}),
    ("traces", "rollback-changed-nothing", ["release-2026-03-regression"], {"rolled_back_to": "2026-02"}),
    ("metrics", "lock-waits-zero", ["orders-db-lock-contention"], {"lock_waits": 0}),
]


def play_in_background(base: str, say: Say) -> threading.Thread:
    """Play the incident once the server answers; the thread ends by itself."""
    thread = threading.Thread(target=_play_when_ready, args=(base, say), name="cmbs-demo", daemon=True)
    thread.start()
    return thread


def _play_when_ready(base: str, say: Say) -> None:
    for _ in range(100):
        # First wait: the server's processes are being forked, and should not find this thread in the middle of things.
        time.sleep(0.1)
        try:
            _call(base, "GET", "/healthz")
        except OSError:
            continue
        break
    else:
        say("demo: the server did not answer in ten seconds")
        return
    try:
        play(base, say)
    except OSError as exc:
        say(f"demo: stopped: {exc}")


def play(base: str, say: Say, pause: float = 0.6) -> str:
    """Play the incident; the id of its session."""
    ontology = {
        "hypothesis_space_id": "demo-checkout",
        "hypothesis_version": "1",
        "causal_graph_ref": "graph://demo-shop",
        "causal_graph_version": "v1",
    }
    opened = _call(base, "POST", "/v1/sessions", {"ontology": ontology, "hypotheses": _HYPOTHESES})
    session_id: str = opened["session_id"]
    path = f"/v1/sessions/{session_id}"
    say(f"demo: checkout is slow; {len(_HYPOTHESES)} causes are possible (session {session_id})")
    _call(base, "POST", f"{path}/obligations", {"obligation_id": "look-before-concluding", "min_total_eliminations": 6})
    say("demo: nobody may conclude before 6 causes are ruled out")
    for number, (source, observation, gone, why) in enumerate(_OBSERVATIONS):
        time.sleep(pause)
        body = {"source_id": source, "observation_id": observation, "eliminated": gone, "justification": why}
        answer = _call(base, "POST", f"{path}/eliminate", body)
        belief = answer["snapshot"]
        say(f"demo: {source:>7} · {observation}: {belief['n_survivors']} left, {belief['entropy_proxy']:.2f} bits")
        if number == 1:
            refused = _call(base, "POST", f"{path}/conclusions", {"conclusion_id": "release-2026-03-regression"})
            say(f"demo:  traces · concludes too early: accepted={refused['accepted']} ({refused['reason']})")
        if number == len(_OBSERVATIONS) - 2:
            denied = _call(base, "POST", f"{path}/terminate", {})
            say(f"demo: metrics · wants to close: approved={denied['approved']} ({denied['reason']})")
    left = _call(base, "POST", f"{path}/obligations/look-before-concluding/exit", {})
    cause = left["snapshot"]["survivors"][0]
    concluded = _call(base, "POST", f"{path}/conclusions", {"conclusion_id": cause})
    closed = _call(base, "POST", f"{path}/terminate", {})
    say(f"demo: concluded {cause} (accepted={concluded['accepted']}), closed={closed['approved']}")
    say(f"demo: read it back at {base}{path}/audit")
    return session_id


def _call(base: str, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else msgspec.json.encode(body)
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(base + path, data, headers, method=method)  # noqa: S310 - our own server
    with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
        answer: dict[str, Any] = msgspec.json.decode(response.read())
    return answer
