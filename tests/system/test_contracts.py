"""The contract files are current, and a change of them that is no addition needs its line in the changelog."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from scripts import check_contracts
from scripts.check_contracts import (
    BASELINE,
    CHANGELOG,
    baseline_text,
    is_tagged,
    list_faults,
    read_contracts,
    read_named,
)
from scripts.contracts import (
    CLI,
    GOLDEN_LOGS,
    HTTP,
    MCP,
    REQUIREMENTS,
    Elements,
    UnknownSchema,
    list_cli,
    list_golden_logs,
    list_http,
    list_mcp,
    list_parents,
    list_requirements,
)
from scripts.generate_cli import TARGET as CLI_FILE
from scripts.generate_cli import cli_text
from scripts.generate_mcp_tools import TARGET as MCP_FILE
from scripts.generate_mcp_tools import mcp_tools_text

REQUEST: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["source_id"],
    "properties": {
        "source_id": {"type": "string", "maxLength": 100},
        "force": {"type": "boolean", "default": False},
        "mode": {"$ref": "#/components/schemas/Mode"},
        "hints": {"type": "array"},
        "labels": {"type": "object"},
        "target": {
            "oneOf": [
                {"type": "object", "properties": {"type": {"const": "http"}, "url": {"type": "string"}}},
                {"type": "object", "properties": {"type": {"const": "mcp"}, "url": {"type": "string"}}},
            ]
        },
    },
}
ANSWER: dict[str, Any] = {
    "type": "object",
    "required": ["survivors", "status"],
    "properties": {
        "survivors": {"type": "array", "items": {"type": "string"}},
        "status": {"$ref": "#/components/schemas/Status"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "seen_at": {"type": "string", "format": "date-time", "pattern": "Z$", "maxLength": 30},
        "version": {"const": 1},
    },
}
HTTP_TARGET, MCP_TARGET = REQUEST["properties"]["target"]["oneOf"]


def http(request: Any = None, answer: Any = None, **more: Any) -> Elements:
    """The contract of one operation that takes `Ask` and answers with `Told`; what is given replaces parts of both."""
    schemas = {
        "Ask": {**REQUEST, **(request or {})},
        "Told": {**ANSWER, **(answer or {})},
        "Mode": {"enum": more.get("modes", ["quick", "deep"])},
        more.get("status_name", "Status"): {"enum": more.get("statuses", ["open", "closed"])},
    }
    header = {"headers": {"Retry-After": {"$ref": "#/components/headers/Retry-After"}}}
    operation = {
        "operationId": "ask",
        "security": [{"key": more.get("scopes", ["belief:write"])}, {}],
        "parameters": more.get("parameters", [parameter("fields")]),
        "requestBody": {"required": True, "content": {"application/json": {"schema": ref("Ask")}}},
        "responses": {"200": {**header, "content": {"application/json": {"schema": ref("Told")}}}},
    }
    headers = {"Retry-After": {"schema": {"type": more.get("header", "integer")}}}
    components = {"schemas": schemas, "headers": headers}
    return list_http({"paths": {"/v1/{id}/ask": {"post": operation}}, "components": components})


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def parameter(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": {"type": "string"}, **more}


def fields(schema: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The properties of a schema with some replaced, added, or (by None) left out."""
    changed = {**schema["properties"], **changes}
    return {"properties": {name: each for name, each in changed.items() if each is not None}}


def check(contract: str, before: Elements, now: Elements, changed: str = "", heading: str = "Changed") -> list[str]:
    changelog = f"# Changelog\n\n## Unreleased\n\n### Added\n\n- `ask`\n\n### {heading}\n\n- {changed}\n\n## 1.0\n"
    return list(list_faults({contract: before}, {contract: now}, changelog))


