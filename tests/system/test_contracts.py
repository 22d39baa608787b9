"""The contract files and the baseline are current, and a change that is no addition needs its line in the changelog."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from scripts import check_contracts
from scripts.check_contracts import (
    SINCE,
    baseline_text,
    list_faults,
    read_named,
    read_released_logs,
)
from scripts.contracts import (
    CLI,
    ERRORS,
    GOLDEN_LOGS,
    HTTP,
    MCP,
    REQUIREMENTS,
    Elements,
    UnknownSchema,
    list_cli,
    list_errors,
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
        "ErrorResponse": {"type": "object"},
        more.get("status_name", "Status"): {"enum": more.get("statuses", ["open", "closed"])},
    }
    header = {"headers": {"Retry-After": {"$ref": "#/components/headers/Retry-After"}}}
    operation = {
        "operationId": "ask",
        "security": more.get("security", [{"key": ["belief:write"]}, {}]),
        "parameters": more.get("parameters", [parameter("fields")]),
        "requestBody": {"required": True, "content": {"application/json": {"schema": ref("Ask")}}},
        "responses": {
            "200": {**header, "content": {"application/json": {"schema": ref("Told")}}},
            "409": {"content": {"application/json": {"schema": more.get("failed", ref("ErrorResponse"))}}},
        },
    }
    headers = {"Retry-After": {"schema": {"type": more.get("header", "integer")}}}
    schemes = {"key": {"type": "http", "scheme": more.get("scheme", "bearer"), "description": "A key."}}
    components = {"schemas": schemas, "headers": headers, "securitySchemes": schemes}
    return list_http({"paths": {"/v1/{id}/ask": {"post": operation}}, "components": components})


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def failed(*codes: str) -> dict[str, Any]:
    """The answer to a request that failed with one of these codes."""
    names = {code: f"#/components/schemas/{code}" for code in codes}
    told = {"propertyName": "code", "mapping": names}
    error = {"oneOf": [{"$ref": name} for name in names.values()], "discriminator": told}
    return {"type": "object", "properties": {"error": error}, "required": ["error"]}


def parameter(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": {"type": "string"}, **more}


def fields(schema: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The properties of a schema with some replaced, added, or (by None) left out."""
    changed = {**schema["properties"], **changes}
    return {"properties": {name: each for name, each in changed.items() if each is not None}}


def check(contract: str, before: Elements, now: Elements, *named: str, released: Elements | None = None) -> list[str]:
    """What may not be recorded, where the changelog names these lines and a release has these golden logs."""
    return list(list_faults({contract: before}, {contract: now}, set(named), released or {}))


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
    "another way to be let in": http(security=[{"key": ["belief:write"]}, {"key": ["belief:read"]}, {}]),
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
        "has no value `1` any more",
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
    "another scope is needed": (
        http(security=[{"key": ["space:write"]}, {}]),
        "ask",
        'cannot be called with `{"key": ["belief:write"]}` any more',
    ),
    "a key is needed": (http(security=[{"key": ["belief:write"]}]), "ask", "cannot be called with `{}` any more"),
    "keys are shown in another way": (http(scheme="basic"), "security.key", "has another scheme"),
}


@pytest.mark.parametrize("now", ADDITIONS.values(), ids=ADDITIONS.keys())
def test_an_addition_needs_no_line(now: Elements) -> None:
    assert check(HTTP, http(), now) == []


@pytest.mark.parametrize(("now", "element", "what"), BREACHES.values(), ids=BREACHES.keys())
def test_what_is_no_addition_fails_unless_the_changelog_has_its_line(now: Elements, element: str, what: str) -> None:
    (fault,) = check(HTTP, http(), now)
    assert fault.startswith(f"http: `{element}` {what}")
    assert check(HTTP, http(), now, fault) == []
    others = [f"http: `{whole}` is gone" for whole in list_parents(HTTP, element) if whole not in now]
    others += [f"http: `{element}`", f"`{element}`", f"http: `{element}` has another fault", f"{fault} now"]
    assert check(HTTP, http(), now, *others) == [fault]


def test_an_operation_that_is_open_to_all_may_not_ask_for_a_key() -> None:
    (fault,) = check(HTTP, http(security=[]), http(security=[{"key": []}]))
    assert fault == "http: `ask` cannot be called with `{}` any more"


def test_an_operation_that_is_gone_is_one_fault() -> None:
    now = {name: facts for name, facts in http().items() if name.partition(".")[0] != "ask"}
    assert check(HTTP, http(), now) == ["http: `ask` is gone"]
    assert check(HTTP, http(), now, "http: `ask` is gone") == []


def test_what_the_changelog_calls_gone_may_not_be_there() -> None:
    line = "http: `ask.fields` is gone"
    assert check(HTTP, http(parameters=[]), http(), line) == [f"{line}: the changelog says so, and it is there"]


