"""The words of the MCP server: one name for one thing, and failures that a model can act on with its tools."""

import re
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cmbs.api.errors import TransportCode
from cmbs.api.examples import ERRORS
from cmbs.client.errors import Head, HeadWentBack, RequestFailed, Unreachable, UnreadableAnswer, rebuild_error
from cmbs.errors import CmbsError, ErrorCode
from cmbs.mcp.server.failures import describe_failure
from cmbs.mcp.server.prompts import PROMPTS
from cmbs.mcp.server.resources import TEMPLATES
from cmbs.mcp.server.serving import TOOLS
from tests.support.bounded import run
from tests.support.mcp_belief import MAX_BYTES, call, follow, refuse, served
from tests.support.mcp_upstream import text_of
from tests.support.subtests import for_each

TEXT, NUMBER, FLAG, ANY = "string", "integer", "boolean", None
# Every argument of every tool, prompt and resource, and what kind of value it takes wherever it is.
VOCABULARY: dict[str, Any] = {
    "session_id": TEXT,
    "hypothesis_id": TEXT,
    "hypotheses": "array",
    "probe_id": TEXT,
    "response": ANY,
    "observation_id": TEXT,
    "source_id": TEXT,
    "because": TEXT,
    "obligation_id": TEXT,
    "event_id": TEXT,
    "kit_id": TEXT,
    "symptoms": "array",
    "name": TEXT,
    "about": TEXT,
    "space_id": TEXT,
    "tool_id": TEXT,
    "args": "object",
    "case_id": TEXT,
    "call_id": TEXT,
    "nonce": TEXT,
    "succeeded": FLAG,
    "result": ANY,
    "error": TEXT,
    "seconds": NUMBER,
    "pending": FLAG,
    "end": FLAG,
    "text": TEXT,
    "limit": NUMBER,
    "cursor": TEXT,
    "max_tokens": NUMBER,
    "question": TEXT,
    "action": TEXT,
}
# What a model has no use for: requests, their parts, and the verbs of the protocol.
FOREIGN = re.compile(
    r"\b(GET|POST|PUT|PATCH|DELETE)\b|HTTP|/v1|openapi|[Hh]eader|Authorization|X-Cmbs|If-Match|Retry-After|Bearer"
    r"|status [1-5]\d\d|https?://|--[a-z]|[A-Z]+_(REQUEST|EXIT|SESSION|CONCLUSION)\b(?!:)"
)
ARGUMENTS = {name: set(row.describe()["inputSchema"]["properties"]) for name, row in TOOLS.items()}
SENT = {"session_id": "s-1", "space_id": "ops", "tool_id": "restart", "probe_id": "p", "hypotheses": ["a"], "x": "y"}
CODES = [*ErrorCode, *TransportCode, "HTTP_502", "SOMETHING_NEW"]


@pytest.mark.req("MCP-SERVER-11")
def test_every_argument_has_one_name_and_one_type_in_all_tools_prompts_and_resources() -> None:
    used: set[str] = set()
    for row in TOOLS.values():
        for name, schema in row.describe()["inputSchema"]["properties"].items():
            types = schema.get("type")
            kind = types[0] if isinstance(types, list) else types
            assert (row.name, name, kind) == (row.name, name, VOCABULARY.get(name, "unknown"))
            used.add(name)
    prompts = {name for prompt in PROMPTS for name in prompt.arguments}
    resources = {name for uri in TEMPLATES for part in re.findall(r"{\??([^}]+)}", uri) for name in part.split(",")}
    assert used | prompts | resources == VOCABULARY.keys()


def check(failure: CmbsError, tool: str) -> None:
    failed = describe_failure(failure, tool, SENT, ARGUMENTS)
    told = f"{failed.text} {msgspec.json.encode([failed.details, failed.next]).decode()}"
    assert not FOREIGN.search(told), told
    named = failed.next["tool"]
    assert f"call `{named}`" in failed.text
    assert failed.next["arguments"].keys() <= ARGUMENTS[named]
    if failed.details:
        assert failed.details["field"].partition("[")[0] in ARGUMENTS[tool]
        if failed.code == ErrorCode.LIMIT_EXCEEDED:
            # What was wrong is not sent again.
            assert failed.details["field"].partition("[")[0] not in failed.next["arguments"]


NEXT_STEPS = st.sampled_from(
    [
        "send it again with `If-Match`",
        "POST it to `/v1/sessions`",
        "ask with another header",
        "look it up in `/openapi.json`",
        "start the server with `--tee`",
        "ask to leave it with REQUEST_EXIT",
        "name nodes of the graph",
    ]
)
DETAILS = st.fixed_dictionaries(
    {},
    optional={
        "next": NEXT_STEPS,
        "field": st.sampled_from(
            ["body", "x-cmbs-actor", "conclusion_id", "eliminated", "kit", "session_id", "limit", "eliminated[]"]
        ),
        "accepted": NEXT_STEPS | st.just({"maximum": 500}),
        "what": st.sampled_from(["tool", "kit", "proposal", "approval", "webhook"]),
        "found": st.integers(0, 9),
    },
)


@pytest.mark.req("MCP-SERVER-05", "MCP-SERVER-12")
@given(st.sampled_from(CODES), st.sampled_from(list(TOOLS)), NEXT_STEPS | st.text(max_size=60), DETAILS)
@example("NOT_FOUND", "whoami", "no path `/v1/nothing`", {})
@example("HTTP_502", "observe", "the server answered with status 502", {})
def test_a_failure_with_any_code_speaks_of_tools_and_names_one_with_its_arguments(
    code: str, tool: str, message: str, details: dict[str, Any]
) -> None:
    check(rebuild_error(400, str(code), message, details), tool)