SEEN_AT = ANSWER["properties"]["seen_at"]
ANY_TARGET = {"type": "object", "properties": {"type": {"const": "any"}}}
ADDITIONS = {
    "nothing": http(),
    "an optional field of a request": http(fields(REQUEST, hint={"type": "string"})),
    "an optional parameter": http(parameters=[parameter("fields"), parameter("at")]),
    "a field of an answer": http(
        answer={**fields(ANSWER, n={"type": "integer"}), "required": [*ANSWER["required"], "n"]}
    ),
    "a value that is taken": http(modes=["quick", "deep", "deeper"]),
    "a value that is told": http(statuses=["open", "closed", "parked"]),
    "a request field that may be left out": http({"required": []}),
    "another kind that is taken": http(fields(REQUEST, source_id={"type": ["string", "null"], "maxLength": 100})),
    "a wider limit": http(fields(REQUEST, source_id={"type": "string", "maxLength": 101})),
    "no limit": http(fields(REQUEST, source_id={"type": "string"})),
    "an answer field that is never null": http(answer=fields(ANSWER, note={"type": "string"})),
    "an answer field that is always there": http(answer={"required": ["survivors", "status", "note"]}),
    "other fields are let through": http({"additionalProperties": True}),
    "a tighter limit of an answer": http(answer=fields(ANSWER, seen_at={**SEEN_AT, "maxLength": 29, "minLength": 1})),
    "a format of an answer": http(answer=fields(ANSWER, note={"type": "string", "format": "uri"})),
    "items that may be anything": http(fields(REQUEST, hints={"type": "array", "items": {}})),
    "one more alternative": http(fields(REQUEST, target={"oneOf": [ANY_TARGET, HTTP_TARGET, MCP_TARGET]})),
}
BREACHES = {
    "a request field is gone": (http(fields(REQUEST, force=None)), "Ask.force", "is gone"),
    "an answer field is gone": (http(answer=fields(ANSWER, note=None)), "Told.note", "is gone"),
    "a parameter is gone": (http(parameters=[]), "ask.fields", "is gone"),
    "a value that was taken is gone": (http(modes=["quick"]), "Mode", 'has no value `"deep"`'),
    "a value that was told is gone": (http(statuses=["open"]), "Status", 'has no value `"closed"`'),
    "a request field is required": (http({"required": ["source_id", "force"]}), "Ask.force", "must be sent now"),
    "a required request field is new": (
        http({**fields(REQUEST, why={"type": "string"}), "required": ["source_id", "why"]}),
        "Ask.why",
        "is new, and callers must send it",
    ),
    "a required parameter is new": (
        http(parameters=[parameter("fields"), parameter("at", required=True)]),
        "ask.at",
        "is new, and callers must send it",
    ),
    "an answer field may be missing": (http(answer={"required": ["status"]}), "Told.survivors", "may be missing"),
    "an answer field may be null": (
        http(answer=fields(ANSWER, survivors={**ANSWER["properties"]["survivors"], "type": ["array", "null"]})),
        "Told.survivors",
        "is array or null, was array",
    ),
    "items have another type": (
        http(answer=fields(ANSWER, survivors={"type": "array", "items": {"type": "integer"}})),
        "Told.survivors.[]",
        "is integer, was string",
    ),
    "a request field has another type": (
        http(fields(REQUEST, force={"type": "string", "default": False})),
        "Ask.force",
        "is string, was boolean",
    ),
    "a limit is tighter": (
        http(fields(REQUEST, source_id={"type": "string", "maxLength": 99})),
        "Ask.source_id",
        "has `maxLength` 99, was 100",
    ),
    "a limit is new": (
        http(fields(REQUEST, source_id={"type": "string", "maxLength": 100, "minLength": 1})),
        "Ask.source_id",
        "has `minLength` 1, was unlimited",
    ),
    "a pattern is new": (
        http(fields(REQUEST, source_id={"type": "string", "maxLength": 100, "pattern": "^a"})),
        "Ask.source_id",
        "has `pattern` ^a",
    ),
    "a default is another": (
        http(fields(REQUEST, force={"type": "boolean", "default": True})),
        "Ask.force",
        "has `default` True, was False",
    ),
    "a constant is text": (
        http(answer=fields(ANSWER, version={"const": "1"})),
        "Told.version",
        "has no value `1` any more: name `Told.version` or `Told.version=1`",
    ),
    "an answer has another format": (
        http(answer=fields(ANSWER, seen_at={**SEEN_AT, "format": "date"})),
        "Told.seen_at",
        "has `format` date, was date-time",
    ),
    "an answer has no pattern": (
        http(answer=fields(ANSWER, seen_at={key: SEEN_AT[key] for key in ("type", "format", "maxLength")})),
        "Told.seen_at",
        "has `pattern` None, was Z$",
    ),
    "a limit of an answer is looser": (
        http(answer=fields(ANSWER, seen_at={**SEEN_AT, "maxLength": 31})),
        "Told.seen_at",
        "has `maxLength` 31, was 30",
    ),
    "a header has another type": (http(header="string"), "ask.200.Retry-After", "is string, was integer"),
    "items are restricted": (
        http(fields(REQUEST, hints={"type": "array", "items": {"type": "string"}})),
        "Ask.hints.[]",
        "is new, and restricts",
    ),
    "other fields are restricted": (
        http(fields(REQUEST, labels={"type": "object", "additionalProperties": {"type": "string"}})),
        "Ask.labels.{}",
        "is new, and restricts",
    ),
    "names of fields are restricted": (
        http(fields(REQUEST, labels={"type": "object", "propertyNames": {"pattern": "^a"}})),
        "Ask.labels.{name}",
        "is new, and restricts",
    ),
    "a field of one alternative has another type": (
        http(
            fields(
                REQUEST,
                target={"oneOf": [{**HTTP_TARGET, **fields(HTTP_TARGET, url={"type": "integer"})}, MCP_TARGET]},
            )
        ),
        "Ask.target.http.url",
        "is integer, was string",
    ),
    "a field of one alternative is required": (
        http(fields(REQUEST, target={"oneOf": [HTTP_TARGET, {**MCP_TARGET, "required": ["url"]}]})),
        "Ask.target.mcp.url",
        "must be sent now",
    ),
    "another scope is needed": (http(scopes=["space:write"]), "ask", "has another scopes"),
}


