"""A body is strict JSON or nothing: what any other decoder might read differently is refused."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cmbs.belief.server import BeliefServer
from cmbs.belief_api import create_app
from cmbs.errors import BeliefServerError
from cmbs.ledger import canonical
from cmbs.testing.strategies.belief import json_values
from cmbs.testing.strategies.hostile_ids import HOSTILE_IDS
from tests.support.error_model import check_error
from tests.support.in_process import Client, client_of
from tests.support.requests_of import WRITES, open_session, path_of
from tests.support.transports import ONTOLOGY

# Text that is no JSON, wherever a value is expected.
NO_VALUES = [b"", b"tru", b"True", b"None", b"undefined", b"{", b"}", b"[1,]", b'{"a":1,}', b"{'a':1}", b"{a:1}"]
NO_VALUES += [b'{"a" 1}', b'{"a":}', b'{1:"a"}', b"{} {}", b"{}//", b"/**/{}", b'{"a":01}', b'{"a":+1}', b'{"a":1.}']
NO_VALUES += [b'{"a":.5}', b'{"a":0x10}', b'{"a":1_000}', b'{"a":"\n"}', b'{"a":"\x00"}', b'{"a":"\\x41"}']
NO_VALUES += [b'{"a":"\\u12"}', b'{"a":"', b"\xff", b'{"a":"\xff"}', b'{"a":"\xed\xa0\x80"}', b'{"\xc3":1}']
NO_VALUES += [b'{"a":"\\ud800"}', b'{"\\udc00":1}']
# The same, beside text that looks like a key.
NO_VALUES += [b'{"a":"\\":\xff"}', b'{"a":"\\":","b":"\\x"}', b'{"a":"\\":","b":"\\ud800"}']
NO_NUMBERS = [b"NaN", b"Infinity", b"-Infinity", b"1e400", b"-1e400", b"9007199254740992", b"-9007199254740992"]
NO_NUMBERS += [b"1" + b"0" * 400, b"9007199254740993.0", b"1e17"]
DUPLICATES = [b'{"a":1,"a":1}', b'{"a":1, "a" : 2}', b'{"a":1,"\\u0061":1}', b'{"x":{"a":1,"b":2,"a":3}}']
DUPLICATES += [b'{"x":[{"a":1},{"a":1,"a":1}]}', b'{"a":"\\":","a":1}', b'{"\\":":1,"\\":":1}', b'{"":0,"":0}']


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with client_of(create_app(BeliefServer())) as client:
        yield client


@pytest.fixture(scope="module")
def session_id(client: Client) -> str:
    return open_session(client)


@pytest.fixture(autouse=True)
def _nothing_changes(client: Client, session_id: str) -> Iterator[None]:
    path = f"/v1/sessions/{session_id}/audit"
    before = client.get(path).json()
    yield
    assert client.get(path).json() == before


def spoilt_bodies(value: bytes) -> dict[str, bytes]:
    """The bodies of all writes, with a piece of text as the value of their opaque field."""
    found = {}
    for name, write in WRITES.items():
        if write.opaque:
            body = json.dumps({**write.body, write.opaque: "here"}).encode()
            found[name] = body.replace(b'"here"', value)
    return found


@pytest.mark.req("BS-3.2-ERR-09")
def test_malformed_json_is_refused_in_every_body(subtests: pytest.Subtests, client: Client, session_id: str) -> None:
    for value in NO_VALUES:
        with subtests.test(value=value):
            for name, body in spoilt_bodies(value).items():
                check_error(client.post_raw(path_of(name, session_id), body), 400, "INVALID_REQUEST")
            for name in WRITES:
                check_error(client.post_raw(path_of(name, session_id), value or b" "), 400, "INVALID_REQUEST")


def test_a_body_that_is_no_object_is_refused(subtests: pytest.Subtests, client: Client, session_id: str) -> None:
    for name in WRITES:
        for value in [b"null", b"1", b'"text"', b"[]", b"[{}]", b"true", b"\xef\xbb\xbf{}", b" ", b"\n\n"]:
            with subtests.test(name=name, value=value):
                check_error(client.post_raw(path_of(name, session_id), value), 400, "INVALID_REQUEST")


@pytest.mark.req("BS-3.2-ERR-13")
def test_a_number_that_is_not_exact_is_refused_in_every_body(
    subtests: pytest.Subtests, client: Client, session_id: str
) -> None:
    for number in NO_NUMBERS:
        with subtests.test(number=number):
            for value in (b'{"n":%b}', b'{"n":[[%b]]}', b'{"n":{"m":%b}}'):
                for name, body in spoilt_bodies(value % number).items():
                    check_error(client.post_raw(path_of(name, session_id), body), 400, "INVALID_REQUEST")
            threshold = b'{"obligation_id":"o","min_total_eliminations":%b}' % number
            check_error(client.post_raw(path_of("enter_obligation", session_id), threshold), 400, "INVALID_REQUEST")
            window = b'{"ontology":%b,"hypotheses":["a"],"policy":{"stability_window":%b}}'
            check_error(
                client.post_raw("/v1/sessions", window % (json.dumps(ONTOLOGY).encode(), number)),
                400,
                "INVALID_REQUEST",
            )


@pytest.mark.req("BS-3.2-ERR-12")
def test_a_key_that_stands_twice_is_refused_in_every_body(
    subtests: pytest.Subtests, client: Client, session_id: str
) -> None:
    for value in DUPLICATES:
        with subtests.test(value=value):
            for name, body in spoilt_bodies(value).items():
                answer = client.post_raw(path_of(name, session_id), body)
                assert "duplicate key" in check_error(answer, 400, "INVALID_REQUEST")["message"]


@pytest.mark.req("BS-3.2-ERR-12")
def test_a_field_that_stands_twice_is_refused(subtests: pytest.Subtests, client: Client, session_id: str) -> None:
    for name in WRITES:
        for field in WRITES[name].body:
            with subtests.test(name=name, field=field):
                body = WRITES[name].body
                once = json.dumps(body)[1:-1]
                twice = json.dumps({field: body[field]})[1:-1]
                for text in (f"{{{twice},{once}}}", f"{{{once},{twice}}}"):
                    answer = client.post_raw(path_of(name, session_id), text.encode())
                    details = check_error(answer, 400, "INVALID_REQUEST")
                    assert details["key"] == field


def test_json_that_is_too_deep_is_refused(subtests: pytest.Subtests, client: Client, session_id: str) -> None:
    for opening, closing in [(b"[", b"]"), (b'{"a":', b"}")]:
        for depth in [64, 65, 200, 2_000, 100_000]:
            with subtests.test(opening=opening, closing=closing, depth=depth):
                value = b'{"x":' + opening * depth + b"0" + closing * depth + b"}"
                for name, body in spoilt_bodies(value).items():
                    details = check_error(client.post_raw(path_of(name, session_id), body), 413, "LIMIT_EXCEEDED")
                    assert (details["limit"], details["maximum"]) == ("json_depth", 64)


def test_json_that_is_deep_but_not_too_deep_is_taken_and_can_be_read_again(client: Client) -> None:
    opened = client.post("/v1/sessions", {"ontology": ONTOLOGY, "hypotheses": ["a"]}).json()["session_id"]
    value: Any = 0
    for _ in range(60):
        value = {"a": [value]} if value == 0 else {"a": value}
    answer = client.post(f"/v1/sessions/{opened}/terminate", {"context": value})
    assert answer.status_code == 200
    assert client.get(f"/v1/sessions/{opened}/audit").json()["events"][-1]["payload"]["context"] == value


def test_text_that_only_looks_like_a_duplicate_key_is_taken(client: Client) -> None:
    context = {'":': '":', "a": '"a":1,"a":1', '\\":': ['":'], "\u2028": {"": '"" :'}}
    opened = client.post("/v1/sessions", {"ontology": ONTOLOGY, "hypotheses": ['":'], "metadata": context})
    assert opened.status_code == 201
    events = client.get(f"/v1/sessions/{opened.json()['session_id']}/audit").json()["events"]
    assert events[0]["payload"]["metadata"] == context


# --- against a reading that takes its time ----------------------------------------------------------------------------


class Plain(msgspec.Struct, forbid_unknown_fields=True):
    """ELIMINATE, its opaque part already decoded."""

    source_id: str
    observation_id: str
    eliminated: list[str]
    justification: dict[str, Any] | None = None
    session_id: str = ""


def reads_as(text: bytes) -> Any:
    """What a careful reader finds in the body of an ELIMINATE; None where it finds a fault."""
    try:
        message = msgspec.convert(canonical.decode(text), Plain)
        canonical.encode(message.justification)
    except (BeliefServerError, msgspec.ValidationError):
        return None
    return {
        "source_id": message.source_id,
        "observation_id": message.observation_id,
        "eliminated": sorted(set(message.eliminated)),
        "justification": message.justification,
        "probe": None,
    }


@st.composite
def json_texts(draw: st.DrawFn) -> bytes:
    """The body of an ELIMINATE, written with odd spaces and escapes, and often spoilt somewhere."""
    body: dict[str, Any] = {
        "source_id": draw(st.sampled_from(HOSTILE_IDS)),
        "observation_id": draw(st.sampled_from(HOSTILE_IDS)),
        "eliminated": draw(st.lists(st.sampled_from(["a", "b", '":', ""]), max_size=3)),
        "justification": draw(st.none() | st.dictionaries(st.sampled_from(["a", '":', "é"]), json_values(5))),
    }
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:\r\n ")]))
    text = json.dumps(body, ensure_ascii=draw(st.booleans()), separators=separators).encode()
    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 3)))
        text = (
            text[:start]
            + draw(st.sampled_from([b"", b'"', b":", b"{", b"}", b",", b"0", b"\\", b"\xff", b"e9"]))
            + text[end:]
        )
    if draw(st.booleans()):
        text = text.replace(b"}", draw(st.sampled_from([b'"a":1}', b',"a":1,"a":2}', b'},"justification":{}}'])), 1)
    return text


@given(text=json_texts())
@example(text=b'{"source_id":"","observation_id":"","eliminated":[],"justification":null}')
@example(text=b'{"source_id":"","observation_id":"","eliminated":[],"justification":{"a":1,"a":1}}')
def test_a_body_is_taken_just_where_a_careful_reader_finds_no_fault(client: Client, text: bytes) -> None:
    opened = client.post("/v1/sessions", {"ontology": ONTOLOGY, "hypotheses": ["a", "b"]}).json()["session_id"]
    answer = client.post_raw(f"/v1/sessions/{opened}/eliminate", text)
    events = client.get(f"/v1/sessions/{opened}/audit").json()["events"]
    careful = reads_as(text)
    if careful is None:
        assert (answer.is_client_error, len(events)) == (True, 1), answer.json()
    else:
        assert answer.status_code == 200, answer.json()
        assert events[1]["payload"] == careful
