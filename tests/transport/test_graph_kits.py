"""A session over a kit of a causal graph, with a Tee of its own process: the same answers by every way in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cmbs.belief.kernel.kit_stream import MediaType
from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.client import connect
from cmbs.stores import open_tee
from cmbs.stores.memory import InMemoryStore
from tests.support.carriers import carry
from tests.support.cli import invoke
from tests.support.error_model import check_error
from tests.support.tee import edge
from tests.support.tee_process import TeeProcess, grow, tee_serving

KIT: dict[str, Any] = {
    "id": "components",
    "version": "1",
    "soundness": "closed-world",
    "graph": {"hypotheses": ["SERVICE"], "assumption": "a healthy component does not pass a fault on"},
    "probes": [
        {
            "id": "errors",
            "prompt": "What share of the answers of {component} are errors?",
            "reading": {"cuts": [0.01], "outcomes": ["healthy", "unhealthy"]},
            "outcomes": [{"id": "healthy", "eliminates": "through"}, {"id": "unhealthy", "eliminates": "nothing"}],
        }
    ],
}
EDGES = [("web", "orders"), ("orders", "db"), ("web", "cache"), ("db", "disk")]
# Of each component, what is seen and what it rules out.
SEEN = [("db", 0.001, ["db", "disk"]), ("orders", 0.2, []), ("cache", "healthy", ["cache"])]


@pytest.fixture
def tee(tmp_path: Path) -> Iterator[TeeProcess]:
    with tee_serving(tmp_path, "sqlite:///tee.db") as process:
        grow(process.port, ["web", "orders", "db", "cache", "disk", "aside"], [edge(*ends) for ends in EDGES])
        yield process


@pytest.mark.slow
@pytest.mark.req("GRAPH-KIT-03")
@pytest.mark.parametrize("carrier", ["asgi", "http/1.1 on sqlite", "embedded client", "embedded async client"])
def test_a_session_over_a_graph_goes_the_same_by_every_way_in(carrier: str, tee: TeeProcess, tmp_path: Path) -> None:
    with carry(carrier, tmp_path, tee.endpoint) as send:

        def ask(method: str, path: str, **body: Any) -> Any:
            answer = send(method, path, **({"json": body} if body else {}))
            assert answer.status_code < 300, answer.text
            return answer.json()

        headers = {"x-cmbs-actor": "operator:ops"}
        assert send("POST", "/v1/kits", json=KIT, headers=headers).status_code == 201
        declared = ask("POST", "/v1/sessions", kit="components", symptoms=["web"])
        path = f"/v1/sessions/{declared['session_id']}"
        assert declared["snapshot"]["survivors"] == ["cache", "db", "disk", "orders", "web"]
        probes = ask("GET", f"{path}/probes")["probes"]
        assert [each["probe_id"] for each in probes] == [f"errors:{each}" for each in ("orders", "db", "cache", "disk")]
        for component, seen, gone in SEEN:
            answer = ask("POST", f"{path}/observations", probe_id=f"errors:{component}", response=seen)
            assert answer["applied_eliminated"] == gone
            assert answer["observation"]["reading"]["graph"]["assumption"] == KIT["graph"]["assumption"]
        # What is left is where it shows, and what was seen to be wrong.
        assert ask("GET", path)["survivors"] == ["orders", "web"]
        assert ask("GET", f"{path}/probes")["probes"] == []
        assert ask("GET", f"{path}/explain?symptom=web")["total"] == 2
        # An analysis has no table to value probes by, and says the rest.
        assert ask("GET", f"{path}/analysis")["universe_size"] == 5
        refused = send("POST", "/v1/sessions", json={"kit": "components"})
        check_error(refused, 400, "INVALID_REQUEST")
        assert refused.json()["error"]["details"]["field"] == "symptoms"


@pytest.mark.slow
@pytest.mark.req("GRAPH-KIT-03", "GRAPH-KIT-04")
def test_commands_go_the_same_way_and_what_they_wrote_is_checked(tee: TeeProcess, tmp_path: Path) -> None:
    kit, store = str(tmp_path / "kit.json"), f"sqlite:///{tmp_path / 'cases.db'}"
    (tmp_path / "kit.json").write_text(json.dumps(KIT))

    def run(*arguments: str) -> str:
        done = invoke(*arguments)
        assert done.exit_code == 0, done.stderr
        return done.stdout

    where = ("--store", store)
    assert "a healthy component does not pass a fault on" in run("kit", "check", kit)
    assert json.loads(run("kit", "check", "--json", kit))[0]["kit"]["causes"] == ["SERVICE"]
    run("kit", "put", kit, *where)
    assert "over a causal graph" in run("kit", "list", *where)
    session_id = run("declare", "components", "--symptom", "web", *where, "--tee", tee.endpoint).strip()
    assert "errors:orders" in run("probes", session_id, *where, "--tee", tee.endpoint)
    told = run("observe", session_id, "errors:db", "--number", "0.001", *where, "--tee", tee.endpoint)
    assert told.startswith("ruled out: db, disk; 3 survivors")
    run("verify", *where)
    run("fsck", store, "--tee", tee.endpoint)
    # A command that needs a table refuses.
    assert "needs one that lists its hypotheses" in invoke("bench", "agents", kit).stderr
    # And without Tee nothing is ruled out.
    refused = invoke("observe", session_id, "errors:cache", "healthy", *where)
    assert (refused.exit_code, "this server has none" in refused.stderr) == (2, True)


@pytest.mark.req("GRAPH-KIT-03")
def test_a_case_of_the_client_over_a_graph_while_it_grows(tee: TeeProcess) -> None:
    server = BeliefServer(store=open_tee(tee.endpoint), audit_log=InMemoryStore())
    server.kits.put(json.dumps(KIT), MediaType.JSON)
    with (
        closing(server),
        connect(create_app(server)) as client,
        client.case(kit="components", symptoms=["web"]) as case,
    ):
        grow(tee.port, ["late"], [edge("web", "disk"), edge("late", "disk")])
        assert case.observe("errors:db", "healthy").applied_eliminated == ["db", "disk"]
        declared = client.audit_trace(case.session_id).events[0].payload
        assert declared["hypothesis_attributes"]["db"] == {"component": "db", "kind": "SERVICE", "label": "db"}