def test_a_schema_that_is_gone_does_not_cover_the_fields_that_had_it() -> None:
    now = http(answer=fields(ANSWER, status=ref("State")), status_name="State")
    (fault,) = check(HTTP, http(), now, "http: `Status` is gone")
    assert fault == "http: `Told.status` is State, was Status"


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


@pytest.mark.parametrize(
    ("request_schema", "parameters"),
    [
        ({"required": ["undescribed"]}, []),
        ({}, [parameter("fields", style="deepObject")]),
        ({}, [parameter("fields"), {**parameter("fields"), "in": "header"}]),
    ],
    ids=["required", "style of a parameter", "two of one name"],
)
def test_what_is_sent_in_a_way_that_is_not_understood_is_an_error(
    request_schema: dict[str, Any], parameters: list[dict[str, Any]]
) -> None:
    with pytest.raises(UnknownSchema):
        http(request_schema, parameters=parameters)


def test_the_codes_of_a_failure_are_values_of_the_answer_to_it() -> None:
    any_code, one, two = http(), http(failed=failed("GONE")), http(failed=failed("GONE", "TAKEN"))
    assert two["ask.409"] == {"is": ["ErrorResponse"], "users": ["received"], "values": ['"GONE"', '"TAKEN"']}
    assert check(HTTP, any_code, one) == check(HTTP, one, two) == []
    assert check(HTTP, two, one) == [f'{HTTP}: `ask.409` has no value `"TAKEN"` any more']


def test_a_field_that_is_described_anew_restricts_an_open_object() -> None:
    opened = {"additionalProperties": True}
    hint = fields(REQUEST, hint={"type": "string"})
    (fault,) = check(HTTP, http(opened), http({**opened, **hint}))
    assert fault == "http: `Ask.hint` is new, and restricts what callers may send"


def test_alternatives_without_a_constant_are_named_by_their_number() -> None:
    def take(limit: int) -> Elements:
        either = [{"type": "string", "pattern": "^a"}, {"type": "string", "maxLength": limit}]
        return http(fields(REQUEST, force={"anyOf": either}))

    (fault,) = check(HTTP, take(9), take(8))
    assert fault.startswith("http: `Ask.force.1` has `maxLength` 8, was 9")


def test_a_schema_that_is_sent_and_received_may_be_neither_widened_nor_narrowed() -> None:
    def used_twice(kind: Any) -> Elements:
        told = {"type": "object", "properties": {"ask": ref("Ask")}}
        return http(fields(REQUEST, force={"type": kind, "default": False}), {**told, "required": ["ask"]})

    assert check(HTTP, used_twice("boolean"), used_twice(["boolean", "null"]))
    assert check(HTTP, used_twice(["boolean", "null"]), used_twice("boolean"))


def test_an_option_of_the_command_line_is_an_element() -> None:
    before = list_cli({"cmbs tee load": {"--port": {"type": "int", "default": "1"}, "FILE": {"type": "str"}}})
    now = list_cli({"cmbs tee load": {"FILE": {"type": "str", "required": True}, "--new": {"type": "flag"}}})
    faults = check(CLI, before, now)
    assert faults == ["cli: `cmbs tee load --port` is gone", "cli: `cmbs tee load FILE` must be sent now"]
    assert check(CLI, before, now, *faults) == []
    assert check(CLI, before, now, "cli: `cmbs tee` is gone") == faults


def test_arguments_of_the_command_line_stay_where_they_are() -> None:
    def take(*names: str) -> Elements:
        return list_cli({"cmbs kit impact": {name: {"type": "Path", "position": n} for n, name in enumerate(names, 1)}})

    assert check(CLI, take("OLD", "NEW"), take("OLD", "NEW", "MORE")) == []
    assert check(CLI, take("OLD", "NEW"), take("NEW", "OLD")) == [
        "cli: `cmbs kit impact NEW` has another position: 1, was 2",
        "cli: `cmbs kit impact OLD` has another position: 2, was 1",
    ]


def test_the_positions_of_arguments_are_in_the_file_of_commands() -> None:
    impact = json.loads(cli_text())["cmbs kit impact"]
    assert [(name, impact[name]["position"]) for name in ("OLD", "NEW")] == [("OLD", 1), ("NEW", 2)]
    assert "position" not in impact["--store"]


