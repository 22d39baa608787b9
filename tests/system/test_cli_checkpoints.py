"""With a checkpoint or heads that a client kept, what was done to a store is found and named by the commands."""

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx2
import msgspec
import psycopg
import pytest

from cmbs.belief.server import BeliefServer
from cmbs.spi.audit_log import HEADS_STREAM
from cmbs.stores import open_store
from cmbs.transparency.kernel.checkpoint import Checkpoint
from cmbs.transparency.kernel.notes import Note
from cmbs.transparency.notary import Notary
from tests.support.cli import invoke
from tests.support.http_server import (
    TIMEOUT_SECONDS,
    ServerProcess,
    environment_with,
    free_port,
    open_client,
    serving,
)
from tests.support.set_back import take_snapshot
from tests.support.signing import files_in, notary_of
from tests.support.store_fixture import StoreFixture, declared, tampering
from tests.support.warm import CMBS

pytestmark = pytest.mark.slow

EARLIER = "of an earlier format, which this software does not read"


class Kept:
    """A store with two sessions, and what a client kept of it: heads, a signed checkpoint, records, the public keys."""

    def __init__(self, fixture: StoreFixture, directory: Path) -> None:
        self.fixture, self.directory = fixture, directory
        server = fixture.open()
        self.notary = notary_of(server, directory)
        self.first, self.second = declared(server), declared(server)
        server.eliminate(self.first, "source", "1", ["a"])
        self.note = self.notary.publish()
        self.put_back = take_snapshot(fixture.url)
        server.eliminate(self.first, "source", "2", ["b"])
        server.eliminate(self.second, "source", "3", ["c"])
        self.newer = self.notary.publish()
        self.server = server
        self.key = files_in(directory).read_key()
        self.keep("note", self.newer.encoded)
        self.keep("older", self.note.encoded)
        self.keep("record", msgspec.json.encode(self.notary.record_of(self.first)).decode())
        (directory / "keys").write_bytes((directory / "signing.key.keys").read_bytes())
        ran = invoke("heads", str(directory / "heads"), "--store", fixture.url)
        assert (ran.exit_code, ran.stderr) == (0, "3 heads written\n")

    def keep(self, name: str, text: str) -> str:
        (self.directory / name).write_text(text, "utf-8")
        return str(self.directory / name)

    def verify(self, name: str, *options: str) -> tuple[int, str]:
        """`cmbs verify --heads`: the exit code, and what it says is bad."""
        chosen = options or ("--key", self.key.verifier.text)
        ran = invoke("verify", "--store", self.fixture.url, "--heads", str(self.directory / name), *chosen)
        return ran.exit_code, ran.stderr

    def check(self, *names: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
        """`cmbs checkpoint check`."""
        files = [str(self.directory / name) for name in names]
        ran = invoke("checkpoint", "check", *files, "--key", self.key.verifier.text, *options)
        return ran.exit_code, ran.stderr

    def tamper(self, *statements: str) -> None:
        """Write to the database with its guards taken down, as its administrator can."""
        if self.fixture.place == "postgres":
            with psycopg.connect(self.fixture.url) as connection:
                connection.execute("SET session_replication_role = replica")
                connection.execute("SET search_path = cmbs")
                for statement in statements:
                    connection.execute(statement.encode())
            return
        with closing(sqlite3.connect(self.fixture.path)) as reading:
            triggers = [name for (name,) in reading.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
        with tampering(self.fixture.path, *triggers) as connection:
            connection.execute("PRAGMA foreign_keys = OFF")
            for statement in statements:
                connection.execute(statement)

    def cut(self, stream_id: str, size: int) -> None:
        """Take the tail of a stream off, and set its head back to what remains."""
        with closing(open_store(self.fixture.url)) as store:
            last = store.read(stream_id)[size - 1].event_hash.hex()
        literal = f"'\\x{last}'" if self.fixture.place == "postgres" else f"x'{last}'"
        self.tamper(
            f"DELETE FROM audit_events WHERE stream_id = '{stream_id}' AND seq >= {size}",
            f"UPDATE sessions SET head_seq = {size - 1}, head_hash = {literal} WHERE session_id = '{stream_id}'",
        )
        if self.fixture.place == "postgres":
            self.tamper(
                f"DELETE FROM journal WHERE stream_id = '{stream_id}' AND seq >= {size}",
                f"UPDATE journal SET last_seq = {size - 1} WHERE stream_id = '{stream_id}' AND last_seq >= {size}",
            )

    def delete(self, stream_id: str) -> None:
        """Remove every row of a stream."""
        owned = [("audit_events", "stream_id"), ("universes", "session_id"), ("tombstones", "session_id")]
        owned += [(table, "session_id") for table in ("checkpoints", "sessions", "listing_terms", "listings")]
        if self.fixture.place == "postgres":
            owned.append(("journal", "stream_id"))
        self.tamper(*(f"DELETE FROM {table} WHERE {column} = '{stream_id}'" for table, column in owned))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.deep)])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    with StoreFixture.at(request.param, tmp_path) as fixture:
        yield Kept(fixture, tmp_path)


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Kept]:
    with StoreFixture.at("sqlite", tmp_path) as fixture:
        yield Kept(fixture, tmp_path)


