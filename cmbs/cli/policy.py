"""`cmbs policy …`: what a policy does before it is in force, and why it decided what it decided."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer

from cmbs.audit.transfer import read_exported
from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli import policy_output as output
from cmbs.cli.output import STANDARD_INPUT, existing_store, fail, failing_cleanly, read_input
from cmbs.documents.nodes import MAX_BYTES
from cmbs.errors import InvalidRequest, RecordNotFound, SpaceNotFound
from cmbs.ledger import StoredEntry
from cmbs.messages import ActorKind
from cmbs.substrate.kernel.events import STREAM_PREFIX
from cmbs.substrate.kernel.insight.cases import run_cases, situation
from cmbs.substrate.kernel.insight.explanation import Explanation, Hypothetical, recall
from cmbs.substrate.kernel.insight.explanation import explain as explanation_of
from cmbs.substrate.kernel.insight.impact import impact_of
from cmbs.substrate.kernel.insight.lint import Severity
from cmbs.substrate.kernel.insight.lint import lint as lint_policy
from cmbs.substrate.kernel.model import Tool
from cmbs.substrate.kernel.policy.document_schema import SCHEMAS
from cmbs.substrate.kernel.policy.documents import (
    Case,
    CaseDocument,
    CaseProposal,
    PolicyDocument,
    is_case_document,
    pairs_of,
    read_document,
)
from cmbs.substrate.kernel.policy.policy import compile_policy, validate_policy
from cmbs.substrate.kernel.replay import catch_up_space, read_space_event
from cmbs.substrate.kernel.state import Space

app = typer.Typer(
    name="policy", help="Test, look through, explain and try out policies of spaces.", no_args_is_help=True
)

_ENTRIES_PER_READ = 1_000
D = TypeVar("D")

JsonOption = Annotated[bool, typer.Option("--json", help="Print everything as one JSON document.")]
StoreOption = Annotated[str, typer.Option("--store", envvar="CMBS_STORE", help="Which store.", metavar="URL")]
SpaceOption = Annotated[str, typer.Option("--space", help="Which space of the store or the log.", metavar="ID")]
LogOption = Annotated[
    Path | None,
    typer.Option(
        "--log", help="Read the space from an export instead of a store; - is standard input.", metavar="FILE"
    ),
]


@app.command("test")
def run_tests(
    files: Annotated[list[Path], typer.Argument(help="Case files in YAML or JSON.", metavar="FILE…")],
    require_coverage: Annotated[
        bool, typer.Option("--require-coverage", help="Fail where a constraint was never asked.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Decide the cases of a policy and compare with what they expect; exit code 1 where one is otherwise."""
    reports = []
    with _reading_policies():
        for file in files:
            document = _read(file, CaseDocument)
            if not document.cases:
                raise InvalidRequest(f"{file} has no cases")
            pairs, tools = _policy_of(document, file)
            reports.append((str(file), run_cases(document, pairs, tools)))
    if as_json:
        _print_json([output.tests_to_dict(*each) for each in reports])
    else:
        output.show_tests(reports)
    failed = any(not result.passed for _, tested in reports for result in tested.results)
    uncovered = require_coverage and any(tested.coverage.never_asked for _, tested in reports)
    if failed or uncovered:
        raise typer.Exit(1)


@app.command()
def lint(
    files: Annotated[
        list[Path], typer.Argument(help="Policies, or case files that bring or name one.", metavar="FILE…")
    ],
    as_json: JsonOption = False,
) -> None:
    """Say what is wrong with policies; exit code 1 where there is an error or a warning. Says only what is proved."""
    reports = []
    with _reading_policies():
        for file in files:
            pairs, tools = _any_policy(file)
            reports.append((str(file), lint_policy(pairs, None if tools is None else [each.tool_id for each in tools])))
    if as_json:
        _print_json([output.lint_to_dict(*each) for each in reports])
    else:
        output.show_lint(reports)
    if any(finding.severity is not Severity.NOTE for _, report in reports for finding in report.findings):
        raise typer.Exit(1)


