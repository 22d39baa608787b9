"""The SQLite graph store beyond the contract: durable, append-only, shared by processes, and honest about bad files."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from google.protobuf.empty_pb2 import Empty

from cmbs.errors import GraphUnavailable, IncidentNotFound, InvalidRequest
from cmbs.spi.stored_format import graph_marks
from cmbs.tee import Delta, Edge, Provenance
from cmbs.tee.proto import tee_pb2 as pb
from cmbs.tee.stores import open_graph_store
from cmbs.tee.stores import sqlite as driver
from cmbs.tee.stores._sqlite_schema import GRAPH_FILE
from cmbs.tee.stores.memory import MemoryGraphStore
from cmbs.tee.stores.sqlite import SQLiteGraphStore
from cmbs.testing.contracts.graph_samples import NOW, SAID, contents, edge, key, node, nodes_in
from tests.support import tee as messages
from tests.support.tee import TIMEOUT_SECONDS, calling
from tests.support.write_ahead import leave_log_behind


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a graph, an incident and tombstones."""
    with closing(SQLiteGraphStore(tmp_path / "tee.db")) as store:
        store.merge(Delta(tuple(map(node, "abc")), (edge("a", "b"), edge("b", "c"))))
        store.create_incident("i", NOW)
        store.merge_node_tombstones("i", ["a", "ghost"], SAID)
        store.merge_edge_tombstones("i", [key("b", "c")], SAID)
    return tmp_path / "tee.db"


@pytest.mark.req("TEE-SQL-01")
def test_everything_is_there_when_the_file_is_opened_again_and_was_on_disk_when_acknowledged(path: Path) -> None:
    with closing(SQLiteGraphStore(path)) as store:
        assert store._writer.execute("PRAGMA synchronous").fetchone() == (2,)
        assert store._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert contents(store.main_graph()) == (set("abc"), {key("a", "b"), key("b", "c")})
        assert store.incident("i") == ("i", NOW, store.version(), None)
        assert contents(store.live_view("i")) == (set("bc"), set())
        assert store.tombstones("i") == ({"a": SAID, "ghost": SAID}, {key("b", "c"): SAID})


