"""`cmbs keys` and what `cmbs serve` makes of keys, as an operator meets both."""

import json
import re
import time
from pathlib import Path

import httpx2
import psutil
import pytest

from cmbs.identity.kernel.model import KEYS_STREAM
from cmbs.identity.tokens import holds_key
from cmbs.stores import SQLiteStore
from tests.support.http_server import TIMEOUT_SECONDS, ServerProcess, run_cmbs, serving
from tests.support.store_fixture import tampering
from tests.support.transports import DECLARATION
from tests.support.warm import CMBS

pytestmark = pytest.mark.slow

KEY = re.compile(r"cmbs_([0-9a-f]{16})_[0-9a-f]{64}\n")


def created(directory: Path, *arguments: str) -> tuple[str, str]:
    """The id and the text of a new key."""
    ran = run_cmbs("keys", "create", *(arguments or ("--id", "planner", "--role", "agent")), directory=directory)
    assert ran.returncode == 0, ran.stderr
    made = KEY.fullmatch(ran.stdout)
    assert made is not None
    assert not holds_key(ran.stderr.encode())
    assert made[1] in ran.stderr
    return made[1], ran.stdout.strip()


@pytest.mark.req("ID-CLI-01", "ID-KEY-01")
def test_a_key_is_shown_once_listed_by_its_id_and_revoked_by_it(tmp_path: Path) -> None:
    key_id, text = created(tmp_path, "--id", "[red]ops", "--role", "operator", "--expires", "never")
    options = ("--role", "reader", "--scope", "spaces:propose@shop", "--expires", "12h", "--label", "CI")
    other, _ = created(tmp_path, "--id", "p", *options)
    revoked = run_cmbs("keys", "revoke", key_id, "--reason", "it was lost", directory=tmp_path)
    assert (revoked.returncode, revoked.stderr) == (0, f"key {key_id} is revoked\n")
    listed = run_cmbs("keys", "list", directory=tmp_path)
    first, second = listed.stdout.splitlines()
    assert re.fullmatch(rf"{key_id}  revoked  operator:\[red\]ops  operator  revoked \S+ \(it was lost\)", first)
    assert re.fullmatch(rf"{other}  active   agent:p  reader, spaces:propose@shop  until \S+  CI", second)
    assert listed.stderr == "2 keys\n"
    lines = [json.loads(line) for line in run_cmbs("keys", "list", "--json", directory=tmp_path).stdout.splitlines()]
    assert [(line["key_id"], line["status"]) for line in lines] == [(key_id, "revoked"), (other, "active")]
    assert lines[1]["scopes"] == ["belief:read", "spaces:propose@shop", "spaces:read"]
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert text.encode() not in kept


