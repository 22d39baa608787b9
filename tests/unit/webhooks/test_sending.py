"""Keys, signatures, and where requests may go. Nothing is sent but to the loopback interface."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from standardwebhooks import Webhook as Verifier
from standardwebhooks import WebhookVerificationError

from cmbs.addresses import Reach, classify_address
from cmbs.errors import InvalidRequest
from cmbs.messages import Actor, ActorKind
from cmbs.stores.memory import InMemoryStore
from cmbs.system import SystemClock
from cmbs.webhooks.dispatcher import _to_seconds
from cmbs.webhooks.kernel.model import Settings
from cmbs.webhooks.keys import WebhookKey
from cmbs.webhooks.registry import WebhookRegistry
from cmbs.webhooks.sending import AddressRefused, EgressRules, Sender
from cmbs.webhooks.signing import sign
from tests.support.subtests import for_each
from tests.support.webhook_receiver import receiving

KEY = WebhookKey(bytes(range(32)))
OPS = Actor(ActorKind.OPERATOR, "ops")


# --- keys ---


@pytest.mark.req("WEBHOOK-03")
def test_a_key_is_made_once_and_is_for_its_account_alone(tmp_path: Path) -> None:
    path = tmp_path / "webhook.key"
    first = WebhookKey.open(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert WebhookKey.open(path).derive_secret("a", 1) == first.derive_secret("a", 1)
    path.chmod(0o644)
    with pytest.raises(InvalidRequest, match="other accounts"):
        WebhookKey.open(path)
    path.chmod(0o600)
    for text in ("", "cmbs-webhook-key:AAAA", "cmbs-webhook-key:*", "another"):
        path.write_text(text)
        with pytest.raises(InvalidRequest, match="holds no webhook key"):
            WebhookKey.open(path)
    with pytest.raises(InvalidRequest, match="cannot use"):
        WebhookKey.open(tmp_path / "nowhere" / "webhook.key")


@pytest.mark.req("WEBHOOK-02", "WEBHOOK-08")
def test_secrets_and_marks_are_of_one_webhook_one_number_and_one_key() -> None:
    other = WebhookKey(bytes(32))
    secrets = {key.derive_secret(name, n) for key in (KEY, other) for name in ("a", "b") for n in (1, 2)}
    assert len(secrets) == 8
    assert all(each.startswith("whsec_") for each in secrets)
    settings = Settings("a", "https://a.example", ("gate.opened",))
    moved = Settings("a", "https://b.example", ("gate.opened",))
    marks = {key.mark(each, n) for key in (KEY, other) for each in (settings, moved) for n in (1, 2)}
    assert len(marks) == 8


@pytest.mark.req("WEBHOOK-02")
def test_another_implementation_verifies_either_of_two_secrets_while_both_are_good() -> None:
    registry = WebhookRegistry(InMemoryStore(), KEY)
    made = registry.create(Settings("a", "https://a.example", ("gate.opened",)), OPS)
    assert made.secret is not None
    rotated = registry.rotate("a", 2, OPS, overlap_seconds=3600)
    assert rotated.secret is not None
    now = SystemClock().now()
    body = b'{"a":"\xc3\xa4"}'
    headers = sign("msg_1", _to_seconds(now), body, KEY.secrets_of(rotated.webhook, now))
    for secret in (made.secret, rotated.secret):
        assert Verifier(secret).verify(body, headers) == {"a": "ä"}
    for forged_body, forged in ((body + b" ", headers), (body, {**headers, "webhook-id": "msg_2"})):
        with pytest.raises(WebhookVerificationError):
            Verifier(rotated.secret).verify(forged_body, forged)
    over = KEY.secrets_of(rotated.webhook, "9999-01-01T00:00:00.000000Z")
    with pytest.raises(WebhookVerificationError):
        Verifier(made.secret).verify(body, sign("msg_1", _to_seconds(now), body, over))
    assert registry.rotate("a", 2, OPS).secret is None
    with pytest.raises(InvalidRequest, match="overlap_seconds"):
        registry.rotate("a", 3, OPS, overlap_seconds=7 * 24 * 3600 + 1)


# --- addresses ---


@pytest.mark.req("WEBHOOK-07")
@for_each(
    ("address", "reach"),
    [
        ("127.0.0.1", Reach.LOOPBACK),
        ("127.9.9.9", Reach.LOOPBACK),
        ("::1", Reach.LOOPBACK),
        ("::ffff:127.0.0.1", Reach.LOOPBACK),
        ("64:ff9b::7f00:1", Reach.LOOPBACK),
        ("10.0.0.1", Reach.PRIVATE),
        ("172.16.0.1", Reach.PRIVATE),
        ("192.168.1.1", Reach.PRIVATE),
        ("169.254.169.254", Reach.PRIVATE),
        ("100.64.0.1", Reach.PRIVATE),
        ("0.0.0.0", Reach.PRIVATE),
        ("224.0.0.1", Reach.PRIVATE),
        ("255.255.255.255", Reach.PRIVATE),
        ("::", Reach.PRIVATE),
        ("fe80::1", Reach.PRIVATE),
        ("fe80::1%eth0", Reach.PRIVATE),
        ("fd00::1", Reach.PRIVATE),
        ("ff02::1", Reach.PRIVATE),
        ("::ffff:10.0.0.1", Reach.PRIVATE),
        ("::ffff:169.254.169.254", Reach.PRIVATE),
        ("2002:a00:1::", Reach.PRIVATE),
        ("64:ff9b::a9fe:a9fe", Reach.PRIVATE),
        ("93.184.215.14", Reach.PUBLIC),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", Reach.PUBLIC),
        ("::ffff:93.184.215.14", Reach.PUBLIC),
    ],
)
def test_where_an_address_leads(address: str, reach: Reach) -> None:
    assert classify_address(address) is reach


def test_a_name_is_no_address() -> None:
    with pytest.raises(ValueError, match="example"):
        classify_address("example.com")


@pytest.mark.req("WEBHOOK-07")
@for_each(
    ("url", "by_default", "with_private"),
    [
        ("https://alerts.example/", True, True),
        ("https://93.184.215.14/", True, True),
        ("http://127.0.0.1:9/", True, True),
        ("https://[::1]:9/", True, True),
        ("http://localhost:9/", True, True),
        ("http://a.localhost:9/", True, True),
        ("http://alerts.example/", False, True),
        ("http://93.184.215.14/", False, False),
        ("https://10.0.0.1/", False, True),
        ("http://10.0.0.1/", False, True),
        ("https://169.254.169.254/latest", False, True),
        ("https://[fe80::1]/", False, True),
        ("https://[::ffff:10.0.0.1]/", False, True),
    ],
)
def test_which_addresses_can_be_registered(url: str, by_default: bool, with_private: bool) -> None:
    for rules, accepted in ((EgressRules(), by_default), (EgressRules(allow_private=True), with_private)):
        if accepted:
            rules.check_url(url)
        else:
            with pytest.raises(AddressRefused):
                rules.check_url(url)


class _Resolving:
    """Names that lead where a test says; nothing is asked of any network."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, addresses: dict[str, list[str]]) -> None:
        async def getaddrinfo(loop: Any, host: str, port: int, **_: Any) -> list[Any]:
            found = addresses.get(host, [host])
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

        monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", getaddrinfo)


