"""`cmbs tee`: served as an operator would, loaded from JSON, and shown."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from typer.testing import CliRunner

from cmbs.cli.app import app, load_command
from cmbs.errors import InvalidGraph, InvalidRequest
from cmbs.tee.client import open_channel, stub_on
from cmbs.tee.graph_json import deltas, read_graph
from cmbs.tee.proto import tee_pb2 as pb
from tests.support import tee as tls
from tests.support.http_server import free_port, run_cmbs
from tests.support.tee import SAID
from tests.support.tee_process import TeeProcess, tee_serving

pytestmark = pytest.mark.slow

CERTIFICATE, KEY = str(tls.CERTIFICATE), str(tls.KEY)
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


@pytest.fixture
def tee(tmp_path: Path) -> Iterator[TeeProcess]:
    (tmp_path / "graph.json").write_text(json.dumps(GRAPH), "utf-8")
    with tee_serving(tmp_path, "sqlite:///tee.db") as tee:
        yield tee


@pytest.mark.req("TEE-CLI-01")
def test_a_graph_is_loaded_and_shown_and_is_there_after_a_kill(tee: TeeProcess) -> None:
    loaded = tee.run("load", "graph.json")
    assert (loaded.returncode, loaded.stdout) == (0, "3 created, 0 merged, graph version 2\n")
    assert tee.run("load", "graph.json").stdout == "0 created, 3 merged, graph version 2\n"
    shown = tee.run("show")
    assert shown.stdout == "graph version 2\n2 nodes: 1 DEPENDENCY, 1 SERVICE\n1 edge: 1 DEPENDS_ON\n"
    tee.kill()
    tee.start()
    assert tee.run("show").stdout == shown.stdout


@pytest.mark.req("TEE-CLI-01")
def test_what_show_prints_as_json_can_be_loaded(tee: TeeProcess, tmp_path: Path) -> None:
    tee.run("load", "graph.json")
    printed = tee.run("show", "--json").stdout
    graph = json.loads(printed)
    assert [each["label"] for each in graph["nodes"]] == ["api", "orders"]
    assert graph["nodes"][1]["provenance"][0] == {
        "source": "cmdb",
        "trigger": "scan",
        "timestamp": "2026-01-31T09:30:00.250000Z",
    }
    (tmp_path / "printed.json").write_text(printed, "utf-8")
    assert tee.run("load", "printed.json").stdout == "0 created, 3 merged, graph version 2\n"


@pytest.mark.req("TEE-CLI-01")
def test_an_incident_is_shown_as_of_its_anchor(tee: TeeProcess) -> None:
    tee.run("load", "graph.json")
    with open_channel(tee.endpoint) as channel:
        stub = stub_on(channel)
        stub.CreateIncident(pb.CreateIncidentRequest(incident_id="i"))
        stub.MergeNodeTombstones(pb.NodeTombstoneRequest(incident_id="i", node_ids=["db"], provenance=SAID))
    shown = tee.run("show", "i")
    assert shown.stdout == "graph version 2, the anchor\n1 node: 1 SERVICE\n0 edges\n1 tombstone\n"
    missing = tee.run("show", "missing")
    said, step = missing.stderr.splitlines()
    assert (missing.returncode, said) == (1, "cmbs: NOT_FOUND: no incident `missing`")
    assert step == "  next: create the incident first, or use the id of one that was created"


@pytest.mark.req("TEE-CLI-01")
def test_a_conflict_is_told_and_a_graph_that_makes_no_sense_is_refused(tee: TeeProcess, tmp_path: Path) -> None:
    tee.run("load", "graph.json")
    other = {"nodes": [{"id": "db", "type": "DEPENDENCY", "label": "stock", "provenance": ["cmdb"]}]}
    (tmp_path / "other.json").write_text(json.dumps(other), "utf-8")
    loaded = tee.run("load", "other.json")
    assert loaded.stderr == "conflict  db: label stays `orders`, not `stock`\n"
    (tmp_path / "bad.json").write_text('{"nodes": [{"id": "x"}]}', "utf-8")
    bad = tee.run("load", "bad.json")
    assert bad.returncode == 1
    assert "not a graph: Object missing required field `type`" in bad.stderr
    assert tee.run("load", "nowhere.json").returncode == 2


@pytest.mark.req("TEE-SERVE-03")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_token_comes_from_the_environment_and_a_signal_ends_the_server(tmp_path: Path, number: int) -> None:
    tee = TeeProcess(tmp_path, "memory:", CMBS_TEE_TOKEN="secret")
    refused = tee.run("show")
    assert (refused.returncode, "UNAUTHENTICATED" in refused.stderr) == (2, True)
    assert tee.run("show", CMBS_TEE_TOKEN="secret").returncode == 0
    assert tee.stop(number) == 0


@pytest.mark.req("TEE-SERVE-03")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1"])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_public_address_needs_a_token_or_client_certificates(tmp_path: Path, host: str, tls: bool) -> None:
    # The certificate of a server says nothing of its callers.
    arguments = ["--tls-cert", CERTIFICATE, "--tls-key", KEY] if tls else []
    ran = run_cmbs("tee", "serve", "--store", "memory:", *arguments, "--host", host, directory=tmp_path)
    assert ran.returncode == 2
    assert f"only this machine may be served, and `{host}` is open to others; set `CMBS_TEE_TOKEN`" in ran.stderr


@pytest.mark.req("TEE-SERVE-03")
def test_a_public_address_is_served_with_a_token_and_every_option_has_a_variable(tmp_path: Path) -> None:
    variables = {"CMBS_TEE_HOST": "0.0.0.0", "CMBS_TEE_TOKEN": "secret", "CMBS_TEE_CA": CERTIFICATE}
    variables |= {"CMBS_TEE_TLS_CERT": CERTIFICATE, "CMBS_TEE_TLS_KEY": KEY}
    with tee_serving(tmp_path, "memory:", **variables) as tee:
        assert tee.run("show", CMBS_TEE=f"localhost:{tee.port}", **variables).returncode == 0
    for parameter in load_command("tee").commands["serve"].params:
        assert parameter.envvar == f"CMBS_TEE_{parameter.name.upper()}"


@pytest.mark.req("TEE-SERVE-03")
def test_with_client_certificates_only_their_holders_are_served_on_a_public_address(tmp_path: Path) -> None:
    options = ("--host", "0.0.0.0", "--tls-cert", CERTIFICATE, "--tls-key", KEY, "--tls-client-ca", CERTIFICATE)
    with tee_serving(tmp_path, "memory:", *options) as tee:
        show = ("show", "--tee", f"localhost:{tee.port}", "--ca", CERTIFICATE)
        assert tee.run(*show, "--cert", CERTIFICATE, "--key", KEY).returncode == 0
        without = tee.run(*show)
        assert (without.returncode, grpc.StatusCode.UNAVAILABLE.name in without.stderr) == (2, True)
        half = tee.run(*show, "--cert", CERTIFICATE)
        assert (half.returncode, "needs `--ca`, `--cert` and `--key`" in half.stderr) == (2, True)


@pytest.mark.req("TEE-SERVE-01")
def test_what_is_in_the_way_of_serving_is_said(tee: TeeProcess) -> None:
    taken = run_cmbs("tee", "serve", "--port", str(tee.port), "--store", "memory:", directory=tee.directory)
    # gRPC has its own line to say before ours.
    assert taken.returncode == 2
    step = "stop what listens there, or choose another port"
    assert taken.stderr.endswith(f"cmbs: cannot listen on `127.0.0.1:{tee.port}`\n  next: {step}\n")
    for arguments, why in (
        (("--store", "nonsense"), "is not a graph store"),
        (("--host", "no such host"), "cannot listen on `no such host`"),
    ):
        wrong = run_cmbs("tee", "serve", *arguments, directory=tee.directory)
        assert (wrong.returncode, why in wrong.stderr) == (2, True), wrong.stderr
    unreachable = tee.run("show", "--tee", f"127.0.0.1:{free_port()}")
    assert (unreachable.returncode, grpc.StatusCode.UNAVAILABLE.name in unreachable.stderr) == (2, True)


@pytest.mark.req("TEE-CLI-01")
def test_an_empty_graph_is_still_told_to_tee(tee: TeeProcess, tmp_path: Path) -> None:
    tee.run("load", "graph.json")
    (tmp_path / "empty.json").write_text("{}", "utf-8")
    assert tee.run("load", "empty.json").stdout == "0 created, 0 merged, graph version 2\n"
    unreachable = tee.run("load", "empty.json", "--tee", f"127.0.0.1:{free_port()}")
    assert (unreachable.returncode, grpc.StatusCode.UNAVAILABLE.name in unreachable.stderr) == (2, True)


@pytest.mark.req("TEE-CLI-01")
def test_what_others_wrote_does_nothing_to_the_terminal(tee: TeeProcess, tmp_path: Path) -> None:
    tee.run("load", "graph.json")
    other = {"nodes": [{"id": "db", "type": "DEPENDENCY", "label": "\x1b[2Jé", "provenance": ["cmdb"]}]}
    (tmp_path / "other.json").write_text(json.dumps(other), "utf-8")
    loaded = tee.run("load", "other.json")
    assert loaded.stderr == "conflict  db: label stays `orders`, not `\\x1b[2Jé`\n"
    assert "\x1b" not in tee.run("show", "\x1b[2J").stderr


@pytest.mark.req("TEE-SERVE-03")
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--tls-cert", CERTIFICATE), "needs both `--tls-cert` and `--tls-key`"),
        (("--tls-cert", "bad.pem", "--tls-key", KEY), "`--tls-cert` and `--tls-key` are not"),
        (("--tls-cert", CERTIFICATE, "--tls-key", "bad.pem"), "`--tls-cert` and `--tls-key` are not"),
        (
            ("--tls-cert", CERTIFICATE, "--tls-key", KEY, "--tls-client-ca", "bad.pem"),
            "`--tls-client-ca` has no certificate",
        ),
    ],
    ids=["half", "certificate", "key", "client-ca"],
)
def test_a_file_that_is_no_certificate_is_named(tmp_path: Path, arguments: tuple[str, ...], why: str) -> None:
    (tmp_path / "bad.pem").write_text("nothing", "utf-8")
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
def test_an_impossible_address_is_refused(endpoint: str) -> None:
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


CALLS = {"data": [{"parent": "web", "child": "orders"}, {"parent": "orders", "child": "db"}]}


@pytest.mark.req("TEE-IMPORT-01", "TEE-IMPORT-02")
def test_an_export_is_shown_in_a_dry_run_then_merged_and_searched(tee: TeeProcess, tmp_path: Path) -> None:
    (tmp_path / "calls.json").write_text(json.dumps(CALLS), "utf-8")
    tee.run("load", "graph.json")
    shown = tee.run("import", "otel", "calls.json", "--dry-run")
    assert shown.stdout.splitlines() == [
        "+ node  web (SERVICE, web)",
        "+ node  orders (SERVICE, orders)",
        "+ edge  web DEPENDS_ON orders",
        "+ edge  orders DEPENDS_ON db",
        "! db: type stays `DEPENDENCY`, not `SERVICE`",
        "! db: label stays `orders`, not `db`",
        "2 nodes and 2 edges new, 1 and 0 known, 2 conflicts; nothing was merged",
    ]
    assert tee.run("show").stdout.startswith("graph version 2\n2 nodes")
    merged = tee.run("import", "otel", "calls.json")
    assert (merged.returncode, merged.stdout) == (0, "4 created, 1 merged, graph version 4\n")
    assert "type stays `DEPENDENCY`" in merged.stderr
    assert tee.run("import", "otel", "calls.json").stdout == "0 created, 5 merged, graph version 4\n"
    grown = tee.run("diff", "2", "4")
    assert grown.stdout.splitlines() == [
        "+ node  orders (SERVICE, orders)",
        "+ node  web (SERVICE, web)",
        "+ edge  orders DEPENDS_ON db",
        "+ edge  web DEPENDS_ON orders",
        "2 nodes and 2 edges between version 2 and version 4",
    ]
    assert tee.run("diff", "4", "2").returncode == 2
    assert "has no version 5" in tee.run("diff", "4", "5").stderr
    with open_channel(tee.endpoint) as channel:
        stub_on(channel).CreateIncident(pb.CreateIncidentRequest(incident_id="i"))
    explained = tee.run("explain", "i", "web", "--limit", "2")
    assert explained.stdout.splitlines() == [
        "web (SERVICE) explains 1 of 1",
        "  web",
        "orders (SERVICE) explains 1 of 1",
        "  orders → web",
        "3 nodes can explain them, 2 shown, as of graph version 4",
    ]
    reached = tee.run("impact", "i", "db", "--depth", "1")
    assert reached.stdout.splitlines() == [
        "db → api",
        "db → orders",
        "2 nodes can be affected, as of graph version 4; there is more beyond the depth of the search",
    ]


@pytest.mark.req("TEE-IMPORT-02")
def test_of_several_files_nothing_is_merged_where_one_cannot_be_read(tee: TeeProcess, tmp_path: Path) -> None:
    (tmp_path / "calls.json").write_text(json.dumps(CALLS), "utf-8")
    (tmp_path / "bad.json").write_text("{}", "utf-8")
    refused = tee.run("import", "otel", "calls.json", "bad.json")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "`bad.json` is no export of OpenTelemetry" in refused.stderr
    assert tee.run("show").stdout.startswith("graph version 0\n")
    missing = tee.run("explain", "nowhere", "web")
    assert missing.returncode == 1
    assert "NOT_FOUND" in missing.stderr