@pytest.mark.parametrize("now", ADDITIONS.values(), ids=ADDITIONS.keys())
def test_an_addition_needs_no_line(now: Elements) -> None:
    assert check(HTTP, http(), now) == []


@pytest.mark.parametrize(("now", "element", "what"), BREACHES.values(), ids=BREACHES.keys())
def test_what_is_no_addition_fails_unless_it_is_named_itself(now: Elements, element: str, what: str) -> None:
    (fault,) = check(HTTP, http(), now)
    assert fault.startswith(f"http: `{element}` {what}")
    assert f"name `{element}`" in fault
    for heading in ("Changed", "Removed"):
        assert check(HTTP, http(), now, f"`{element}` is another.", heading) == []
    for whole in list_parents(HTTP, element):
        assert check(HTTP, http(), now, f"`{whole}` is named for another reason.") == [fault]
    assert check(HTTP, http(), now, f"`{element}`", "Fixed") == [fault]
    assert check(HTTP, http(), now, f"`{element}s` and {element}") == [fault]


def test_an_operation_that_is_gone_is_one_fault_and_may_be_named_by_its_route() -> None:
    now = {name: facts for name, facts in http().items() if name.partition(".")[0] != "ask"}
    (fault,) = check(HTTP, http(), now)
    assert fault == "http: `ask` is gone: name `ask` or `POST /v1/{id}/ask`"
    assert check(HTTP, http(), now, "`POST /v1/{session_id}/ask` is gone.", "Removed") == []


def test_a_value_is_named_with_its_element() -> None:
    now = http(statuses=["open"])
    assert len(check(HTTP, http(), now, "`closed` is gone.", "Removed")) == 1
    assert check(HTTP, http(), now, "`Status=closed` is gone.", "Removed") == []