FILES = ("heads", "note", "older", "record")


@pytest.mark.req("TLOG-HEADS-01")
def test_a_log_that_has_grown_past_what_was_kept_is_good(kept: Kept) -> None:
    for _ in range(2):
        for name in FILES:
            assert kept.verify(name) == (0, ""), name
        assert kept.check("note", "older", options=("--store", kept.fixture.url)) == (0, "")
        kept.server.eliminate(kept.first, "source", "4", ["c"])
        declared(kept.server)
        kept.notary.publish()


@pytest.mark.req("TLOG-HEADS-02")
@pytest.mark.parametrize("name", ["heads", "note", "record"])
def test_a_truncated_tail_is_found_and_named(kept: Kept, name: str) -> None:
    kept.cut(kept.first, 2)
    code, said = kept.verify(name)
    assert code == 1
    assert f"bad  truncated: {kept.first}: it ends at seq 1, and it had reached seq 2" in said
    assert kept.second not in said
    # What was kept before the entries that are gone knows nothing of them; the records in the store do.
    assert f"truncated: {kept.first}" not in kept.verify("older")[1]


@pytest.mark.req("FSCK-01")
@pytest.mark.parametrize("named", [False, True], ids=["everything", "by name"])
@pytest.mark.parametrize("command", ["fsck", "verify"])
def test_a_store_is_compared_with_the_records_in_it(kept: Kept, command: str, named: bool) -> None:
    def run(session_id: str) -> tuple[int, str]:
        store = (kept.fixture.url,) if command == "fsck" else ("--store", kept.fixture.url)
        chosen = ("--session", session_id) if command == "fsck" else (session_id,)
        ran = invoke(command, *store, *(chosen if named else ()))
        return ran.exit_code, ran.stderr

    assert run(kept.first) == (0, "")
    kept.cut(kept.first, 2)
    code, said = run(kept.first)
    assert code == 1
    assert f"bad  {kept.first}: audit_events: truncated: it ends at seq 1, and it had reached seq 2" in said
    assert kept.second not in said
    # Written on by a process that knows nothing of that, it is another log.
    server = BeliefServer(store=open_store(kept.fixture.url))
    for number in range(2):
        server.eliminate(kept.first, "other", str(number), ["c"])
    server.close()
    code, said = run(kept.first)
    assert code == 1
    assert f"bad  {kept.first}: audit_events: forked: it is another log up to seq 2" in said
    kept.delete(kept.second)
    code, said = run(kept.second)
    assert code == 1
    assert f"bad  {kept.second}: audit_events: deleted: it is gone, and it had 2 entries" in said


@pytest.mark.req("TLOG-HEADS-02")
@pytest.mark.parametrize("name", FILES)
def test_a_deleted_session_is_found_and_named(kept: Kept, name: str) -> None:
    kept.delete(kept.first)
    code, said = kept.verify(name)
    assert code == 1
    assert f"bad  deleted: {kept.first}: it is gone, and it had" in said


@pytest.mark.req("TLOG-HEADS-02")
@pytest.mark.parametrize("name", FILES)
def test_an_emptied_database_is_found_and_named(kept: Kept, name: str) -> None:
    for stream_id in (kept.first, kept.second, HEADS_STREAM):
        kept.delete(stream_id)
    assert kept.verify(name) == (1, "bad  emptied: there is no stream at all in the store\n")


