"""Check that the tables of the reference are those of the code: nothing missing, nothing made up, defaults included.

Exits with 1 and one line a table that differs.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from cmbs.api.errors import PRECONDITION_FAILED, STATUS_OF_CODE
from cmbs.belief.kernel.requests import Limits
from cmbs.bootstrap import Settings
from cmbs.cli.app import load_command
from cmbs.documents import csv_text, nodes
from cmbs.documents.fields import MAX_ID_LENGTH, MAX_TEXT_LENGTH
from cmbs.documents.findings import Rule
from cmbs.errors import ErrorCode
from cmbs.identity.kernel.scopes import KIND_OF, SCOPES_OF, Role, Scope
from cmbs.kit import Soundness, parse
from cmbs.kit.rules import WARNINGS, KitRule
from cmbs.messages import Reason
from cmbs.substrate.kernel.limits import SpaceLimits
from cmbs.tee.proto import tee_pb2 as pb
from scripts.error_fields import list_documented

ROOT = Path(__file__).resolve().parent.parent

ERROR_ROW = re.compile(r"^\| `([A-Z_]+)` \| (\d{3}) \|", re.MULTILINE)
ERROR_FIELD_ROW = re.compile(r"^\| (every code|below 500|`[A-Z_]+`) \| `([a-z_.]+)` \| (.*) \|$", re.MULTILINE)
LIMIT_ROW = re.compile(r"^\| `([a-z_]+)` \| ([\d,]+) \|", re.MULTILINE)
VARIABLE_ROW = re.compile(r"^\| `(CMBS_[A-Z_]+)` \|", re.MULTILINE)
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


OPTIONS_DOCUMENTED = [
    *(
        "serve",
        "verify",
        "fsck",
        "export",
        "follow",
        "import",
        "partition",
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

# The name of a table, what the reference says and what the code says.
Table = tuple[str, Any, Any]


def error_tables() -> Iterator[Table]:
    table = [(code.value, status) for code, status in STATUS_OF_CODE.items()]
    for name in ("BELIEF_PROTOCOL.md", "docs/reference/errors.md"):
        documented = [(code, int(status)) for code, status in ERROR_ROW.findall(text_of(name))]
        yield f"{name}: errors", sorted(documented), sorted([*table, (ErrorCode.CONFLICT.value, PRECONDITION_FAILED)])
    documented_fields = ERROR_FIELD_ROW.findall(text_of("docs/reference/errors.md"))
    yield "docs/reference/errors.md: fields of details", documented_fields, list(list_documented())
    reasons = REASON_ROW.findall(section(text_of("BELIEF_PROTOCOL.md"), "Reasons"))
    yield "BELIEF_PROTOCOL.md: reasons", reasons, [reason.value for reason in Reason]


def settings_tables() -> Iterator[Table]:
    name = "docs/reference/settings.md"
    limits = [(item.name, f"{item.default:,}") for item in (*fields(Limits), *fields(SpaceLimits))]
    yield f"{name}: limits", LIMIT_ROW.findall(text_of(name)), limits
    variables = [each for each in Settings().to_environment() if not each.startswith("CMBS_LIMIT_")]
    yield f"{name}: variables", VARIABLE_ROW.findall(text_of(name)), variables


def option_tables() -> Iterator[Table]:
    page = text_of("docs/reference/cli.md")
    for name in OPTIONS_DOCUMENTED:
        first, *rest = name.split()
        command = load_command(first)
        for word in rest:
            command = command.commands[word]
        options = [option for parameter in command.params for option in parameter.opts if option[:2] == "--"]
        yield f"docs/reference/cli.md: cmbs {name}", OPTION.findall(section(page, f"cmbs {name}")), options


def kit_tables() -> Iterator[Table]:
    name = "docs/reference/kits.md"
    page = text_of(name)
    rules = [(rule.value, "warning" if rule in WARNINGS else "error") for rule in (*Rule, *KitRule)]
    yield f"{name}: rules", RULE_ROW.findall(page), rules
    yield f"{name}: soundness", WORD_ROW.findall(section(page, "Soundness")), [each.value for each in Soundness]
    limits = [
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
    yield f"{name}: limits", [int(number.replace(",", "")) for number in KIT_LIMIT_ROW.findall(page)], limits


def tee_tables() -> Iterator[Table]:
    calls = pb.DESCRIPTOR.services_by_name["Tee"].methods
    known = [(each.name, each.input_type.name, each.output_type.name) for each in calls]
    yield "docs/reference/tee.md: calls", TEE_ROW.findall(text_of("docs/reference/tee.md")), known


def identity_tables() -> Iterator[Table]:
    name = "docs/operating/identity.md"
    page = text_of(name)
    documented = [
        (role, set(re.findall(r"`([a-z:]+)`", scopes)), kind) for role, scopes, kind in ROLE_ROW.findall(page)
    ]
    known = [
        (role.value, {scope.value for scope in SCOPES_OF[role]}, KIND_OF[role].value if role in KIND_OF else "")
        for role in Role
    ]
    yield f"{name}: roles", documented, known
    yield f"{name}: scopes", SCOPE_ROW.findall(page), [scope.value for scope in Scope]


TABLES = (
    error_tables,
    settings_tables,
    option_tables,
    kit_tables,
    tee_tables,
    identity_tables,
)


def main() -> int:
    differing = [table for tables in TABLES for table in tables() if table[1] != table[2]]
    for name, documented, known in differing:
        missing = [each for each in known if each not in documented]
        made_up = [each for each in documented if each not in known]
        what = f"missing {missing}, made up {made_up}" if missing or made_up else "not in the order of the code"
        sys.stdout.write(f"{name}: {what}\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