def test_a_tool_a_prompt_a_resource_and_a_template_of_mcp_are_elements() -> None:
    tool = {"name": "observe", "inputSchema": REQUEST, "outputSchema": {"$defs": {"Told": ANSWER}, **ref("Told")}}
    prompt = {"name": "investigate", "arguments": [{"name": "case"}]}
    offers: dict[str, Any] = {
        "tools": [tool],
        "prompts": [prompt],
        "resources": [{"uri": "cmbs://kits", "mimeType": "application/json"}],
        "resourceTemplates": [{"uriTemplate": "cmbs://kits/{x}"}],
    }
    before = list_mcp(offers)
    assert check(MCP, before, before) == []
    changed = {**tool, "inputSchema": {**REQUEST, "required": ["source_id", "mode"]}}
    (fault,) = check(MCP, before, list_mcp({**offers, "tools": [changed]}))
    assert fault == "mcp: `MCP observe.args.mode` must be sent now"
    (fault,) = check(MCP, before, list_mcp({**offers, "resources": [{"uri": "cmbs://kits", "mimeType": "text/csv"}]}))
    assert fault == "mcp: `MCP cmbs://kits` has another mimeType: text/csv, was application/json"
    assert check(MCP, before, list_mcp(dict.fromkeys(offers, ()))) == [
        "mcp: `MCP cmbs://kits` is gone",
        "mcp: `MCP cmbs://kits/{x}` is gone",
        "mcp: `MCP investigate` is gone",
        "mcp: `MCP observe` is gone",
    ]


def test_each_requirement_that_is_gone_is_named_by_its_id() -> None:
    before = list_requirements("".join(f'[[requirement]]\nid = "{name}"\n' for name in ("IMPACT", "IMPACT-BELIEF")))
    faults = check(REQUIREMENTS, before, {})
    assert faults == ["requirements: `IMPACT` is gone", "requirements: `IMPACT-BELIEF` is gone"]
    assert check(REQUIREMENTS, before, {}, faults[0]) == faults[1:]


def test_golden_logs_may_be_written_anew_until_a_release_is_tagged(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "export.jsonl").write_text("{}\n")
    (tmp_path / "play.py").write_text("")
    before = list_golden_logs(tmp_path)
    (tmp_path / "v1" / "more.jsonl").write_text("{}\n")
    (tmp_path / "play.py").write_text("# another")
    assert check(GOLDEN_LOGS, before, list_golden_logs(tmp_path), released=before) == []
    (tmp_path / "v1" / "export.jsonl").write_text("[]\n")
    now = list_golden_logs(tmp_path)
    assert check(GOLDEN_LOGS, before, now) == []
    gone = "golden logs: `golden logs/v1/export.jsonl` is gone"
    assert check(GOLDEN_LOGS, before, {}) == [gone]
    assert check(GOLDEN_LOGS, before, {}, gone) == []

    # A baseline that was recorded without the tags does not help either.
    for recorded in (before, now):
        (fault,) = check(GOLDEN_LOGS, recorded, now, released=before)
        assert fault.startswith("golden logs: `golden logs/v1/export.jsonl` has another sha256: ")
        assert check(GOLDEN_LOGS, recorded, now, fault, fault.rpartition(": ")[0], released=before) == [fault]
    (fault,) = check(GOLDEN_LOGS, before, {}, gone, released=before)
    assert fault.startswith(gone)


def test_only_the_contracts_that_changed_since_the_last_release_are_read() -> None:
    text = """# Changelog
## Unreleased
### Added
#### Contracts
- added
### Changed
- `cmbs serve` is mentioned
#### Contracts
Some words.
- http: `a` is
  gone
- cli: `b` is gone
  - nested

- cli: `c` is gone
#### Others
- other
### Removed
#### Contracts
- removed
## 1.0
### Changed
#### Contracts
- released
"""
    assert read_named(text) == {"http: `a` is gone", "cli: `b` is gone - nested", "cli: `c` is gone"}


@pytest.fixture
def contracts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Elements]:
    """Contracts that a test may change, recorded in a baseline of its own, beside an empty changelog."""
    found: dict[str, Elements] = {
        HTTP: http(),
        CLI: list_cli({"cmbs serve": {}}),
        GOLDEN_LOGS: {"log": {"sha256": "a"}},
    }
    for name, text in {"BASELINE": baseline_text(found), "CHANGELOG": ""}.items():
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(check_contracts, name, tmp_path / name)
    monkeypatch.setattr(check_contracts, "ROOT", tmp_path)
    monkeypatch.setattr(check_contracts, "read_contracts", lambda: found)
    return found


def test_an_addition_is_recorded_and_from_then_on_protected(
    contracts: dict[str, Elements], capsys: pytest.CaptureFixture[str]
) -> None:
    contracts[CLI]["cmbs new"] = {}
    contracts[GOLDEN_LOGS]["log"] = {"sha256": "b"}
    assert check_contracts.main([]) == 1
    told = capsys.readouterr().err
    assert told.startswith("cli: `cmbs new`\ngolden logs: `log`\n")
    assert "--record" in told
    assert check_contracts.main(["--record"]) == check_contracts.main([]) == 0

    recorded = check_contracts.BASELINE.read_text()
    del contracts[CLI]["cmbs new"]
    check_contracts.CHANGELOG.write_text("## Unreleased\n### Changed\n- `cmbs new` does more.\n")
    for arguments in ([], ["--record"]):
        assert check_contracts.main(arguments) == 1
        assert capsys.readouterr().err.startswith("cli: `cmbs new` is gone\n\nThese changes are no additions.")
    assert check_contracts.BASELINE.read_text() == recorded