@pytest.mark.req("TLOG-HEADS-02")
def test_an_older_backup_is_found_and_named(kept: Kept) -> None:
    kept.server.close()
    kept.put_back()
    code, said = kept.verify("note")
    assert code == 1
    assert "bad  older copy: the store has 2 of the 4 records that were signed" in said
    code, said = kept.verify("heads")
    assert code == 1
    assert "bad  older copy: 3 streams are behind what was kept, the log of heads among them" in said
    assert kept.verify("older") == (0, "")
    code, said = kept.check("note", options=("--store", kept.fixture.url))
    assert code == 1
    assert "older copy" in said
    # What is written to the older copy makes another log of it, and not the kept one.
    server = BeliefServer(store=open_store(kept.fixture.url))
    server.eliminate(kept.first, "source", "2", ["d"])
    server.eliminate(kept.second, "source", "3", ["d"])
    (kept.directory / "signing.key.checkpoint").unlink()
    notary = Notary(server.log, files_in(kept.directory))
    assert all(notary._sweep())
    notary.publish()
    server.close()
    assert "bad  split view: the first 4 records of the store have the root" in kept.verify("note")[1]
    assert f"bad  forked: {kept.first}: it is another log up to seq 2" in kept.verify("heads")[1]
    assert f"bad  forked: {kept.first}" in kept.verify("record")[1]


@pytest.mark.req("TLOG-SIGN-01")
def test_fsck_verifies_the_records_too(sqlite: Kept) -> None:
    assert invoke("fsck", sqlite.fixture.url).exit_code == 0
    sqlite.tamper(f"UPDATE audit_events SET entry = x'7b7d' WHERE stream_id = '{HEADS_STREAM}' AND seq = 1")
    ran = invoke("fsck", sqlite.fixture.url)
    assert ran.exit_code == 1
    where = f"bad  {HEADS_STREAM}: audit_events.entry seq 1"
    assert f"{where}: LEDGER_CORRUPT: ledger of `{HEADS_STREAM}` is bad at seq 1" in ran.stderr
    # A session alone cannot be compared with such records, and that is not good either.
    ran = invoke("verify", sqlite.first, "--store", sqlite.fixture.url)
    assert ran.exit_code == 1
    assert f"bad  {HEADS_STREAM}: streams cannot be compared with what was recorded of them" in ran.stderr
    assert "bad  forked: heads:server" in sqlite.verify("note")[1]


@pytest.mark.req("TLOG-CHECK-02")
def test_two_answers_to_two_clients_are_a_split_view(sqlite: Kept) -> None:
    checkpoint = Checkpoint.parse(sqlite.newer.text)
    text = checkpoint._replace(root=bytes(32)).text
    sqlite.keep("other", Note(text, (sqlite.key.sign(text),)).encoded)
    code, said = sqlite.check("note", "other")
    assert code == 1
    assert said.startswith("bad  split view: two trees of size 4 were signed: root ")
    assert "split view" in sqlite.check("other", options=("--store", sqlite.fixture.url))[1]
    text = Checkpoint(checkpoint.origin, 3, bytes(32)).text
    sqlite.keep("smaller", Note(text, (sqlite.key.sign(text),)).encoded)
    assert "bad  split view" in sqlite.check("smaller", "note", options=("--store", sqlite.fixture.url))[1]
    code, said = sqlite.check("smaller", "note")
    assert (code, "name `--server` or `--store`" in said) == (0, True)


@pytest.mark.req("TLOG-CHECK-01")
def test_a_forged_signature_an_unknown_key_and_a_forged_record_are_named(sqlite: Kept) -> None:
    forged = sqlite.newer.encoded.replace("\n4\n", "\n5\n")
    sqlite.keep("forged", forged)
    for code, said in (sqlite.verify("forged"), sqlite.check("forged")):
        assert code == 1
        assert "bad  forged signature: the signature of" in said
    ran = invoke("checkpoint", "keygen", str(sqlite.directory / "other.key"), "--origin", "example.com/log")
    other = ran.stdout.strip()
    assert "bad  unknown key" in sqlite.verify("note", "--key", other)[1]
    record = json.loads((sqlite.directory / "record").read_text())
    for change in ({"size": 7}, {"stream_id": sqlite.second}, {"head_hash": "0" * 64}):
        entry = {**record["entry"], "payload": {**record["entry"]["payload"], **change}}
        sqlite.keep("forged", json.dumps({**record, "entry": entry}))
        for code, said in (sqlite.verify("forged"), sqlite.check("forged")):
            assert code == 1
            assert "bad  forged record:" in said
    sqlite.keep("forged", json.dumps({**record, "leaf_index": 0}))
    assert "bad  forged record:" in sqlite.verify("forged")[1]
    sqlite.keep("forged", json.dumps({**record, "entry": {"a": 1}}))
    assert "bad  forged record:" in sqlite.verify("forged")[1]


