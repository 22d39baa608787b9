"""One way to speak the protocol, whatever carries it: a server in this process, or one behind HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import quote

import httpx2
import msgspec

from cmbs.belief.kernel.views import reach_at, seq_at
from cmbs.belief.server import BeliefServer
from cmbs.errors import BeliefServerError
from cmbs.messages import ConclusionRule, EnterOutcome, OntologyBundle, SessionPolicy

Reply = dict[str, Any]
ONTOLOGY = {
    "hypothesis_space_id": "space",
    "hypothesis_version": "1",
    "causal_graph_ref": "graph://incidents",
    "causal_graph_version": "17",
}
DECLARATION: dict[str, Any] = {"ontology": ONTOLOGY, "hypotheses": list("abcd")}
POSTS = {
    "DECLARE_SESSION": "/v1/sessions",
    "ELIMINATE": "/v1/sessions/{session_id}/eliminate",
    "ENTER_OBLIGATION": "/v1/sessions/{session_id}/obligations",
    "REQUEST_EXIT": "/v1/sessions/{session_id}/obligations/{obligation_id}/exit",
    "DECLARE_CONCLUSION": "/v1/sessions/{session_id}/conclusions",
    "REQUEST_TERMINATION": "/v1/sessions/{session_id}/terminate",
}
GETS = {
    "QUERY_BELIEF": "/v1/sessions/{session_id}",
    "AUDIT_TRACE": "/v1/sessions/{session_id}/audit",
    "list survivors": "/v1/sessions/{session_id}/survivors",
    "list obligations": "/v1/sessions/{session_id}/obligations",
}
OPERATIONS_BY_VERB = {
    "DECLARE_SESSION": "declare_session",
    "ELIMINATE": "eliminate",
    "ENTER_OBLIGATION": "enter_obligation",
    "REQUEST_EXIT": "request_exit",
    "DECLARE_CONCLUSION": "declare_conclusion",
    "REQUEST_TERMINATION": "request_termination",
    "QUERY_BELIEF": "query_belief",
    "AUDIT_TRACE": "audit_trace",
    "list survivors": "list_survivors",
    "list obligations": "list_obligations",
}
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# What differs from run to run: ids, hashes, times.
_CHANCE = re.compile(
    _UUID + r"|\b[0-9a-f]{64}\b|\bmsg_[0-9a-f]{32}\b"
    # Hashes and paths of proofs, in base64.
    r'|(?<=")[A-Za-z0-9+/]{43,}={0,2}(?=")'
)
# Also in an entry that is told as text; other fields always follow.
_MADE_KEY = re.compile(rf'\\?"idempotency_key\\?": ?\\?"{_UUID}\\?", ?')
_MOMENT = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


class Transport(Protocol):
    """Takes a message to a server, and brings back what JSON makes of the answer; an error is `{"error": ...}`."""

    def __call__(self, verb: str, session_id: str = "", **message: Any) -> Reply: ...


class InPython:
    """A server's own methods. Declarations have the default of a server over HTTP, which is not that of the spec."""

    def __init__(self, server: BeliefServer) -> None:
        self._server = server

    def __call__(self, verb: str, session_id: str = "", **message: Any) -> Reply:
        try:
            return self._answer(verb, session_id, message)
        except BeliefServerError as exc:
            return {"error": {"code": exc.code, "message": exc.message, "details": exc.details or None}}

    def _answer(self, verb: str, session_id: str, message: dict[str, Any]) -> Reply:
        server = self._server
        match verb:
            case "DECLARE_SESSION":
                declaration = {**message, "ontology": OntologyBundle(**message["ontology"])}
                policy = {"conclusions": ConclusionRule.NOT_ELIMINATED, **message.get("policy", {})}
                declaration["policy"] = SessionPolicy(**policy)
                return _content(server.declare_session(**declaration))
            case "QUERY_BELIEF":
                return server.query_belief(session_id, **message).to_dict()
            case "AUDIT_TRACE":
                return {"events": [entry.to_dict() for entry in server.audit_trace(session_id, **message)]}
            case "list obligations":
                reach = server.reach(session_id)
                views = server.obligations(session_id)
                return {
                    "obligations": [{**view._asdict(), "reach": msgspec.to_builtins(reach[view[0]])} for view in views]
                }
            case "list survivors":
                survivors, belief = server.survivors(session_id, **message)
                attributes = server.attributes(session_id, survivors)
                return {"survivors": survivors, "attributes": attributes, "n_survivors": belief.n_survivors}
            case _:
                method: Callable[..., Any] = getattr(server, verb.lower())
                outcome = method(session_id, **message)
                return {**_content(outcome), **self._explain(session_id, outcome, message)}

    def _explain(self, session_id: str, outcome: Any, message: dict[str, Any]) -> Reply:
        """What HTTP adds to an outcome, and Python has methods for."""
        if isinstance(outcome, EnterOutcome):
            session = self._server.current_session(session_id)
            seq = seq_at(session, outcome.audit_event_id)
            return {"reach": msgspec.to_builtins(reach_at(session, message["obligation_id"], seq))}
        refusal = self._server.explain(session_id, outcome.audit_event_id)
        return {} if refusal is None else {"refusal": refusal}


