"""A server whose webhooks are sent at once, an endpoint of its own, and callers: what happens, and what is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import httpx2

from cmbs.belief.server import BeliefServer
from cmbs.bootstrap import build_substrate
from cmbs.client import Client, connect
from cmbs.http import BeliefApp
from cmbs.http.service import Service
from cmbs.stores import open_store
from cmbs.webhooks.dispatcher import Dispatcher
from cmbs.webhooks.kernel.model import SUBSCRIBABLE
from cmbs.webhooks.keys import WebhookKey
from cmbs.webhooks.registry import WebhookRegistry
from cmbs.webhooks.sending import Sender
from tests.support.in_process import client_of
from tests.support.transports import ONTOLOGY
from tests.support.webhook_receiver import Received, Receiver

ALL = [each.value for each in SUBSCRIBABLE]
KEY = WebhookKey(bytes(range(32)))


class Telling:
    """One process over a store."""

    def __init__(self, store: str, key: WebhookKey = KEY, *, retry_seconds: float = 0.01) -> None:
        self.belief = BeliefServer(store=open_store(store))
        self.spaces = build_substrate(self.belief, {})
        self.spaces.start(0.05)
        self.registry = WebhookRegistry(self.belief.log, key)
        sender = Sender(timeout_seconds=20)
        self.dispatcher = Dispatcher(self.registry, self.belief, self.spaces, sender, retry_seconds=retry_seconds)
        self.app = BeliefApp(Service(self.belief, spaces=self.spaces, dispatcher=self.dispatcher))

    def close(self) -> None:
        """Stop, as a server does."""
        self.app.close()


class Told:
    """Callers of a process, and an endpoint."""

    def __init__(self, process: Telling, operator: Client, agent: Client, receiver: Receiver) -> None:
        self.process = process
        self.operator = operator
        self.agent = agent
        self.receiver = receiver
        self.secrets: dict[str, str] = {}

    def register(self, webhook_id: str, events: Sequence[str] = ALL, **filters: Any) -> None:
        """Register the endpoint, under a path of its own."""
        made = self.operator.create_webhook(webhook_id, f"{self.receiver.url}/{webhook_id}", events, filters=filters)
        assert made.secret is not None
        self.secrets[webhook_id] = made.secret

    def take(self) -> tuple[str, dict[str, Any]]:
        """The webhook that was told next, and what: its signature is good."""
        received = self.receiver.take()
        return received.path.rpartition("/")[2], self.verify(received)

    def verify(self, received: Received) -> dict[str, Any]:
        """What was sent."""
        content: dict[str, Any] = received.verify(self.secrets[received.path.rpartition("/")[2]])
        return content

    def get(self, path: str) -> httpx2.Response:
        """What the operator gets at a path that was told."""
        with client_of(self.process.app) as http:
            return http.get(path, headers={"x-cmbs-actor": "operator:ops"})

    def declare(self, **more: Any) -> str:
        """A session over two hypotheses."""
        declared = self.agent.declare_session(ontology=ONTOLOGY, hypotheses=["a", "b"], **more)
        return declared.session_id


@contextmanager
def telling(store: str, receiver: Receiver) -> Iterator[Told]:
    """A process that sends, and callers of it."""
    with (
        closing(Telling(store)) as process,
        connect(process.app, actor="operator:ops") as operator,
        connect(process.app, actor="agent:planner") as agent,
    ):
        process.dispatcher.start()
        yield Told(process, operator, agent, receiver)