@pytest.mark.req("ID-CLI-01")
def test_a_key_that_is_passed_as_an_argument_is_not_obeyed_and_not_repeated(tmp_path: Path) -> None:
    key_id, text = created(tmp_path)
    ran = run_cmbs("keys", "revoke", text, directory=tmp_path)
    assert ran.returncode == 2
    assert f"revoke it by its id, which is `{key_id}`" in ran.stderr
    assert text not in ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "--id", "x"], "a key needs a role or a scope"),
        (["create", "--id", "", "--role", "agent"], "`id` must not be empty"),
        (["create", "--id", "x", "--role", "agent", "--kind", "policy_engine"], "`--kind` must be one of"),
        (["create", "--id", "x", "--role", "agent", "--expires", "soon"], "`--expires` must be like"),
        (["create", "--id", "x", "--role", "agent", "--expires", "2031-01-01T00:00:00"], "needs a time zone"),
        (["create", "--id", "x", "--role", "agent", "--expires", "0001-01-01T00:00:00+14:00"], "must be like"),
        (["create", "--id", "x", "--role", "agent", "--expires", "2020-01-01T00:00:00Z"], "has passed"),
        (["create", "--id", "x", "--role", "agent", "--store", "memory:"], "lives in one process"),
        (["create", "--id", "x", "--role", "operator", "--kind", "agent"], "leave the kind out"),
        (["create", "--id", "x", "--scope", "belief:writ"], "`belief:writ` is no scope"),
        (["create", "--id", "x", "--scope", "belief:write@*"], "write `belief:write` for all ids"),
        (["list"], "there is no store"),
        (["revoke", "0123456789abcdef"], "there is no store"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path: Path, arguments: list[str], message: str) -> None:
    ran = run_cmbs("keys", *arguments, directory=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert message in ran.stderr


def test_keys_are_no_session(tmp_path: Path) -> None:
    created(tmp_path)
    with serving(tmp_path) as server:
        assert "  keys      1\n" in server.output
    assert run_cmbs("verify", directory=tmp_path).stdout == "0 sessions, 0 bad\n"
    assert run_cmbs("fsck", directory=tmp_path).stdout == "0 sessions, 0 events, 0 bad\n"


@pytest.mark.req("ID-KEY-05")
def test_a_stream_of_keys_that_was_changed_by_hand_is_found(tmp_path: Path) -> None:
    created(tmp_path)
    with tampering(tmp_path / "cmbs.db", "audit_events_no_update") as database:
        database.execute("UPDATE audit_events SET entry = replace(CAST(entry AS TEXT), 'planner', 'imposter')")
    checked = run_cmbs("fsck", directory=tmp_path)
    assert (checked.returncode, checked.stdout) == (1, "0 sessions, 0 events, 1 bad\n")
    assert "bad  identity:keys: audit_events.entry seq 0: LEDGER_CORRUPT: " in checked.stderr
    listed = run_cmbs("keys", "list", directory=tmp_path)
    assert (listed.returncode, listed.stdout) == (1, "")


# --- the server -------------------------------------------------------------------------------------------------------


@pytest.mark.req("ID-CLI-02")
@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_without_keys_it_listens_on_loopback_alone(tmp_path: Path, host: str) -> None:
    ran = run_cmbs("serve", "--host", host, "--store", "sqlite:///k.db", directory=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"`{host}` is open to others; make a key first: `cmbs keys create`" in ran.stderr


@pytest.mark.req("ID-CLI-02")
def test_with_keys_it_listens_wherever_it_is_asked_to(tmp_path: Path) -> None:
    _, text = created(tmp_path)
    with serving(tmp_path, "--host", "0.0.0.0") as server:
        assert httpx2.get(f"{server.url}/v1/sessions").status_code == 401
        headers = {"authorization": f"Bearer {text}"}
        assert httpx2.get(f"{server.url}/v1/sessions", headers=headers).status_code == 200


def test_the_demo_is_refused_where_it_would_need_a_key(tmp_path: Path) -> None:
    created(tmp_path)
    ran = run_cmbs("serve", "--demo", directory=tmp_path)
    assert ran.returncode == 2
    assert "the demo has no key" in ran.stderr


@pytest.mark.req("ID-CLI-01")
def test_a_command_that_reads_from_a_server_takes_its_key_from_the_environment(tmp_path: Path) -> None:
    _, text = created(tmp_path)
    with serving(tmp_path) as server:
        headers = {"authorization": f"Bearer {text}"}
        httpx2.post(f"{server.url}/v1/sessions", json=DECLARATION, headers=headers).raise_for_status()
        with_key = run_cmbs("analyse", "--url", server.url, directory=tmp_path, variables={"CMBS_KEY": text})
        without = run_cmbs("analyse", "--url", server.url, directory=tmp_path)
        misspelt = run_cmbs("analyse", "--url", server.url, directory=tmp_path, variables={"CMBS_KEY": text[:-1]})
    assert with_key.returncode == 0, with_key.stderr
    assert "UNAUTHENTICATED" in without.stderr
    assert "`CMBS_KEY` is set, and not to a key" in misspelt.stderr
    assert text[:-1] not in misspelt.stderr


def commands_of(server: ServerProcess) -> str:
    processes = [psutil.Process(server.process.pid), *server.children()]
    return " ".join(word for process in processes for word in [*process.cmdline(), *process.environ().values()])


@pytest.mark.req("ID-KEY-06", "ID-HTTP-01", "ID-HTTP-08", "ID-OPEN-03")
def test_every_worker_learns_of_keys_that_come_and_go(tmp_path: Path) -> None:
    # Installed: what is looked at is the command line and the environment of each process.
    with serving(tmp_path, "--workers", "2", command=CMBS) as server:
        assert httpx2.post(f"{server.url}/v1/sessions", json=DECLARATION).status_code == 201
        key_id, text = created(tmp_path)
        headers = {"authorization": f"Bearer {text}"}
        wait_until_answered(server, {}, 401)
        session = httpx2.post(f"{server.url}/v1/sessions", json=DECLARATION, headers=headers)
        assert session.status_code == 201
        wait_until_answered(server, headers, 200)
        revoked = run_cmbs("keys", "revoke", key_id, directory=tmp_path)
        assert revoked.returncode == 0
        wait_until_answered(server, headers, 401)
        assert text not in commands_of(server)
        assert httpx2.get(f"{server.url}/healthz").status_code == 200
    assert not holds_key(server.output.encode())
    store = SQLiteStore(tmp_path / "cmbs.db")
    session_id = session.json()["session_id"]
    stored = b"".join(entry.raw for stream in (KEYS_STREAM, session_id) for entry in store.read(stream))
    store.close()
    assert f'"key_id":"{key_id}"'.encode() in stored
    assert not holds_key(stored)


def wait_until_answered(server: ServerProcess, headers: dict[str, str], status: int) -> None:
    """Return once eight new connections in a row, which both workers share, get this answer."""
    row, until = 0, time.monotonic() + TIMEOUT_SECONDS
    while row < 8:
        with server.client() as client:
            answer = client.get("/v1/sessions", headers=headers)
        row = row + 1 if answer.status_code == status else 0
        assert time.monotonic() < until, answer.text