@pytest.mark.req("TLOG-KEYS-01")
def test_a_signature_by_a_retired_key_is_named(sqlite: Kept) -> None:
    ran = invoke("checkpoint", "rotate", str(sqlite.directory / "signing.key"))
    assert (ran.exit_code, ran.stderr) == (0, f"retired at size 4: {sqlite.key.verifier.text}\n")
    keys = ("--keys", str(sqlite.directory / "signing.key.keys"))
    assert sqlite.verify("note", *keys) == (0, "")
    text = Checkpoint(sqlite.key.name, 5, bytes(32)).text
    sqlite.keep("late", Note(text, (sqlite.key.sign(text),)).encoded)
    for code, said in (sqlite.verify("late", *keys), sqlite.check("late", options=keys)):
        assert code == 1
        assert "bad  retired key: it is of size 5 and signed by" in said
        assert "retired at size 4 on" in said


@pytest.mark.req("TLOG-HEADS-01")
def test_a_file_that_is_none_is_an_error_and_not_a_finding(subtests: pytest.Subtests, sqlite: Kept) -> None:
    for content, says in [
        (b"", "not a signed note"),
        (b"\xff", "what was kept is text"),
        (b"{", "line 1: "),
        (b'{"format":"cmbs/1/heads"}\n[]\n', "line 2: not a JSON object"),
        (b'{"format":"cmbs/1/export"}\n', "line 1: INVALID_REQUEST: neither a head"),
        (b'{"format":"cmbs-heads/1"}\n', f"line 1: INVALID_REQUEST: a document {EARLIER}"),
        (b'{"format":"cmbs-proof/1","kind":"checkpoint","note":""}', f"line 1: INVALID_REQUEST: a document {EARLIER}"),
        (b'{"stream_id":"a","size":0,"head_hash":"00"}\n', "line 1: INVALID_REQUEST: a head has a size above 0"),
        (b'{"stream_id":"a"}\n', "line 1: "),
    ]:
        with subtests.test(content=content, says=says):
            (sqlite.directory / "bad").write_bytes(content)
            code, said = sqlite.verify("bad")
            assert code == 2
            assert says.replace("INVALID_REQUEST: ", "") in said.replace("INVALID_REQUEST: ", "")


@pytest.mark.req("TLOG-HEADS-01")
def test_a_signed_checkpoint_needs_the_key_that_is_trusted(sqlite: Kept) -> None:
    ran = invoke("verify", "--store", sqlite.fixture.url, "--heads", str(sqlite.directory / "note"))
    assert ran.exit_code == 2
    assert "name it with `--key`" in ran.stderr
    assert invoke("verify", "--store", sqlite.fixture.url, "--heads", "missing").exit_code == 2
    assert sqlite.check("heads") == (2, "cmbs: INVALID_REQUEST: there is no signed checkpoint in what was kept\n")