@pytest.mark.req("TEE-SQL-01")
def test_a_process_that_is_killed_after_the_answer_has_lost_nothing(path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from cmbs.tee import Delta\n"
        "from cmbs.tee.stores.sqlite import SQLiteGraphStore\n"
        "from cmbs.testing.contracts.graph_samples import SAID, node\n"
        "store = SQLiteGraphStore(sys.argv[1])\n"
        "store.merge(Delta((node('late'),)))\n"
        "store.merge_node_tombstones('i', ['b'], SAID)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert killed.returncode == -9
    with closing(SQLiteGraphStore(path)) as store:
        assert contents(store.main_graph())[0] == {*"abc", "late"}
        assert contents(store.live_view("i"))[0] == {"c"}


@pytest.mark.req("TEE-SQL-02")
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM {table}",
        "UPDATE {table} SET rowid = rowid",
        "INSERT OR REPLACE INTO {table} SELECT * FROM {table}",
    ],
)
@pytest.mark.parametrize("table", ["graph_changes", "incidents", "tombstone_merges"])
def test_the_database_itself_refuses_to_forget(path: Path, table: str, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        text = statement.format(table=table).replace("rowid = rowid", f"{columns[0]} = {columns[0]}")
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(text)


@pytest.mark.req("TEE-SQL-02")
def test_a_write_that_fails_leaves_no_trace_and_can_be_repeated(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_BUSY_SECONDS", 0.01)
    with closing(SQLiteGraphStore(path)) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        version = store.version()
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(GraphUnavailable, match="cannot merge: database is locked"):
            store.merge(Delta((node("d"),)))
        with pytest.raises(GraphUnavailable, match="cannot merge tombstones: database is locked"):
            store.merge_node_tombstones("i", ["b"], SAID)
        assert store.version() == version
        other.execute("ROLLBACK")
        assert store.merge(Delta((node("d"),))).created_nodes == ("d",)
        assert store.merge_node_tombstones("i", ["b"], SAID).applied == ("b",)


def test_the_cache_is_bounded_and_what_was_evicted_is_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_MAX_CACHED_BYTES", 50_000)
    gone = {f"other-{number}": [f"{number}-{each}-{'x' * 90}" for each in range(50)] for number in range(8)}
    with closing(SQLiteGraphStore(path)) as store:
        before = store.tombstones("i")
        for incident_id, ids in gone.items():
            store.create_incident(incident_id, NOW)
            store.merge_node_tombstones(incident_id, ids, SAID)
        for incident_id, ids in gone.items():
            assert set(store.tombstones(incident_id).nodes) == set(ids)
        kept = sum(len(each) for state in store._incidents.values() for each in state.nodes)
        assert 5_000 < kept < 50_000
        assert store._cached_bytes == sum(state.size for state in store._incidents.values()) <= 50_000
        assert "i" not in store._incidents
        assert store.tombstones("i") == before
        with pytest.raises(IncidentNotFound):
            store.incident("missing")
        assert "missing" not in store._incidents
        # The incident that was used last stays, whatever its size.
        large = [f"{each}-{'x' * 90}" for each in range(1_000)]
        store.merge_node_tombstones("i", large, SAID)
        assert len(store.tombstones("i").nodes) == 1_002
        assert list(store._incidents) == ["i"]


@pytest.mark.req("TEE-SQL-02")
def test_reads_do_not_wait_for_writes_that_wait_for_another_process(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_BUSY_SECONDS", TIMEOUT_SECONDS)
    with (
        closing(SQLiteGraphStore(path)) as store,
        calling(store) as tee,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        deltas = [pb.HypothesisDelta(nodes=[messages.node(f"new-{number}")]) for number in range(20)]
        merges = [tee.MergeHypothesis.future(delta, timeout=TIMEOUT_SECONDS) for delta in deltas]
        for _ in range(10):
            view = tee.GetLiveView(pb.LiveViewRequest(incident_id="i"), timeout=TIMEOUT_SECONDS)
            assert {each.id for each in view.nodes} == set("bc")
            assert len(tee.GetMainGraph(Empty(), timeout=TIMEOUT_SECONDS).nodes) == 3
        assert not any(merge.done() for merge in merges)
        other.execute("ROLLBACK")
        assert sorted(merge.result().created_ids[0] for merge in merges) == sorted(
            each.id for delta in deltas for each in delta.nodes
        )
        assert len(tee.GetMainGraph(Empty(), timeout=TIMEOUT_SECONDS).nodes) == 23


@pytest.mark.req("TEE-SQL-01")
def test_what_is_heard_again_costs_what_is_new(path: Path) -> None:
    heard = [Provenance("source", f"trigger {number}", NOW) for number in range(200)]
    label = "x" * 10_000
    with closing(SQLiteGraphStore(path)) as store:
        for said in heard:
            store.merge(Delta((node("often", [said], label=label),), (Edge(key("a", "b"), (said,)),)))
        store.merge(Delta((node("often", heard, label=label, hypothetical=False),)))
        before = store.main_graph()
        (written,) = store._writer.execute("SELECT sum(length(nodes) + length(edges)) FROM graph_changes").fetchone()
    assert written < 2 * sum(map(len, [*before.nodes, *before.edges]))
    with closing(SQLiteGraphStore(path)) as store:
        after = store.main_graph()
        assert [b"".join(each) for each in (after.nodes, after.edges)] == [
            b"".join(each) for each in (before.nodes, before.edges)
        ]
        often = nodes_in(after)["often"]
        assert (often.label, often.hypothetical, often.provenance) == (label, False, tuple(heard))


@pytest.mark.parametrize("name", [":memory:", "a\0b"])
def test_a_path_that_is_no_file_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a file"):
        SQLiteGraphStore(name)


def read_files(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir()}


EARLIER_FILE = """
PRAGMA journal_mode = WAL;
CREATE TABLE graph_changes (version INTEGER PRIMARY KEY, nodes BLOB NOT NULL, edges BLOB NOT NULL);
PRAGMA application_id = 0x63746565;
PRAGMA user_version = 3;
"""


DEVELOPMENT = (
    "it was written by another development version of cmbs before the first release, with other types of entries"
    f" or other tables (fingerprint `{{}}`, and here it is `{graph_marks(GRAPH_FILE.script)[1]}`)"
)


@pytest.mark.req("STORE-FORMAT-01")
def test_a_new_file_carries_the_mark(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM format").fetchall() == [graph_marks(GRAPH_FILE.script)]
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
        assert connection.execute("PRAGMA application_id").fetchone() == (int.from_bytes(b"cte1"),)


@pytest.mark.req("STORE-FORMAT-02")
@pytest.mark.parametrize(
    ("ours", "script", "said", "step"),
    [
        (
            False,
            EARLIER_FILE,
            "it was written by cmbs before its first format was fixed, and this software does not read it",
            "start with an empty store, or use the cmbs that wrote it",
        ),
        (
            True,
            "UPDATE format SET format = 'cmbs/2'",
            "it has the format `cmbs/2`, which is newer than this software, which reads `cmbs/1` alone",
            "use the version of cmbs that wrote it, or a newer one",
        ),
        (
            True,
            "UPDATE format SET fingerprint = 'others'",
            DEVELOPMENT.format("others"),
            "start with an empty store, or use the cmbs that wrote it",
        ),
        (
            False,
            "PRAGMA application_id = 0x636D6231; PRAGMA user_version = 1",
            "it is a log of cmbs, and not a graph of a Tee",
            "name a graph of a Tee, or a new one",
        ),
        (
            False,
            "CREATE TABLE mine (x)",
            "it belongs to another application",
            "name a store of cmbs, or a new one",
        ),
        (
            True,
            "DELETE FROM format",
            "it does not say which format it has, as every store of cmbs does",
            "restore a backup",
        ),
    ],
    ids=["earlier", "newer", "other tables", "a log", "another application", "no mark"],
)
def test_a_file_with_other_marks_is_refused_and_left_as_it_was(
    tmp_path: Path, ours: bool, script: str, said: str, step: str
) -> None:
    path = tmp_path / "tee.db"
    if ours:
        SQLiteGraphStore(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    before = read_files(tmp_path)
    with pytest.raises(GraphUnavailable) as refused:
        SQLiteGraphStore(path)
    assert refused.value.message == f"cannot open `{path}`: {said}; nothing was changed"
    assert refused.value.details["next"] == step
    assert read_files(tmp_path) == before


@pytest.mark.req("STORE-FORMAT-02")
def test_a_refused_file_keeps_its_write_ahead_log(tmp_path: Path) -> None:
    path = tmp_path / "tee.db"
    leave_log_behind(path, "PRAGMA application_id = 0x63746565; CREATE TABLE mine (x)")
    before = read_files(tmp_path)
    with pytest.raises(GraphUnavailable, match="before its first format was fixed"):
        SQLiteGraphStore(path)
    assert read_files(tmp_path) == before


def test_a_file_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(GraphUnavailable, match="cannot open"):
        SQLiteGraphStore(tmp_path / "no" / "such" / "directory.db")


def test_a_store_that_was_closed_is_unavailable(path: Path) -> None:
    store = SQLiteGraphStore(path)
    store.close()
    with pytest.raises(GraphUnavailable):
        store.version()


def test_a_graph_in_neo4j_says_which_extra_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cmbs.tee.stores.neo4j", None)
    with pytest.raises(InvalidRequest, match="needs the `neo4j` extra"):
        open_graph_store("neo4j://127.0.0.1")


def test_a_url_names_a_graph_store(tmp_path: Path) -> None:
    assert isinstance(open_graph_store("memory:"), MemoryGraphStore)
    with closing(open_graph_store(f"sqlite:///{tmp_path}/a%20graph.db")) as store:
        assert isinstance(store, SQLiteGraphStore)
    assert (tmp_path / "a graph.db").exists()


@pytest.mark.parametrize(
    "url",
    ["", "sqlite:///", "tee.db", "postgresql://me:secret@host/db", "Neo4j://me:secret@host", "me:secret@host"],
)
def test_a_url_that_is_no_graph_store_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a graph store") as refused:
        open_graph_store(url)
    assert "secret" not in f"{refused.value} {refused.value.details}"