@pytest.mark.req("MCP-SERVER-05", "MCP-SERVER-12")
@for_each("code", list(ERRORS))
def test_a_failure_as_the_server_tells_it_speaks_of_tools_with_all_its_details(code: str) -> None:
    told = ERRORS[code]
    for tool in TOOLS:
        check(rebuild_error(400, told["code"], told["message"], told["details"]), tool)


@pytest.mark.req("MCP-SERVER-05", "MCP-SERVER-12")
@for_each(
    "failure",
    [
        Unreachable("no connection to `http://127.0.0.1:8080`"),
        UnreadableAnswer(302, "the answer is a redirect to `https://login.example`"),
        HeadWentBack("s", Head(3, "e-3"), Head(1, "e-1")),
        RequestFailed(502, "HTTP_502", "bad gateway"),
    ],
)
def test_a_failure_on_the_way_to_the_server_says_what_to_do_and_not_how_it_was_asked(failure: CmbsError) -> None:
    for tool in TOOLS:
        check(failure, tool)


@pytest.mark.req("MCP-SERVER-12")
def test_what_the_api_calls_otherwise_has_the_name_of_the_argument() -> None:
    failure = rebuild_error(400, "INVALID_REQUEST", "`kit` and `eliminated`", {"field": "eliminated", "found": 3})
    failed = describe_failure(failure, "rule_out", {"session_id": "s"}, ARGUMENTS)
    assert failed.text.startswith("INVALID_REQUEST: `kit_id` and `hypotheses`; ")
    assert failed.details == {"field": "hypotheses", "found": 3}
    assert failed.next == {"do": failed.next["do"], "tool": "rule_out", "arguments": {"session_id": "s"}}


@pytest.mark.req("MCP-SERVER-12")
def test_each_unknown_id_leads_to_the_tool_that_lists_the_known_ones() -> None:
    async def test() -> None:
        async with served() as (client, operator):
            await operator.create_space("ops")
            opened = await call(client, "open_case", hypotheses=["a", "b"])
            session_id = opened["handles"]["session_id"]
            for name, args, listing in (
                ("read_belief", {"session_id": "none"}, "find_sessions"),
                ("open_case", {"kit_id": "none"}, "find_kits"),
                ("find_tools", {"space_id": "none"}, "find_spaces"),
                ("find_tools", {"space_id": "ops", "tool_id": "none"}, "find_tools"),
                ("wait_for_action", {"space_id": "ops", "call_id": "none"}, "read_approvals"),
                ("next_probes", {"session_id": session_id}, "rule_out"),
                ("leave_obligation", {"session_id": session_id, "obligation_id": "none"}, "obligations"),
                ("list_ruled_out", {"session_id": session_id, "event_id": "none"}, "list_ruled_out"),
            ):
                told, beside = await refuse(client, name, **args)
                assert not FOREIGN.search(told), told
                assert beside["next"]["tool"] == listing, told
                if listing == "rule_out":
                    assert beside["next"]["arguments"] == {"session_id": session_id}
                else:
                    # The call that is named works as it is.
                    await follow(client, beside["next"])

    run(test())


JSON = st.none() | st.booleans() | st.integers(-5, 5_000) | st.text(max_size=5) | st.just(["x" * 2_000] * 50)
IDS = st.sampled_from(["session", "ops", "known", "none", "", "a/b", "x" * 3_000, "GET /v1/sessions"])
CALLS = st.lists(
    st.tuples(
        st.sampled_from(sorted(TOOLS)), st.dictionaries(st.sampled_from(sorted(VOCABULARY)), IDS | JSON, max_size=3)
    ),
    min_size=5,
    max_size=15,
)


@pytest.mark.req("MCP-SERVER-05", "MCP-SERVER-09", "MCP-SERVER-12")
@given(CALLS)
def test_a_call_with_any_arguments_is_answered_in_the_words_of_the_tools_and_fits(
    calls: list[tuple[str, dict[str, Any]]],
) -> None:
    async def test() -> None:
        async with served() as (client, operator):
            await operator.create_space("ops")
            await operator.register_tool("ops", "known", "caller", {"type": "object"})
            session_id = (await call(client, "open_case", hypotheses=["known", "a"]))["handles"]["session_id"]
            good = {"session_id": session_id, "space_id": "ops", "tool_id": "known", "seconds": 0, "because": "seen"}
            for name, drawn in calls:
                given_args = {argument: good[argument] for argument in ARGUMENTS[name] & good.keys()}
                args = given_args | {key: value for key, value in drawn.items() if key in ARGUMENTS[name]}
                result = await client.call_tool(name, args)
                if result.is_error:
                    told, beside = await refuse(client, name, **args)
                    sent = str(beside["details"].get("found"))
                    assert not FOREIGN.search(told.replace("GET /v1/sessions", "")), (told, sent)
                    assert set(beside["next"]["arguments"]) <= ARGUMENTS[beside["next"]["tool"]]
                else:
                    assert len(text_of(result).encode()) <= max(MAX_BYTES, 4 * int(args.get("max_tokens") or 0))

    run(test())


@pytest.mark.req("MCP-SERVER-11")
def test_an_argument_under_its_old_name_is_refused_with_those_that_are_accepted() -> None:
    async def test() -> None:
        async with served() as (client, _):
            told, beside = await refuse(client, "conclude", session_id="s", conclusion_id="a")
            assert "hypothesis_id" in told
            assert "hypothesis_id" in beside["details"]["accepted"]["properties"]

    run(test())