@pytest.mark.slow
@pytest.mark.req("TLOG-HTTP-01", "TLOG-WITNESS-01")
def test_a_server_signs_and_has_it_cosigned_and_a_client_checks_it(tmp_path: Path) -> None:
    made = invoke("witness", "keygen", str(tmp_path / "witness.key"), "--name", "witness.example/w1")
    log = invoke("checkpoint", "keygen", str(tmp_path / "signing.key"), "--origin", "example.com/log").stdout.strip()
    witness = made.stdout.strip()
    with _witness(tmp_path, log) as url:
        options = ("--signing-key", "signing.key", "--checkpoint-interval", "1", "--witness", f"{url}#{witness}")
        with serving(tmp_path, *options) as server, server.client() as client:
            declared_id = client.post("/v1/sessions", json=_declaration()).json()["session_id"]
            client.post("/v1/checkpoint", json={}).raise_for_status()
            note = client.get("/v1/checkpoint")
            assert note.headers["content-type"] == "text/plain; charset=utf-8"
            (tmp_path / "kept").write_text(note.text, "utf-8")
            assert client.get("/v1/checkpoint", headers={"accept": "application/json"}).json()["note"] == note.text
            proof = client.get(f"/v1/checkpoint/streams/{declared_id}")
            (tmp_path / "record").write_bytes(proof.content)
            client.post("/v1/sessions", json=_declaration()).raise_for_status()
            server.wait_until(lambda: int(client.get("/v1/checkpoint").text.split("\n")[1]) > 1)
            assert invoke("checkpoint", "rotate", str(tmp_path / "signing.key")).exit_code == 0
            client.post("/v1/sessions", json=_declaration()).raise_for_status()
            server.wait_until(lambda: int(client.get("/v1/checkpoint").text.split("\n")[1]) > 2)
            shown = invoke("checkpoint", "show", "--server", server.url)
            (tmp_path / "newest").write_text(shown.stdout, "utf-8")
            files = [str(tmp_path / name) for name in ("kept", "record", "newest")]
            ran = invoke("checkpoint", "check", *files, "--key", log, "--server", server.url)
            assert (ran.exit_code, ran.stderr) == (0, "")
            ran = invoke("checkpoint", "check", *files[:2], "--key", log, "--witness", witness)
            assert (ran.exit_code, ran.stderr) == (0, "")
            # The witness was not told of the new key.
            ran = invoke("checkpoint", "check", *files, "--key", log, "--server", server.url, "--witness", witness)
            assert "bad  not cosigned: size 3 has no valid cosignature" in ran.stderr
            # The old key alone, of a reader who does not ask the server for its successor.
            assert invoke("checkpoint", "check", files[2], "--key", log).exit_code == 1
    ran = invoke("verify", "--heads", files[0], "--key", log, "--store", f"sqlite:///{tmp_path}/cmbs.db")
    assert ran.exit_code == 0, ran.stderr
    # The same server over an emptied database: it is not ready, signs nothing, and shows what it signed last.
    (tmp_path / "cmbs.db").unlink()
    with _unready(tmp_path) as client:
        assert client.get("/v1/checkpoint").text == shown.stdout
        refused = client.post("/v1/checkpoint", json={})
        assert (refused.status_code, refused.json()["error"]["code"]) == (500, "LEDGER_CORRUPT")
        ready = client.get("/readyz")
        assert ready.status_code == 503
        assert "no checkpoint is signed: emptied" in ready.json()["error"]["message"]
    # A server that forgot what it signed too: the client has not.
    (tmp_path / "signing.key.checkpoint").unlink()
    with serving(tmp_path, "--signing-key", "signing.key", "--checkpoint-interval", "3600") as server:
        ran = invoke("checkpoint", "check", files[0], "--key", log, "--server", server.url)
        assert ran.exit_code == 1
        assert "bad  emptied: the server signs size 0 now, and it had signed size 1: it went back" in ran.stderr


@pytest.mark.slow
@pytest.mark.req("TLOG-CHECK-02", "TLOG-REFUSE-01")
def test_a_server_names_an_older_and_an_emptied_database_itself_to_who_asks(sqlite: Kept, tmp_path: Path) -> None:
    sqlite.server.close()

    def check() -> list[str]:
        with _unready(tmp_path) as client:
            code, said = sqlite.check("note", "older", options=("--server", str(client.base_url).rstrip("/")))
        assert code == 1, said
        return said.splitlines()

    sqlite.put_back()
    older = "the database has 2 records, and size 4 was signed: it is an older copy"
    assert check() == [f"bad  older copy: the server says: {older}"]
    sqlite.fixture.path.unlink()
    assert check() == ["bad  emptied: the server says: the database has no records, and size 4 was signed"]


@contextmanager
def _witness(directory: Path, log: str) -> Iterator[str]:
    """A witness as a process of its own; its URL."""
    port = free_port()
    command = [str(CMBS), "witness", "serve", "witness.key", "--log", log, "--port", str(port)]
    with (directory / "witness.txt").open("wb") as printed:
        process = subprocess.Popen(
            command, cwd=directory, env=environment_with({}), stdout=printed, stderr=subprocess.STDOUT
        )
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_for(url, process)
        yield url
        process.terminate()
        assert process.wait(TIMEOUT_SECONDS) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(TIMEOUT_SECONDS)


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    """Return once a process answers, whatever it answers."""
    for _ in range(int(TIMEOUT_SECONDS * 20)):
        with suppress(httpx2.TransportError), open_client(url) as client:
            client.get("/")
            return
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
            break
    raise AssertionError(f"{url} does not answer")


@contextmanager
def _unready(directory: Path) -> Iterator[httpx2.Client]:
    """A server that answers, and is not ready."""
    server = ServerProcess(directory, "--signing-key", "signing.key", "--checkpoint-interval", "3600")
    try:
        _wait_for(server.url, server.process)
        with server.client() as client:
            server.wait_until(lambda: client.get("/readyz").status_code == httpx2.codes.SERVICE_UNAVAILABLE)
            yield client
        server.stop()
    finally:
        server.discard()


def _declaration() -> dict[str, object]:
    names = ("hypothesis_space_id", "hypothesis_version", "causal_graph_ref", "causal_graph_version")
    return {"ontology": dict.fromkeys(names, "1"), "hypotheses": ["a", "b"]}
