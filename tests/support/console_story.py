"""An incident over HTTP for tests of the console: an open session, four sources, refusals, an open obligation."""

from __future__ import annotations

from copy import copy
from typing import Any

import httpx2

from cmbs.adapters.sre import FIRING, SILENT
from cmbs.adapters.sre.webshop import closed_kit
from cmbs.kit import ontology_of

TITLE = "Checkout is slow at the evening peak"
METRICS, TRACES, CLUSTER, ON_CALL = "agent://metrics", "agent://traces", "agent://cluster", "human://on-call"
# Where the story leaves the session: what is left, of how many, after which event.
LEFT, UNIVERSE, HEAD = 4, 24, 11


class Incident:
    """A session on a server; every method is one event."""

    def __init__(self, client: httpx2.Client, title: str = TITLE, **more: Any) -> None:
        self._client = client
        ontology = ontology_of(closed_kit()).to_dict()
        # A person on call rules out by list, too, and what was concluded is looked at in any order.
        policy = {"eliminations": "any", "conclusions": "survivors"}
        body = {"ontology": ontology, "provider": "webshop-closed", "policy": policy, "title": title, **more}
        self.id: str = self._post("/v1/sessions", body)["session_id"]
        self.path = f"/v1/sessions/{self.id}"

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._client.post(path, json=body, timeout=60)
        assert answer.is_success, answer.text
        content: dict[str, Any] = answer.json()
        return content

    def probe(self, source: str, probe_id: str, finds: str) -> dict[str, Any]:
        """An agent looks at an alert."""
        return self._post(f"{self.path}/observations", {"source_id": source, "probe_id": probe_id, "response": finds})

    def eliminate(self, source: str, observation: str, *ids: str) -> dict[str, Any]:
        """An observation by free hand."""
        body = {"source_id": source, "observation_id": observation, "eliminated": list(ids)}
        return self._post(f"{self.path}/eliminate", {**body, "justification": {"note": "seen on the dashboard"}})

    def enter(self, obligation: str, needed: int) -> None:
        """An obligation begins."""
        self._post(f"{self.path}/obligations", {"obligation_id": obligation, "min_total_eliminations": needed})

    def leave(self, obligation: str) -> None:
        """A request to leave it."""
        self._post(f"{self.path}/obligations/{obligation}/exit", {})

    def conclude(self, conclusion: str) -> None:
        """A conclusion."""
        self._post(f"{self.path}/conclusions", {"conclusion_id": conclusion})

    def close(self) -> None:
        """A request to end the session."""
        self._post(f"{self.path}/terminate", {})

    def fork(self, at: int) -> Incident:
        """A session that begins as this one was right after an event."""
        other = copy(self)
        other.id = self._post(f"{self.path}/fork", {"at": at})["session_id"]
        other.path = f"/v1/sessions/{other.id}"
        return other


def tell(client: httpx2.Client, title: str = TITLE) -> Incident:
    """The story up to where a person looks at it: 4 of 24 left, one more to rule out before a conclusion counts."""
    incident = Incident(client, title)
    incident.enter("look-before-concluding", 21)
    incident.probe(METRICS, "QueueBacklog@event-queue", SILENT)
    incident.probe(TRACES, "ErrorRateHigh@storefront", SILENT)
    incident.conclude("card-provider-throttling")
    incident.probe(CLUSTER, "QueueBacklog@event-queue", SILENT)
    incident.eliminate(ON_CALL, "the certificate was renewed", "payments-certificate-expired")
    incident.leave("look-before-concluding")
    incident.probe(TRACES, "SlowResponses@storefront", FIRING)
    incident.probe(METRICS, "CpuSaturated@node-pool", SILENT)
    incident.close()
    incident.probe(CLUSTER, "CpuSaturated@node-pool", SILENT)
    return incident


def tell_again(first: Incident) -> Incident:
    """Another run: the first four events are the same, then agents look elsewhere, until nothing is left."""
    second = first.fork(3)
    second.probe(METRICS, "CpuSaturated@node-pool", SILENT)
    second.probe(TRACES, "SlowResponses@storefront", SILENT)
    second.probe(CLUSTER, "LockWaitsHigh@orders-db", FIRING)
    return second