@pytest.fixture
def sender() -> Any:
    made = Sender(timeout_seconds=5)
    yield made
    made.close()


@pytest.mark.req("WEBHOOK-07")
@pytest.mark.parametrize("addresses", [["10.0.0.1"], ["169.254.169.254"], ["127.0.0.1", "10.0.0.1"]])
def test_a_name_that_leads_into_a_private_network_is_refused(
    monkeypatch: pytest.MonkeyPatch, sender: Sender, addresses: list[str]
) -> None:
    with receiving() as receiver:
        port = receiver.url.split(":")[2].split("/")[0]
        _Resolving(monkeypatch, {"inner.localhost": addresses})
        sent = sender.send(f"http://inner.localhost:{port}/hook", b"{}", {})
        assert sent.status is None
        assert "private network" in sent.error
        assert receiver.requests.empty()


@pytest.mark.req("WEBHOOK-07")
def test_the_connection_goes_to_the_address_that_was_judged(monkeypatch: pytest.MonkeyPatch, sender: Sender) -> None:
    with receiving() as receiver:
        port = receiver.url.split(":")[2].split("/")[0]
        # The first address has no listener; the next is tried.
        _Resolving(monkeypatch, {"receiver.localhost": ["127.0.0.2", "127.0.0.1"]})
        sent = sender.send(f"http://receiver.localhost:{port}/hook?a=b", b"{}", {"webhook-id": "msg_1"})
        assert sent.status == 204
        received = receiver.take()
        assert received.headers["host"] == f"receiver.localhost:{port}"
        assert received.path == "/hook?a=b"


# --- what can come of a request ---


@pytest.mark.req("WEBHOOK-05")
def test_a_redirect_is_not_followed(sender: Sender) -> None:
    with receiving() as elsewhere, receiving() as receiver:
        receiver.usual, receiver.location = 307, elsewhere.url
        sent = sender.send(receiver.url, b"{}", {})
        assert (sent.status, sent.error) == (307, "a redirect, which is not followed")
        assert elsewhere.requests.empty()


def test_what_goes_wrong_is_part_of_the_result(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        refused = sender.send(f"http://127.0.0.1:{unused.getsockname()[1]}/", b"{}", {})
        assert refused.status is None
        assert refused.error.startswith("no answer: ")
    _Resolving(monkeypatch, {"nothing.localhost": []})
    assert "no address" in sender.send("http://nothing.localhost/", b"{}", {}).error


def test_an_answer_that_drips_in_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        connections: list[socket.socket] = []
        # It accepts and says nothing.
        thread = Thread(target=lambda: connections.append(listening.accept()[0]), daemon=True)
        thread.start()
        sender = Sender(timeout_seconds=0.2)
        sent = sender.send(f"http://127.0.0.1:{listening.getsockname()[1]}/", b"{}", {})
        sender.close()
        thread.join()
        assert (sent.status, sent.error) == (None, "no answer within 0.2 seconds")
        for each in connections:
            each.close()


def test_what_is_under_way_is_called_off_when_the_server_stops() -> None:
    with receiving() as receiver:
        receiver.answering.clear()
        sender = Sender(timeout_seconds=60)
        thread = Thread(target=lambda: results.append(sender.send(receiver.url, b"{}", {})))
        results: list[Any] = []
        thread.start()
        receiver.take()
        sender.close()
        thread.join()
        assert results[0].error == "the server was stopping"
        assert sender.send(receiver.url, b"{}", {}).error == "the server was stopping"
