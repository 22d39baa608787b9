"""How much of an answer comes: chosen fields, minimal answers, entity tags, compression."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmbs.api.operation import Operation
from cmbs.api.operations import OPERATIONS
from cmbs.api.operations.graphs import GRAPH_OPERATIONS
from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.http.shaping import MAX_FIELDS, build_tree, includes, leave_out, list_fields, parse_fields, select
from cmbs.stores import SQLiteStore
from scripts.api_examples import Recorder
from tests.support.carriers import CARRIERS, carry
from tests.support.error_model import check_error
from tests.support.in_process import Client, client_of
from tests.support.requests_of import open_session
from tests.support.space_client import OPS, PLANNER, SpaceClient
from tests.support.transports import DECLARATION

names = st.sampled_from(["a", "b", "c", "d"])
documents = st.recursive(
    st.none() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)
paths = st.lists(names, min_size=1, max_size=3).map(".".join)


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    path = tmp_path_factory.mktemp("answers") / "cmbs.db"
    server = BeliefServer(store=SQLiteStore(path) if request.param == "sqlite" else None)
    app = create_app(server)
    with client_of(app) as client:
        yield client
    app.close()


@pytest.fixture
def session_id(client: Client) -> str:
    return open_session(client, 0)


def path_of(operation: Operation, recorder: Recorder) -> str:
    """Where an operation is among what was recorded: only a session over a kit has probes."""
    own = {"session_id": recorder.kit_session_id} if operation.operation_id == "list_probes" else {}
    return operation.path.format(**{**recorder.ids, **own})


# --- the laws of choosing ---------------------------------------------------------------------------------------------


def keep(value: Any, parts: list[str]) -> Any:
    """What is at or below a dotted name, by the book."""
    if not parts or not isinstance(value, (dict, list)):
        return value
    if isinstance(value, list):
        return [keep(item, parts) for item in value]
    return {parts[0]: keep(value[parts[0]], parts[1:])} if parts[0] in value else {}


@pytest.mark.req("HTTP-EXT-20")
@given(documents, paths)
def test_a_selection_keeps_what_it_names_and_nothing_else(document: Any, path: str) -> None:
    assert json.loads(select(msgspec.json.encode(document), build_tree([path]))) == keep(document, path.split("."))


@pytest.mark.req("HTTP-EXT-20")
@given(documents, st.lists(paths, min_size=1, max_size=4))
def test_choosing_again_changes_nothing_and_what_is_left_out_is_gone(document: Any, chosen: list[str]) -> None:
    tree, body = build_tree(chosen), msgspec.json.encode(document)
    once = select(body, tree)
    assert json.loads(select(once, tree)) == json.loads(once)
    without = leave_out(body, tree)
    assert json.loads(leave_out(without, tree)) == json.loads(without)
    if isinstance(document, dict):
        whole = {name for name in document if name in tree and not tree[name]}
        assert json.loads(without).keys() == document.keys() - whole


@given(st.lists(paths, min_size=1, max_size=4), paths)
def test_a_path_is_included_with_what_is_above_or_below_it(chosen: list[str], path: str) -> None:
    near = [each for each in chosen if f"{path}.".startswith(f"{each}.") or f"{each}.".startswith(f"{path}.")]
    assert includes(build_tree(chosen), path) == bool(near)


@pytest.mark.req("HTTP-EXT-20")
def test_every_answer_can_be_cut_to_each_of_its_fields(subtests: pytest.Subtests) -> None:
    for operation in [each for each in OPERATIONS if each.takes_fields]:
        with subtests.test(operation=operation.operation_id):
            known = list_fields(operation.response)
            assert known
            for name in known:
                assert parse_fields(name, operation.response) == {name: {}}
            for part in operation.bulk:
                assert parse_fields(part, operation.response)


# --- fields -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("HTTP-EXT-20")
def test_every_operation_answers_with_the_chosen_field(tmp_path: Path) -> None:
    with carry("asgi", tmp_path) as send:
        recorder = Recorder(send, token_expires_at="2999-01-01T00:00:00Z")
        recorder.play({})
        for operation in OPERATIONS:
            if operation.method != "GET" or not operation.takes_fields or operation.path.startswith("/v1/checkpoint"):
                continue
            # Without Tee there is no graph; `test_session_graphs.py` chooses fields of one.
            if operation in GRAPH_OPERATIONS:
                continue
            name = list_fields(operation.response)[0]
            path = path_of(operation, recorder)
            answer = send("GET", path, params={"fields": name}, headers={"x-cmbs-actor": OPS})
            assert answer.status_code == 200, answer.text
            assert answer.json().keys() <= {name}


@pytest.mark.req("HTTP-EXT-20")
def test_names_parts_and_items_of_lists_can_be_chosen(client: Client, session_id: str) -> None:
    path = f"/v1/sessions/{session_id}"
    whole = client.get(path).json()
    chosen = client.get(f"{path}?fields=n_survivors,ontology.hypothesis_version").json()
    assert chosen == {"n_survivors": 4, "ontology": {"hypothesis_version": whole["ontology"]["hypothesis_version"]}}
    events = client.get(f"{path}/audit?fields=events.seq,events.payload.obligation_id").json()
    assert [event["seq"] for event in events["events"]] == list(range(len(events["events"])))
    assert all(event.keys() <= {"seq", "payload"} for event in events["events"])
    body = {"source_id": "s", "observation_id": "o", "eliminated": ["a"]}
    answer = client.post(f"{path}/eliminate?fields=applied_eliminated,snapshot.n_survivors", body)
    assert answer.json() == {"applied_eliminated": ["a"], "snapshot": {"n_survivors": 3}}


@pytest.mark.req("HTTP-EXT-20")
def test_a_field_that_is_none_is_refused_with_those_that_are(subtests: pytest.Subtests, client: Client) -> None:
    for fields, message, accepted in [
        ("n_survivor", "did you mean `n_survivors`", "n_survivors"),
        ("ontology.x", "there are `causal_graph_ref`", "hypothesis_version"),
        ("survivors.a", "it has no parts", None),
        ("", "is not a field of this answer", "survivors"),
        ("survivors,", "is not a field of this answer", "survivors"),
    ]:
        with subtests.test(fields=fields, message=message, accepted=accepted):
            session_id = open_session(client, 0)
            answer = client.get(f"/v1/sessions/{session_id}", params={"fields": fields})
            details = check_error(answer, 400, "INVALID_REQUEST")
            assert message in details["message"]
            assert details["parameter"] == "fields"
            assert accepted is None or accepted in details["accepted"]


@pytest.mark.req("HTTP-EXT-20")
def test_an_unknown_field_is_refused_before_anything_is_written(client: Client, session_id: str) -> None:
    path = f"/v1/sessions/{session_id}"
    before = client.get(f"{path}/audit").json()
    answer = client.post(f"{path}/conclusions?fields=nope", {"conclusion_id": "a"})
    check_error(answer, 400, "INVALID_REQUEST")
    assert client.get(f"{path}/audit").json() == before
    many = ",".join(["n_survivors"] * (MAX_FIELDS + 1))
    check_error(client.get(f"{path}?fields={many}"), 413, "LIMIT_EXCEEDED")


def test_no_fields_of_a_proof_or_of_text_can_be_chosen(tmp_path: Path) -> None:
    with carry("asgi", tmp_path) as send:
        opened = send("POST", "/v1/sessions", json=DECLARATION).json()["session_id"]
        proof = send("GET", f"/v1/sessions/{opened}/proofs/inclusion", params={"fields": "kind"})
        assert check_error(proof, 400, "INVALID_REQUEST")["parameter"] == "fields"
        send("POST", "/v1/checkpoint")
        text = send("GET", "/v1/checkpoint", params={"fields": "size"})
        assert "send `Accept: application/json`" in check_error(text, 400, "INVALID_REQUEST")["message"]
        as_json = send("GET", "/v1/checkpoint", params={"fields": "origin"}, headers={"accept": "application/json"})
        assert as_json.json().keys() == {"origin"}


def test_keys_of_the_state_are_chosen_with_their_dots(client: Client) -> None:
    space = SpaceClient(client.request, "dots")
    space.create()
    assert space.get("/state?fields=values.constraint.any").json() == {
        "values": {"constraint.any": space.get("/state").json()["values"]["constraint.any"]}
    }


# --- minimal answers --------------------------------------------------------------------------------------------------


@pytest.mark.req("HTTP-EXT-21")
def test_minimal_answers_lack_their_bulk_and_say_so(tmp_path: Path) -> None:
    with carry("asgi", tmp_path) as send:
        recorder = Recorder(send, token_expires_at="2999-01-01T00:00:00Z")
        recorder.play({})
        for operation in OPERATIONS:
            if operation.method != "GET" or not operation.bulk:
                continue
            path, headers = path_of(operation, recorder), {"x-cmbs-actor": OPS}
            whole = send("GET", path, headers=headers)
            minimal = send("GET", path, headers={**headers, "prefer": "return=minimal"})
            assert minimal.headers["preference-applied"] == "return=minimal"
            assert "preference-applied" not in whole.headers
            assert "prefer" in whole.headers["vary"]
            if operation.operation_id != "session_analysis":
                cut = leave_out(whole.content, build_tree(operation.bulk))
                assert minimal.json() == json.loads(cut), operation.operation_id
            assert len(minimal.json()) <= len(whole.json())


@pytest.mark.req("HTTP-EXT-21")
def test_every_write_takes_the_preference(client: Client) -> None:
    space = SpaceClient(client.request, "minimal")
    space.create()
    step = space.post("/mode", {"mode": "enforce"}, prefer="return=minimal")
    assert step.headers["preference-applied"] == "return=minimal"
    assert step.json().keys() == {"granted", "reason_code", "seq", "event_id", "state_snapshot_id"}
    delta = {"type": "state_delta", "set": {"goal.x": "1"}}
    proposed = space.post("/proposals", space.proposal(delta), PLANNER, prefer="return=minimal")
    assert proposed.json()["status"] == "committed"
    assert not {"candidates", "provenance"} & proposed.json().keys()
    assert "trace" not in proposed.json()["decision"]
    chosen = space.post("/proposals?fields=candidates", space.proposal(delta), PLANNER, prefer="return=minimal")
    assert "preference-applied" not in chosen.headers


# --- entity tags ------------------------------------------------------------------------------------------------------


@pytest.mark.req("HTTP-EXT-22")
def test_what_a_caller_has_already_is_not_sent_again(tmp_path: Path) -> None:
    with carry("asgi", tmp_path) as send:
        recorder = Recorder(send, token_expires_at="2999-01-01T00:00:00Z")
        recorder.play({})
        for operation in OPERATIONS:
            if not operation.is_tagged:
                continue
            path, headers = path_of(operation, recorder), {"x-cmbs-actor": OPS}
            first = send("GET", path, headers=headers)
            tag = first.headers["etag"]
            for method in ("GET", "HEAD"):
                again = send(method, path, headers={**headers, "if-none-match": f'"x", {tag}'})
                assert (again.status_code, again.content) == (304, b""), operation.operation_id
                assert again.headers["etag"] == tag
            other = send("GET", path, headers={**headers, "if-none-match": '"x"'})
            assert (other.status_code, other.json()) == (200, first.json())


@pytest.mark.slow
@pytest.mark.req("HTTP-EXT-20", "HTTP-EXT-21", "HTTP-EXT-22", "HTTP-EXT-23", "HTTP-EXT-24")
@pytest.mark.parametrize("carrier", CARRIERS)
def test_answers_are_cut_tagged_compressed_and_waited_for_over_every_transport(carrier: str, tmp_path: Path) -> None:
    ids = [f"hypothesis-{number:05}" for number in range(200)]
    with carry(carrier, tmp_path) as send:
        opened = send("POST", "/v1/sessions", json={**DECLARATION, "hypotheses": ids}).json()["session_id"]
        path = f"/v1/sessions/{opened}"
        whole = send("GET", path)
        assert (whole.headers["content-encoding"], whole.json()["survivors"]) == ("gzip", ids)
        assert send("GET", path, params={"fields": "n_survivors"}).json() == {"n_survivors": 200}
        assert "survivors" not in send("GET", path, headers={"prefer": "return=minimal"}).json()
        for read in (path, f"{path}/obligations"):
            tag = send("GET", read).headers["etag"]
            seen = send("GET", read, headers={"if-none-match": tag})
            assert (seen.status_code, seen.content) == (304, b"")
        assert send("GET", path, params={"wait": "0", "fields": "terminated"}).json() == {"terminated": False}
        # The connection is still good for another request.
        assert send("GET", "/healthz").status_code == 200


@pytest.mark.req("HTTP-EXT-22")
def test_a_tag_ends_with_the_next_event_and_belongs_to_one_question_of_one_caller(client: Client) -> None:
    space = SpaceClient(client.request, "tagged")
    space.create()
    tag = space.get("/tools").headers["etag"]

    def ask(path: str, who: str = OPS, **headers: str) -> int:
        sent = {"x-cmbs-actor": who, "if-none-match": tag, **headers}
        return client.get(f"/v1/spaces/tagged{path}", headers=sent).status_code

    assert ask("/tools") == 304
    assert ask("/tools?limit=1") == ask("/tools", PLANNER) == ask("/capabilities") == 200
    assert ask("/tools", prefer="return=minimal") == 200
    assert ask("/tools/none-such") == 404
    space.equip("t")
    assert ask("/tools") == 200


@pytest.mark.req("HTTP-EXT-22")
def test_the_tag_of_a_snapshot_is_also_good_for_reading(client: Client, session_id: str) -> None:
    path = f"/v1/sessions/{session_id}"
    tag = client.get(path).headers["etag"]
    assert client.get(path, headers={"if-none-match": tag}).status_code == 304
    assert client.get(path, headers={"if-none-match": tag.strip('"')}).status_code == 304
    assert client.get(path, headers={"if-none-match": "*"}).status_code == 200
    client.post(f"{path}/conclusions", {"conclusion_id": "a"})
    assert client.get(path, headers={"if-none-match": tag}).status_code == 200


# --- compression ------------------------------------------------------------------------------------------------------


def encodings(client: Client, path: str, accepted: bytes) -> tuple[dict[str, str], bytes]:
    answer = client.exchange("GET", path.encode(), [(b"accept-encoding", accepted)])
    assert answer.status == 200
    assert int(answer.headers["content-length"]) == len(answer.body)
    return answer.headers, answer.body


@pytest.mark.req("HTTP-EXT-23")
def test_large_answers_are_compressed_for_callers_who_take_that(client: Client) -> None:
    ids = [f"hypothesis-{number:05}" for number in range(500)]
    opened = client.post("/v1/sessions", {**DECLARATION, "hypotheses": ids}).json()["session_id"]
    path = f"/v1/sessions/{opened}"
    headers, plain = encodings(client, path, b"identity")
    assert "content-encoding" not in headers
    assert "accept-encoding" in headers["vary"].lower()
    headers, packed = encodings(client, path, b"gzip, br")
    assert headers["content-encoding"] == "gzip"
    assert len(packed) < len(plain) / 4
    assert gzip.decompress(packed) == plain
    for refused in (b"gzip;q=0", b"br, gzip; q=0.000", b"deflate"):
        assert encodings(client, path, refused)[1] == plain
    headers, small = encodings(client, f"{path}?fields=n_survivors", b"gzip")
    assert ("content-encoding" not in headers, json.loads(small)) == (True, {"n_survivors": 500})
    headers, _ = encodings(client, "/openapi.json", b"gzip")
    assert headers["content-encoding"] == "gzip"