def test_a_schema_that_is_gone_does_not_cover_the_fields_that_had_it() -> None:
    now = http(answer=fields(ANSWER, status=ref("State")), status_name="State")
    (fault,) = check(HTTP, http(), now, "`Status` is gone.")
    assert fault.startswith("http: `Told.status` is State, was Status")


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"type": "string"}]},
        {"type": "number", "multipleOf": 2},
        {"anyOf": [{"type": "string"}], "oneOf": [{"type": "string"}]},
        {"anyOf": [{"type": "string", "maxLength": 5}], "maxLength": 9},
        True,
    ],
    ids=["allOf", "unknown", "two unions", "beside", "bool"],
)
def test_a_schema_in_which_a_change_could_go_unseen_is_an_error(schema: Any) -> None:
    with pytest.raises(UnknownSchema, match=r"`Ask\.force` has a schema that is not understood"):
        http(fields(REQUEST, force=schema))


def test_alternatives_without_a_constant_are_named_by_their_number() -> None:
    def take(limit: int) -> Elements:
        either = [{"type": "string", "pattern": "^a"}, {"type": "string", "maxLength": limit}]
        return http(fields(REQUEST, force={"anyOf": either}))

    (fault,) = check(HTTP, take(9), take(8))
    assert fault.startswith("http: `Ask.force.1` has `maxLength` 8, was 9")


def test_a_schema_that_is_sent_and_received_may_be_neither_widened_nor_narrowed() -> None:
    def used_twice(kind: Any) -> Elements:
        told = {"type": "object", "properties": {"ask": ref("Ask")}}
        return http(fields(REQUEST, force={"type": kind, "default": False}), told)

    assert check(HTTP, used_twice("boolean"), used_twice(["boolean", "null"]))
    assert check(HTTP, used_twice(["boolean", "null"]), used_twice("boolean"))


def test_an_option_of_the_command_line_is_an_element() -> None:
    before = list_cli({"cmbs tee load": {"--port": {"type": "int", "default": "1"}, "FILE": {"type": "str"}}})
    now = list_cli({"cmbs tee load": {"FILE": {"type": "str", "required": True}, "--new": {"type": "flag"}}})
    assert [fault.partition(": name ")[0] for fault in check(CLI, before, now)] == [
        "cli: `cmbs tee load --port` is gone",
        "cli: `cmbs tee load FILE` must be sent now",
    ]
    assert check(CLI, before, now, "`cmbs tee load --port` and `cmbs tee load FILE` are others.") == []
    assert len(check(CLI, before, now, "`cmbs tee load`, `cmbs tee` and `cmbs` are named for other reasons.")) == 2


def test_commands_of_which_none_is_left_are_named_by_their_group() -> None:
    before = list_cli({"cmbs tee load": {"FILE": {"type": "str"}}, "cmbs tee serve": {}, "cmbs keys": {}})
    assert check(CLI, before, list_cli({"cmbs keys": {}}), "`cmbs tee` is gone.", "Removed") == []
    assert len(check(CLI, before, list_cli({"cmbs keys": {}, "cmbs tee serve": {}}), "`cmbs tee` is gone.")) == 1


def test_a_tool_a_prompt_and_a_template_of_mcp_are_elements() -> None:
    tool = {"name": "observe", "inputSchema": REQUEST, "outputSchema": {"$defs": {"Told": ANSWER}, **ref("Told")}}
    prompt = {"name": "investigate", "arguments": [{"name": "case"}]}
    offers: dict[str, Any] = {
        "tools": [tool],
        "prompts": [prompt],
        "resourceTemplates": [{"uriTemplate": "cmbs://{x}"}],
    }
    before = list_mcp(offers)
    assert check(MCP, before, before) == []
    changed = {**tool, "inputSchema": {**REQUEST, "required": ["source_id", "mode"]}}
    (fault,) = check(MCP, before, list_mcp({**offers, "tools": [changed]}))
    assert fault == "mcp: `MCP observe.args.mode` must be sent now: name `MCP observe.args.mode`"
    gone = check(MCP, before, list_mcp({"tools": [], "prompts": [], "resourceTemplates": []}))
    assert [fault.partition(" is gone")[0] for fault in gone] == [
        "mcp: `MCP cmbs://{x}`",
        "mcp: `MCP investigate`",
        "mcp: `MCP observe`",
    ]


