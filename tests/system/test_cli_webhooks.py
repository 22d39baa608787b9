"""`cmbs webhooks` against a server with keys, as an operator meets it."""

import json
import re
from pathlib import Path

import pytest

from tests.support.cli import invoke
from tests.support.http_server import run_cmbs, serving
from tests.support.webhook_receiver import receiving


@pytest.mark.slow
@pytest.mark.req("WEBHOOK-01", "WEBHOOK-02", "WEBHOOK-03")
def test_an_endpoint_is_registered_tested_and_ended_from_a_shell(tmp_path: Path) -> None:
    key = run_cmbs("keys", "create", "--id", "ops", "--role", "operator", directory=tmp_path).stdout.strip()
    serve = ("--webhook-key", "webhook.key", "--webhook-retry", "60")
    with receiving() as receiver, serving(tmp_path, *serve) as server:
        assert "webhook.key" in server.output
        variables = {"CMBS_SERVER": server.url, "CMBS_KEY": key}

        def run(*arguments: str, code: int = 0) -> tuple[str, str]:
            ran = invoke("webhooks", *arguments, **variables)
            assert ran.exit_code == code, ran.output
            return ran.stdout, ran.stderr

        options = ("--url", receiver.url, "--event", "gate.opened", "--event", "ledger.corrupt")
        filters = ("--space", "shop", "--session", "s", "--label", "team:payments", "--description", "pages us")
        secret, said = run("create", "pager", *options, *filters)
        assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{43}=\n", secret)
        assert said == "webhook pager is registered; its secret is not shown again\n"
        assert run("create", "pager", *options, *filters) == ("", "webhook pager is registered, as it was before\n")
        shown = json.loads(run("show", "pager")[0])
        assert shown["filters"] == {"session_ids": ["s"], "space_ids": ["shop"], "labels": {"team": "payments"}}
        assert shown["created_by"] == "ops"
        tested, _ = run("test", "pager")
        assert re.search(r"delivered  webhook\.test .*\n  1  \S+  204  \d+ ms\n", tested)
        assert receiver.take().verify(secret.strip())["type"] == "webhook.test"
        second, _ = run("rotate", "pager", "--overlap", "0")
        assert second != secret
        receiver.usual = 500
        failed, _ = run("test", "pager", code=1)
        assert "500" in failed
        receiver.take()
        delivery_id = failed.split()[0]
        receiver.usual = 204
        assert run("redeliver", "pager", delivery_id)[1] == f"delivery {delivery_id} is sent again\n"
        again = receiver.take()
        assert (again.message_id, again.verify(second.strip())["type"]) == (delivery_id, "webhook.test")
        assert run("disable", "pager", "--reason", "moving")[1] == "webhook pager is disabled\n"
        listed, count = run("list")
        assert "pager  disabled (moving)  gate.opened, ledger.corrupt" in listed
        assert count == "1 webhook\n"
        assert run("enable", "pager", "--skip")[1] == "webhook pager is active\n"
        first, *_ = run("deliveries", "pager", "--json", "--status", "delivered")[0].splitlines()
        assert json.loads(first)["delivery_id"].startswith("msg_")
        assert run("delete", "pager", "--reason", "over")[1] == "webhook pager is deleted\n"
        assert json.loads("[" + ",".join(run("list", "--json")[0].splitlines()) + "]") == []
        assert "no webhook `pager`" in run("show", "pager", code=2)[1]
        printed = server.output
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.name != "webhook.key")
    for each in (secret, second):
        bare = each.strip().removeprefix("whsec_")
        assert bare.encode() not in kept
        assert bare not in printed


def test_a_webhook_key_that_cannot_be_used_is_reported_before_anything_starts(tmp_path: Path) -> None:
    key, store = tmp_path / "webhook.key", f"sqlite:///{tmp_path / 'cmbs.db'}"
    key.write_text("nothing")
    key.chmod(0o600)
    ran = invoke("serve", "--store", store, "--webhook-key", str(key))
    assert ran.exit_code == 2
    assert "holds no webhook key" in ran.stderr
    assert invoke("serve", "--store", store, CMBS_WEBHOOK_TIMEOUT="61").exit_code == 2


def test_a_server_without_a_webhook_key_says_how_to_get_one(tmp_path: Path) -> None:
    arguments = ("webhooks", "create", "w", "--url", "https://alerts.example", "--event", "gate.opened")
    ran = invoke(*arguments, "--server", f"sqlite:///{tmp_path / 'cmbs.db'}")
    assert ran.exit_code == 2
    assert "no webhook key" in ran.stderr