def test_a_change_that_the_changelog_names_is_recorded(
    contracts: dict[str, Elements], capsys: pytest.CaptureFixture[str]
) -> None:
    del contracts[CLI]["cmbs serve"]
    listed = "## Unreleased\n### Changed\n#### Contracts\n- cli: `cmbs old` is gone\n"
    check_contracts.CHANGELOG.write_text(listed)
    assert check_contracts.main(["--record"]) == 1
    assert capsys.readouterr().err.endswith("that no change needs now:\ncli: `cmbs old` is gone\n")
    check_contracts.CHANGELOG.write_text(f"{listed}- cli: `cmbs serve` is gone\n")
    assert check_contracts.main([]) == 1
    assert "--record" in capsys.readouterr().err
    assert check_contracts.main(["--record"]) == check_contracts.main([]) == 0
    assert json.loads(check_contracts.BASELINE.read_text()) == contracts


def git(directory: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=directory, check=True, capture_output=True)


def commit(directory: Path, baseline: dict[str, Elements]) -> None:
    (directory / "api").mkdir(exist_ok=True)
    (directory / "api" / "baseline.json").write_text(baseline_text(baseline))
    git(directory, "add", "api")
    git(directory, "commit", "--message", "record")


def test_the_golden_logs_of_releases_are_read_from_the_tags_before_this_commit(tmp_path: Path) -> None:
    first, second = ({GOLDEN_LOGS: {log: {"sha256": "a"}}} for log in ("first", "second"))
    assert read_released_logs(tmp_path) == {}
    git(tmp_path, "init")
    assert read_released_logs(tmp_path) == {}
    git(tmp_path, "commit", "--allow-empty", "--message", "no baseline")
    git(tmp_path, "tag", "v0.0.1")
    commit(tmp_path, first)
    git(tmp_path, "tag", "other")
    assert read_released_logs(tmp_path) == {}
    git(tmp_path, "tag", "v1.0.0")
    commit(tmp_path, second)
    assert read_released_logs(tmp_path) == first[GOLDEN_LOGS]
    git(tmp_path, "tag", "v2.0.0")
    git(tmp_path, "checkout", "v1.0.0")
    assert read_released_logs(tmp_path) == first[GOLDEN_LOGS]


@pytest.mark.parametrize("n_later", [0, 1, 2])
def test_a_name_that_was_replaced_in_contracts_and_baseline_alike_is_found(
    contracts: dict[str, Elements], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_later: int
) -> None:
    git(tmp_path, "init")
    commit(tmp_path, {ERRORS: {"CONFLICT": {}, "CONFLICT.eliminated_by": {}}})
    git(tmp_path, "tag", "pushed")
    contracts[ERRORS] = {"CONFLICT": {}, "CONFLICT.group_eliminated": {}}
    check_contracts.BASELINE.write_text(baseline_text(contracts))
    for number in range(n_later):
        commit(tmp_path, contracts | {"later": {str(number): {}}})
    monkeypatch.setenv(SINCE, "pushed" if n_later == 2 else "")
    assert check_contracts.main([]) == check_contracts.main(["--record"]) == 1
    line = "errors: `CONFLICT.eliminated_by` is gone"
    check_contracts.CHANGELOG.write_text(f"## Unreleased\n### Changed\n#### Contracts\n- {line}\n")
    assert check_contracts.main([]) == 0


def test_the_fields_of_errors_are_elements() -> None:
    prose = "`details.eliminated_by` has the `seq` and the `event_id`."
    assert list_errors({"CONFLICT": ["by", "by.seq"]}, [prose]).keys() == {
        *("CONFLICT", "CONFLICT.by", "CONFLICT.by.seq"),
        *("details.eliminated_by", "details.eliminated_by.seq", "details.eliminated_by.event_id"),
    }


def test_a_baseline_that_was_written_is_read_again_without_a_fault() -> None:
    contracts: dict[str, Elements] = {HTTP: http(), REQUIREMENTS: {"A-1": {}}}
    assert json.loads(baseline_text(contracts)) == contracts


def test_the_file_of_mcp_tools_is_current() -> None:
    assert MCP_FILE.read_text("utf-8") == mcp_tools_text(), "run `make generate`"


def test_the_file_of_commands_is_current() -> None:
    assert CLI_FILE.read_text("utf-8") == cli_text(), "run `make generate`"