def test_a_requirement_that_is_gone_is_named_by_its_id_or_the_beginning_of_it() -> None:
    before = list_requirements('[[requirement]]\nid = "BS-V1-01"\n[[requirement]]\nid = "BS-V1-02"\n')
    now = list_requirements('[[requirement]]\nid = "BS-V2-01"\n')
    assert len(check(REQUIREMENTS, before, now)) == 2
    assert len(check(REQUIREMENTS, before, now, "`BS-V1-01` is gone")) == 1
    assert check(REQUIREMENTS, before, now, "`BS-V1` is gone") == []
    assert len(check(REQUIREMENTS, before, now, "`BS` is another")) == 2


def test_golden_logs_are_files_that_are_added_and_never_changed(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "export.jsonl").write_text("{}\n")
    (tmp_path / "play.py").write_text("")
    before = list_golden_logs(tmp_path)
    (tmp_path / "v1" / "more.jsonl").write_text("{}\n")
    (tmp_path / "play.py").write_text("# another")
    assert check(GOLDEN_LOGS, before, list_golden_logs(tmp_path)) == []
    (tmp_path / "v1" / "export.jsonl").write_text("[]\n")
    (fault,) = check(GOLDEN_LOGS, before, list_golden_logs(tmp_path))
    assert fault.startswith("golden logs: `golden logs/v1/export.jsonl` has another sha256")
    assert check(GOLDEN_LOGS, before, list_golden_logs(tmp_path), "The `golden logs/v1` are others.") == [fault]
    assert check(GOLDEN_LOGS, before, {}, "The `golden logs/v1` are gone.") == []


def test_only_the_changes_of_the_unreleased_section_are_read() -> None:
    text = "## Unreleased\n### Added\n`a`\n### Changed\n`b\n  c`\n### Removed\n`GET /{id}`\n## 1.0\n### Changed\n`d`\n"
    assert read_named(text) == {"b c", "GET /{}"}


def test_the_contracts_keep_to_the_baseline_or_the_changelog_says_so() -> None:
    contracts = read_contracts()
    assert all(contracts.values())
    assert list(list_faults(json.loads(BASELINE.read_text("utf-8")), contracts, CHANGELOG.read_text("utf-8"))) == []


def test_a_baseline_is_recorded_only_where_a_release_is_tagged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def git(*arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    written = tmp_path / "baseline.json"
    monkeypatch.setattr(check_contracts, "BASELINE", written)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(check_contracts, "ROOT", tmp_path)
        git("init")
        git("commit", "--allow-empty", "--message", "first")
        git("tag", "other")
        assert check_contracts.main(["--record"]) == 2
        assert "HEAD has no tag" in capsys.readouterr().err
        assert not written.exists()
    git("tag", "v1.0.0")
    assert is_tagged(tmp_path)
    git("commit", "--allow-empty", "--message", "second")
    assert not is_tagged(tmp_path)
    assert check_contracts.main(["--record", "--force"]) == 0
    assert json.loads(written.read_text("utf-8")) == read_contracts()


def test_a_baseline_that_was_written_is_read_again_without_a_fault() -> None:
    contracts: dict[str, Elements] = {HTTP: http(), REQUIREMENTS: {"A-1": {}}}
    assert json.loads(baseline_text(contracts)) == contracts


def test_the_file_of_mcp_tools_is_current() -> None:
    assert MCP_FILE.read_text("utf-8") == mcp_tools_text(), "run `make generate`"


def test_the_file_of_commands_is_current() -> None:
    assert CLI_FILE.read_text("utf-8") == cli_text(), "run `make generate`"
