"""The tables of the reference are those of the code: nothing missing, nothing made up, defaults included."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from cmbs.belief.kernel.requests import Limits
from cmbs.bootstrap import Settings
from cmbs.cli.app import load_command
from cmbs.documents import csv_text, nodes
from cmbs.documents.fields import MAX_ID_LENGTH, MAX_TEXT_LENGTH
from cmbs.documents.findings import Rule
from cmbs.errors import ErrorCode
from cmbs.http.errors import PRECONDITION_FAILED, STATUS_OF_CODE, TransportCode
from cmbs.http.live.routes import EVENT_OPERATIONS
from cmbs.http.operations import OPERATIONS
from cmbs.identity import Role, Scope
from cmbs.identity.kernel.scopes import KIND_OF, SCOPES_OF
from cmbs.kit import Soundness, parse
from cmbs.kit.rules import WARNINGS, KitRule
from cmbs.messages import Reason
from cmbs.substrate.kernel.limits import SpaceLimits
from cmbs.tee.proto import tee_pb2 as pb

ROOT = Path(__file__).resolve().parents[2]

ERROR_ROW = re.compile(r"^\| `([A-Z_]+)` \| (\d{3}) \|", re.MULTILINE)
LIMIT_ROW = re.compile(r"^\| `([a-z_]+)` \| ([\d,]+) \|", re.MULTILINE)
VARIABLE_ROW = re.compile(r"^\| `(CMBS_[A-Z_]+)` \|", re.MULTILINE)
OPERATION_ROW = re.compile(r"^\| `(GET|POST|PUT) (/\S*)` \|[^|]*\|[^|]*\| (.*) \|$", re.MULTILINE)
REASON_ROW = re.compile(r"^\| `([a-z_]+)` \| [a-z, ]+ \|", re.MULTILINE)
TEE_ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \| (?:stream of )?`(\w+)` \|", re.MULTILINE)
ROLE_ROW = re.compile(r"^\| `(\w+)` \| ((?:`\w+:\w+`(?:, )?)+) \| ?(?:`(\w+)` )?\|$", re.MULTILINE)
SCOPE_ROW = re.compile(r"^\| `(\w+:\w+)` \|", re.MULTILINE)
RULE_ROW = re.compile(r"^\| `([a-z-]+)` \| (error|warning) \|", re.MULTILINE)
WORD_ROW = re.compile(r"^\| `([a-z-]+)` \|", re.MULTILINE)
KIT_LIMIT_ROW = re.compile(r"^\| [a-z][^|`]* \| ([\d,]+) \|$", re.MULTILINE)
OPTION = re.compile(r"^\| `(--[a-z-]+)` \|", re.MULTILINE)


def text_of(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def section(text: str, title: str) -> str:
    """What stands under a heading of the second level."""
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.req("BS-3.2-ERR-15")
@pytest.mark.parametrize("name", ["BELIEF_PROTOCOL.md", "docs/reference/errors.md"])
def test_the_documented_errors_are_those_of_the_status_table(name: str) -> None:
    assert STATUS_OF_CODE.keys() == {*ErrorCode, *TransportCode}
    documented = [(code, int(status)) for code, status in ERROR_ROW.findall(text_of(name))]
    table = [(code.value, status) for code, status in STATUS_OF_CODE.items()]
    assert sorted(documented) == sorted([*table, (ErrorCode.CONFLICT.value, PRECONDITION_FAILED)])


def test_the_documented_reasons_are_the_reasons_in_their_order() -> None:
    assert REASON_ROW.findall(section(text_of("BELIEF_PROTOCOL.md"), "Reasons")) == [reason.value for reason in Reason]


@pytest.mark.req("ARCH-5-LIMIT-06")
def test_the_documented_limits_are_the_limits_with_their_defaults() -> None:
    documented = LIMIT_ROW.findall(text_of("docs/reference/settings.md"))
    assert documented == [(item.name, f"{item.default:,}") for item in (*fields(Limits), *fields(SpaceLimits))]


def test_the_documented_variables_are_those_that_a_worker_is_given() -> None:
    variables = [name for name in Settings().to_environment() if not name.startswith("CMBS_LIMIT_")]
    assert VARIABLE_ROW.findall(text_of("docs/reference/settings.md")) == variables


def test_the_documented_operations_are_those_of_the_dispatch_table() -> None:
    documented = [
        (method, path, set(re.findall(r"`(\w+)`", query)))
        for method, path, query in OPERATION_ROW.findall(text_of("docs/reference/http.md").replace(" | |", " |  |"))
    ]
    assert sorted(documented, key=str) == sorted(
        [
            (each.method, each.path, {parameter.name for parameter in each.query})
            for each in (*OPERATIONS, *EVENT_OPERATIONS)
        ],
        key=str,
    )


OPTIONS_DOCUMENTED = [
    *(
        "serve",
        "verify",
        "fsck",
        "export",
        "follow",
        "import",
        "migrate",
        "verifier",
        "version",
        "analyse",
        "bench agents",
        "play 20q",
    ),
    *("heads", "checkpoint keygen", "checkpoint rotate", "checkpoint show", "checkpoint check"),
    *("witness keygen", "witness serve"),
    *("tee serve", "tee load", "tee show", "tee repair", "keys create", "keys list", "keys revoke"),
    *("proof inclusion", "proof consistency", "proof membership", "proof elimination"),
    *("proof transition", "proof refusal", "proof decision", "proof check"),
    *("kit check", "kit schema", "kit from-table", "kit import itbench", "kit builtin"),
    *("mcp", "hook", "gateway", "gateway changes", "gateway accept", "decide"),
    *("declare", "observe", "probes", "kit put", "kit list", "kit show"),
    *("case open", "case close", "case list", "case show"),
    *("webhooks create", "webhooks list", "webhooks show", "webhooks rotate", "webhooks disable", "webhooks enable"),
    *("webhooks delete", "webhooks test", "webhooks deliveries", "webhooks redeliver"),
    *("policy test", "policy lint", "policy explain", "policy impact", "policy schema"),
]


@pytest.mark.parametrize("name", OPTIONS_DOCUMENTED)
def test_the_documented_options_are_those_of_the_command(name: str) -> None:
    first, *rest = name.split()
    command = load_command(first)
    for word in rest:
        command = command.commands[word]
    options = [option for parameter in command.params for option in parameter.opts if option[:2] == "--"]
    assert OPTION.findall(section(text_of("docs/reference/cli.md"), f"cmbs {name}")) == options


def test_the_documented_rules_of_kits_are_the_rules_in_their_order() -> None:
    documented = RULE_ROW.findall(text_of("docs/reference/kits.md"))
    assert documented == [(rule.value, "warning" if rule in WARNINGS else "error") for rule in (*Rule, *KitRule)]


def test_the_documented_soundness_of_kits_is_the_enumeration() -> None:
    documented = WORD_ROW.findall(section(text_of("docs/reference/kits.md"), "Soundness"))
    assert documented == [soundness.value for soundness in Soundness]


def test_the_documented_limits_of_kits_are_those_of_the_loader() -> None:
    documented = [int(number.replace(",", "")) for number in KIT_LIMIT_ROW.findall(text_of("docs/reference/kits.md"))]
    assert documented == [
        nodes.MAX_BYTES,
        nodes.MAX_VALUES,
        nodes.MAX_DEPTH,
        parse.MAX_HYPOTHESES,
        parse.MAX_PROBES,
        parse.MAX_ATTRIBUTES,
        parse.MAX_ATTRIBUTE_NAME_LENGTH,
        parse.MAX_OUTCOMES,
        parse.MAX_ELIMINATIONS,
        MAX_ID_LENGTH,
        MAX_TEXT_LENGTH,
        csv_text.MAX_ROWS,
        csv_text.MAX_COLUMNS,
    ]


def test_the_documented_calls_of_tee_are_those_of_the_service() -> None:
    calls = pb.DESCRIPTOR.services_by_name["Tee"].methods
    documented = TEE_ROW.findall(text_of("docs/reference/tee.md"))
    assert documented == [(each.name, each.input_type.name, each.output_type.name) for each in calls]


def test_the_documented_roles_and_scopes_are_those_of_the_code() -> None:
    page = text_of("docs/operating/identity.md")
    documented = [
        (role, set(re.findall(r"`([a-z:]+)`", scopes)), kind) for role, scopes, kind in ROLE_ROW.findall(page)
    ]
    assert documented == [
        (role.value, {scope.value for scope in SCOPES_OF[role]}, KIND_OF[role].value if role in KIND_OF else "")
        for role in Role
    ]
    assert SCOPE_ROW.findall(page) == [scope.value for scope in Scope]
