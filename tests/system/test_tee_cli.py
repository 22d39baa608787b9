"""`cmbs tee`: served as an operator would, loaded from JSON, and shown."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from cmbs.cli.app import app
from cmbs.errors import InvalidGraph, InvalidRequest
from cmbs.tee.client import open_channel, stub_on
from cmbs.tee.graph_json import deltas, read_graph
from cmbs.tee.proto import tee_pb2 as pb
from tests.support.http_server import CMBS, PATIENCE, environment_with, free_port, run_cmbs
from tests.support.tee import SAID

TLS = Path(__file__).resolve().parents[1] / "support" / "tls"
GRAPH: dict[str, Any] = {
    "nodes": [
        {"id": "api", "type": "SERVICE", "provenance": ["cmdb"]},
        {
            "id": "db",
            "type": "NODE_TYPE_DEPENDENCY",
            "label": "orders",
            "hypothetical": False,
            "provenance": [{"source": "cmdb", "trigger": "scan", "timestamp": "2026-01-31T09:30:00.25Z"}],
        },
    ],
    "edges": [{"source": "api", "target": "db", "type": "DEPENDS_ON", "provenance": ["traces"]}],
}

NO_ZONE = json.dumps(
    {"nodes": [{**GRAPH["nodes"][0], "provenance": [{"source": "s", "timestamp": "2026-01-01T00:00:00"}]}]}
)


class Served:
    """One run of `cmbs tee serve`."""

    def __init__(self, directory: Path, *arguments: str, **variables: str) -> None:
        self.directory = directory
        self.port = free_port()
        self.endpoint = f"127.0.0.1:{self.port}"
        self.process = subprocess.Popen(
            [CMBS, "tee", "serve", "--port", str(self.port), *arguments],
            cwd=directory,
            env=environment_with(variables),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        # It prints once it listens.
        assert self.endpoint in self.process.stdout.readline()

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return run_cmbs("tee", *arguments, directory=self.directory, variables={"CMBS_TEE": self.endpoint, **variables})

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    (tmp_path / "graph.json").write_text(json.dumps(GRAPH), "utf-8")
    served = Served(tmp_path)
    yield served
    if served.process.returncode is None:
        served.stop(signal.SIGKILL)


@pytest.mark.req("TEE-CLI-01")
def test_a_graph_is_loaded_and_shown_and_is_there_after_a_kill(served: Served) -> None:
    loaded = served.run("load", "graph.json")
    assert (loaded.returncode, loaded.stdout) == (0, "3 created, 0 merged, graph version 2\n")
    assert served.run("load", "graph.json").stdout == "0 created, 3 merged, graph version 2\n"
    shown = served.run("show")
    assert shown.stdout == "graph version 2\n2 nodes: 1 DEPENDENCY, 1 SERVICE\n1 edge: 1 DEPENDS_ON\n"
    served.stop(signal.SIGKILL)
    again = Served(served.directory)
    assert again.run("show").stdout == shown.stdout
    assert again.stop() == 0


@pytest.mark.req("TEE-CLI-01")
def test_what_show_prints_as_json_can_be_loaded(served: Served, tmp_path: Path) -> None:
    served.run("load", "graph.json")
    printed = served.run("show", "--json").stdout
    graph = json.loads(printed)
    assert [each["label"] for each in graph["nodes"]] == ["api", "orders"]
    assert graph["nodes"][1]["provenance"][0] == {
        "source": "cmdb",
        "trigger": "scan",
        "timestamp": "2026-01-31T09:30:00.250000Z",
    }
    (tmp_path / "printed.json").write_text(printed, "utf-8")
    assert served.run("load", "printed.json").stdout == "0 created, 3 merged, graph version 2\n"


@pytest.mark.req("TEE-CLI-01")
def test_an_incident_is_shown_as_of_its_anchor(served: Served) -> None:
    served.run("load", "graph.json")
    with open_channel(served.endpoint) as channel:
        tee = stub_on(channel)
        tee.CreateIncident(pb.CreateIncidentRequest(incident_id="i"))
        tee.MergeNodeTombstones(pb.NodeTombstoneRequest(incident_id="i", node_ids=["db"], provenance=SAID))
    shown = served.run("show", "i")
    assert shown.stdout == "graph version 2, the anchor\n1 node: 1 SERVICE\n0 edges\n1 tombstone\n"
    missing = served.run("show", "nobody")
    assert (missing.returncode, missing.stderr) == (1, "cmbs: NOT_FOUND: no incident `nobody`\n")


@pytest.mark.req("TEE-CLI-01")
def test_a_conflict_is_told_and_a_graph_that_makes_no_sense_is_refused(served: Served, tmp_path: Path) -> None:
    served.run("load", "graph.json")
    other = {"nodes": [{"id": "db", "type": "DEPENDENCY", "label": "stock", "provenance": ["cmdb"]}]}
    (tmp_path / "other.json").write_text(json.dumps(other), "utf-8")
    loaded = served.run("load", "other.json")
    assert loaded.stderr == "conflict  db: label stays `orders`, not `stock`\n"
    (tmp_path / "bad.json").write_text('{"nodes": [{"id": "x"}]}', "utf-8")
    bad = served.run("load", "bad.json")
    assert bad.returncode == 1
    assert "not a graph: Object missing required field `type`" in bad.stderr
    assert served.run("load", "nowhere.json").returncode == 2


@pytest.mark.req("TEE-SERVE-03")
def test_a_token_comes_from_the_environment(tmp_path: Path) -> None:
    served = Served(tmp_path, "--store", "memory:", CMBS_TEE_TOKEN="secret")
    refused = served.run("show")
    assert (refused.returncode, "UNAUTHENTICATED" in refused.stderr) == (2, True)
    assert served.run("show", CMBS_TEE_TOKEN="secret").returncode == 0
    assert served.stop(signal.SIGINT) == 0


@pytest.mark.req("TEE-SERVE-01")
def test_what_is_in_the_way_of_serving_is_said(served: Served) -> None:
    taken = run_cmbs("tee", "serve", "--port", str(served.port), "--store", "memory:", directory=served.directory)
    # gRPC has its own line to say before ours.
    assert taken.returncode == 2
    assert taken.stderr.endswith(f"cmbs: cannot listen on `127.0.0.1:{served.port}`\n")
    wrong = run_cmbs("tee", "serve", "--store", "nonsense", directory=served.directory)
    assert (wrong.returncode, "is not a graph store" in wrong.stderr) == (2, True)
    half = run_cmbs("tee", "serve", "--cert", "graph.json", directory=served.directory)
    assert (half.returncode, "needs both `--cert` and `--key`" in half.stderr) == (2, True)
    nobody = served.run("show", "--tee", f"127.0.0.1:{free_port()}")
    assert (nobody.returncode, grpc.StatusCode.UNAVAILABLE.name in nobody.stderr) == (2, True)


@pytest.mark.req("TEE-CLI-01")
def test_an_empty_graph_is_still_told_to_tee(served: Served, tmp_path: Path) -> None:
    served.run("load", "graph.json")
    (tmp_path / "empty.json").write_text("{}", "utf-8")
    assert served.run("load", "empty.json").stdout == "0 created, 0 merged, graph version 2\n"
    nobody = served.run("load", "empty.json", "--tee", f"127.0.0.1:{free_port()}")
    assert (nobody.returncode, grpc.StatusCode.UNAVAILABLE.name in nobody.stderr) == (2, True)


@pytest.mark.req("TEE-CLI-01")
def test_what_others_wrote_does_nothing_to_the_terminal(served: Served, tmp_path: Path) -> None:
    served.run("load", "graph.json")
    other = {"nodes": [{"id": "db", "type": "DEPENDENCY", "label": "\x1b[2Jé", "provenance": ["cmdb"]}]}
    (tmp_path / "other.json").write_text(json.dumps(other), "utf-8")
    loaded = served.run("load", "other.json")
    assert loaded.stderr == "conflict  db: label stays `orders`, not `\\x1b[2Jé`\n"
    assert "\x1b" not in served.run("show", "\x1b[2J").stderr


@pytest.mark.req("TEE-SERVE-03")
def test_certificates_that_are_none_are_blamed_themselves(tmp_path: Path) -> None:
    certificate, key = (str(TLS / name) for name in ("certificate.pem", "key.pem"))
    (tmp_path / "bad.pem").write_text("nothing", "utf-8")
    for arguments, why in (
        (("--cert", "bad.pem", "--key", key), "`--cert` and `--key` are not"),
        (("--cert", certificate, "--key", "bad.pem"), "`--cert` and `--key` are not"),
        (("--cert", certificate, "--key", key, "--clients", "bad.pem"), "`--clients` has no certificate"),
    ):
        ran = run_cmbs("tee", "serve", "--store", "memory:", *arguments, directory=tmp_path)
        assert (ran.returncode, why in ran.stderr) == (2, True), ran.stderr


@pytest.mark.req("TEE-SERVE-03")
@pytest.mark.parametrize("token", ["two\nlines", "gehëim", "a b"], ids=["newline", "non-ascii", "space"])
def test_a_token_that_cannot_be_sent_is_refused_at_both_ends_and_not_repeated(token: str, tmp_path: Path) -> None:
    for arguments in (("show",), ("serve", "--store", "memory:", "--port", str(free_port()))):
        ran = run_cmbs("tee", *arguments, directory=tmp_path, variables={"CMBS_TEE_TOKEN": token})
        assert (ran.returncode, "a token must be of visible ASCII" in ran.stderr) == (2, True), ran.stderr
        assert token not in ran.stderr


@pytest.mark.req("TEE-CLI-01")
@pytest.mark.parametrize(
    "endpoint",
    ["", "127.0.0.1:99999", "127.0.0.1:0", "host with space:1", "h:1\x1b[2J", f"h:{'9' * 5_000}"],
    ids=range(6),
)
def test_an_address_that_nobody_can_have_is_refused(endpoint: str) -> None:
    with pytest.raises(InvalidRequest, match="is not where a Tee could listen") as refused:
        open_channel(endpoint)
    assert str(refused.value).isprintable()


@pytest.mark.req("TEE-CLI-01")
def test_without_the_extra_the_command_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    ran = CliRunner().invoke(app, ["tee", "show"])
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "Tee needs `grpc`: install it with `pip install 'cmbs[tee]'`" in ran.stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "Expected `object`"),
        ('{"nodes": [{"id": "a", "type": "SERVER"}]}', "`SERVER` is not a type; there are SERVICE"),
        ('{"edges": [{"source": "a", "target": "b", "type": "X"}]}', "`X` is not a type; there are DEPENDS_ON"),
        (NO_ZONE, "has no time zone"),
        ('{"nodes": [], "vertices": []}', "unknown field `vertices`"),
    ],
    ids=["list", "node-type", "edge-type", "no-zone", "surplus"],
)
def test_json_that_is_not_a_graph_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(InvalidGraph, match=why):
        list(deltas(read_graph(text.encode())))


def test_a_large_graph_is_merged_in_batches() -> None:
    graph = {"nodes": [{"id": str(number), "type": "SERVICE", "provenance": ["s"]} for number in range(12_000)]}
    sizes = [len(delta.nodes) for delta in deltas(read_graph(json.dumps(graph).encode()))]
    assert sizes == [5_000, 5_000, 2_000]


def test_a_graph_of_long_labels_is_merged_in_batches_that_any_tee_takes() -> None:
    node = {"type": "SERVICE", "provenance": ["s"]}
    sizes = [700_000] * 5 + [5_000_000, 10]
    nodes = [{**node, "id": str(number), "label": "x" * size} for number, size in enumerate(sizes)]
    edges = [{"source": "s", "target": "t" * 1_500_000, "type": "DEPENDS_ON", "provenance": ["s"]}] * 2
    made = list(deltas(read_graph(json.dumps({"nodes": nodes, "edges": edges}).encode())))
    assert [[int(each.id) for each in delta.nodes] for delta in made] == [[0, 1], [2, 3], [4], [5], [6], [], []]
    assert [len(delta.edges) for delta in made] == [0, 0, 0, 0, 0, 1, 1]