def _content(outcome: Any) -> Reply:
    content: Reply = outcome._asdict()
    return {**content, "snapshot": content["snapshot"].to_dict()}


class OverHTTP:
    """A server behind anything that sends requests as httpx2 does."""

    def __init__(self, request: Callable[..., httpx2.Response]) -> None:
        self._request = request

    def __call__(self, verb: str, session_id: str = "", **message: Any) -> Reply:
        if verb in GETS:
            path = GETS[verb].format(session_id=quote(session_id, safe=""))
            return self._read(self._request("GET", path, params={name: str(value) for name, value in message.items()}))
        headers = {
            "Idempotency-Key": message.pop("idempotency_key", None),
            "If-Match": message.pop("if_match", None),
        }
        parts = {"session_id": session_id}
        if verb == "REQUEST_EXIT":
            parts["obligation_id"] = message.pop("obligation_id")
        path = POSTS[verb].format(**{name: quote(value, safe="") for name, value in parts.items()})
        sent = {name: value for name, value in headers.items() if value is not None}
        return self._read(self._request("POST", path, json=message, headers=sent))

    @staticmethod
    def _read(response: httpx2.Response) -> Reply:
        assert response.headers["content-type"] == "application/json"
        reply: Reply = response.json()
        assert ("error" in reply) == response.is_error
        # That it is a repeat is said over HTTP alone; `test_repeats.py` looks at it.
        assert ("replayed" in reply) == ("current" in reply) == ("idempotent-replayed" in response.headers)
        reply = {name: value for name, value in reply.items() if name not in ("replayed", "current")}
        # What HTTP needs in order to go on where a page ended; in Python that is the last id.
        if "survivors" in reply and "next_cursor" in reply:
            return {name: reply[name] for name in ("survivors", "attributes", "n_survivors")}
        if "events" in reply:
            return {"events": reply["events"]}
        return reply


class ByClient:
    """A server behind a client: the operations of the client, and what JSON makes of their results.

    `call` calls an operation of the client by its name, and waits for the result.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, verb: str, session_id: str = "", **message: Any) -> Reply:
        options = {name: message.pop(name) for name in ("if_match", "idempotency_key") if name in message}
        named = {"session_id": session_id} if verb != "DECLARE_SESSION" else {}
        try:
            result = self._call(OPERATIONS_BY_VERB[verb], options, **named, **message)
        except BeliefServerError as exc:
            return {"error": {"code": exc.code, "message": exc.message, "details": exc.details or None}}
        reply: Reply = {name: value for name, value in to_json(result).items() if name not in ("replayed", "current")}
        if "survivors" in reply and "next_cursor" in reply:
            return {name: reply[name] for name in ("survivors", "attributes", "n_survivors")}
        if "events" in reply:
            return {"events": reply["events"]}
        return reply


def to_json(result: Any) -> Any:
    """What a server sent for a result: fields that an answer does not have are None, and come last."""
    if isinstance(result, msgspec.Struct):
        fields = msgspec.structs.fields(result)
        pairs = {field.encode_name: getattr(result, field.name) for field in fields}
        absent = {field.encode_name for field in fields if not field.required and pairs[field.encode_name] is None}
        return {name: to_json(value) for name, value in pairs.items() if name not in absent}
    if isinstance(result, dict):
        return {name: to_json(value) for name, value in result.items()}
    if isinstance(result, list | tuple):
        return [to_json(each) for each in result]
    # A word of a list of words is a text.
    return msgspec.to_builtins(result)


class Recorder:
    """A transport that keeps what was said."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.replies: list[tuple[str, Reply]] = []

    def __call__(self, verb: str, session_id: str = "", **message: Any) -> Reply:
        reply = self._transport(verb, session_id, **message)
        self.replies.append((verb, reply))
        return reply

    def transcript(self) -> list[Any]:
        """Every reply, as `transcribe` tells it."""
        return transcribe(self.replies)


def transcribe(replies: list[Any]) -> list[Any]:
    """The replies without times, with ids and hashes numbered in the order in which they first appear.

    The idempotency keys that a client made for writes that had none are left out.
    """
    numbers: dict[str, str] = {}
    timeless = _MOMENT.sub("moment", _MADE_KEY.sub("", json.dumps(replies, sort_keys=True)))
    told: list[Any] = json.loads(_CHANCE.sub(lambda one: numbers.setdefault(one[0], f"#{len(numbers)}"), timeless))
    return told