@app.command()
def explain(
    file: Annotated[
        Path | None, typer.Argument(help="A case file: policy, state, tools and cases.", metavar="FILE")
    ] = None,
    case: Annotated[str | None, typer.Option("--case", help="Explain the case of this name.", metavar="NAME")] = None,
    proposal: Annotated[
        str | None,
        typer.Option(
            "--proposal",
            help="With FILE: explain the proposal in this file. Without: the recorded one of this id.",
            metavar="FILE|ID",
        ),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    space: SpaceOption = "default",
    log: LogOption = None,
    reader: Annotated[
        ActorKind, typer.Option("--as", help="Explain to an actor of this kind, who may not read everything.")
    ] = ActorKind.OPERATOR,
    as_json: JsonOption = False,
) -> None:
    """Say why a proposal is decided as it is, and the smallest change of facts that would turn it."""
    with _reading_policies():
        if file is not None:
            asked = _read_case(file, case, proposal)
        elif proposal is None or case is not None:
            raise InvalidRequest("name a case file, or with --proposal the id of a recorded proposal")
        else:
            asked = _find_recorded(_entries(store, space, log), space, proposal)
        explanation: Explanation = explanation_of(asked, reader)
    if as_json:
        _print_json(msgspec.to_builtins(explanation))
    else:
        output.show_explanation(explanation)


@app.command()
def impact(
    against: Annotated[Path, typer.Option("--against", help="The policy to try on the past.", metavar="FILE")],
    store: StoreOption = DEFAULT_STORE,
    space: SpaceOption = "default",
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Decide a space's past again under another policy; exit code 1 where a verdict would be another."""
    with _reading_policies():
        pairs, _ = _any_policy(against)
        faults = validate_policy(pairs)
        if faults:
            raise InvalidRequest(f"{against}: {faults[0].key}: {faults[0].message}")
        found = impact_of(space, _entries(store, space, log), compile_policy(pairs))
    if as_json:
        _print_json({**msgspec.to_builtins(found), "counts": found.counts()})
    else:
        output.show_impact(found)
    if found.flips:
        raise typer.Exit(1)


@app.command()
def schema(
    of: Annotated[str, typer.Argument(help="policy or cases.", metavar="policy|cases")] = "policy",
) -> None:
    """Print the JSON Schema of policy or case files, for editors and other programs."""
    if of not in SCHEMAS:
        fail(InvalidRequest(f"there are schemas of {' and '.join(SCHEMAS)}, not of `{of}`"))
    _print_json(SCHEMAS[of]())


# --- files ------------------------------------------------------------------------------------------------------------


@contextmanager
def _reading_policies() -> Iterator[None]:
    """Exit code 2 where something cannot be read, 1 where a space or a proposal is not there or its log is bad."""
    with failing_cleanly():
        try:
            yield
        except (SpaceNotFound, RecordNotFound) as exc:
            fail(exc, 1)


def _read(file: Path, kind: type[D]) -> D:
    return read_document(read_input(file, MAX_BYTES), str(file), kind)


def _policy_of(document: CaseDocument, file: Path) -> tuple[dict[str, str], list[Tool]]:
    """The pairs that cases are about, and the tools that their policy names."""
    if not isinstance(document.policy, str):
        return pairs_of(document.policy), []
    path = file.parent / document.policy
    policy = _read(path, PolicyDocument)
    return pairs_of(policy.policy), [each.to_tool() for each in policy.tools or ()]


def _any_policy(file: Path) -> tuple[dict[str, str], list[Tool] | None]:
    """The policy in a file, or that of a case file; and the tools that are known, None where it names none."""
    data = read_input(file, MAX_BYTES)
    if not is_case_document(data, str(file)):
        policy = read_document(data, str(file), PolicyDocument)
        tools = None if policy.tools is None else [each.to_tool() for each in policy.tools]
        return pairs_of(policy.policy), tools
    document = read_document(data, str(file), CaseDocument)
    pairs, named = _policy_of(document, file)
    return pairs, [*named, *(each.to_tool() for each in document.tools)] or None


def _read_case(file: Path, name: str | None, proposal: str | None) -> Hypothetical:
    document = _read(file, CaseDocument)
    pairs, tools = _policy_of(document, file)
    known = {tool.tool_id: tool for tool in (*tools, *(each.to_tool() for each in document.tools))}
    if proposal is not None:
        if name is not None:
            raise InvalidRequest("--case and --proposal are two ways to name one proposal")
        case = Case("proposal", _read(Path(proposal), CaseProposal))
    else:
        named = {case.name: case for case in document.cases}
        if name is None and len(named) != 1:
            raise InvalidRequest(f"{file} has {len(named)} cases: name one with --case, or a file with --proposal")
        if name is not None and name not in named:
            raise InvalidRequest(f"{file} has no case `{name}`")
        case = named[name] if name is not None else next(iter(named.values()))
    return situation(document, case, compile_policy(pairs), known)


# --- what was recorded ------------------------------------------------------------------------------------------------


def _find_recorded(entries: Iterator[StoredEntry], space_id: str, proposal_id: str) -> Hypothetical:
    """What the newest decision on a proposal was made on."""
    space: Space | None = None
    found: Hypothetical | None = None
    for stored in entries:
        before = space
        space = catch_up_space(space_id, space, [stored])
        event = read_space_event(stored)
        if before is None or event.result.decision is None:
            continue
        if proposal_id in event.result.statuses:
            found = recall(before, event)
    if found is None:
        raise RecordNotFound("proposal", proposal_id)
    return found


def _entries(url: str, space_id: str, log: Path | None) -> Iterator[StoredEntry]:
    return _read_store(url, space_id) if log is None else iter(_read_export(log, space_id))


def _read_store(url: str, space_id: str) -> Iterator[StoredEntry]:
    with closing(existing_store(url)) as store:
        seq = -1
        while entries := store.read(STREAM_PREFIX + space_id, seq, _ENTRIES_PER_READ):
            yield from entries
            seq += len(entries)
    if seq < 0:
        raise SpaceNotFound(space_id)


def _read_export(file: Path, space_id: str) -> list[StoredEntry]:
    with sys.stdin.buffer if str(file) == STANDARD_INPUT else file.open("rb") as source:
        entries = read_exported(source, STREAM_PREFIX + space_id)
    if entries is None:
        raise SpaceNotFound(space_id)
    return entries


def _print_json(content: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
    sys.stdout.buffer.flush()
