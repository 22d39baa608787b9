"""`cmbs policy …`: what a policy does before it is in force, and why it decided what it decided."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli import policy_output as output
from cmbs.cli.output import exiting_with_two, fail, failing_cleanly, read_input
from cmbs.cli.past import check_there, open_past
from cmbs.documents.findings import InvalidDocument
from cmbs.documents.nodes import MAX_BYTES
from cmbs.errors import InvalidRequest, RecordNotFound, SpaceNotFound
from cmbs.ledger import StoredEntry
from cmbs.messages import Actor, ActorKind
from cmbs.substrate.kernel.events import STREAM_PREFIX
from cmbs.substrate.kernel.insight.advice import advise_on_explanation
from cmbs.substrate.kernel.insight.explanation import Explanation, Hypothetical, recall
from cmbs.substrate.kernel.insight.explanation import explain as explanation_of
from cmbs.substrate.kernel.insight.impact import impact_of
from cmbs.substrate.kernel.insight.lint import lint as lint_policy
from cmbs.substrate.kernel.insight.lint_findings import LintReport
from cmbs.substrate.kernel.insight.past_belief import PastBelief
from cmbs.substrate.kernel.insight.policy_tests import run_tests, situation
from cmbs.substrate.kernel.policy.document_schema import policy_schema
from cmbs.substrate.kernel.policy.documents import PolicyTest, ProposalSketch, read_document
from cmbs.substrate.kernel.policy.file import CompiledPolicy, as_payloads, compile_file, locate_faults, map_source
from cmbs.substrate.kernel.policy.policy import compile_policy, validate_policy
from cmbs.substrate.kernel.policy.source_map import SourceMap
from cmbs.substrate.kernel.replay import catch_up_space, read_space_event
from cmbs.substrate.kernel.state import Space
from cmbs.substrate.pace import Pace

# Of processor time, for one file: what was not looked at until then is not looked at, and the report says so.
MAX_LINT_SECONDS = 60

app = typer.Typer(
    name="policy", help="Test, look through, explain and try out policies of spaces.", no_args_is_help=True
)


JsonOption = Annotated[bool, typer.Option("--json", help="Print everything as one JSON document.")]
StoreOption = Annotated[str, typer.Option("--store", envvar="CMBS_STORE", help="Which store.", metavar="URL")]
SpaceOption = Annotated[str, typer.Option("--space", help="Which space of the store or the log.", metavar="ID")]
LogOption = Annotated[
    Path | None,
    typer.Option(
        "--log", help="Read the space from an export instead of a store; - is standard input.", metavar="FILE"
    ),
]


FilesArgument = Annotated[list[Path], typer.Argument(help="Policy files in YAML or JSON.", metavar="FILE…")]


@app.command()
def check(files: FilesArgument, as_json: JsonOption = False) -> None:
    """Look policies through and run their tests; exit code 1 where something is wrong or a test fails."""
    with _reading_policies():
        read = [(str(file), _read_policy(file)) for file in files]
        looked = [(name, _lint(each), each.source_map) for name, each in read]
        reports = [(name, run_tests(each), each.source_map) for name, each in read]
    if as_json:
        _print_json(
            [
                {**output.lint_to_dict(*one), "tests": output.tests_to_dict(*other)}
                for one, other in zip(looked, reports, strict=True)
            ]
        )
    else:
        output.show_lint(looked)
        output.show_tests(reports)
    if output.has_problem(report for _, report, _ in looked) or output.has_failure(each for _, each, _ in reports):
        raise typer.Exit(1)


@app.command("test")
def run_policy_tests(
    files: FilesArgument,
    require_coverage: Annotated[
        bool, typer.Option("--require-coverage", help="Fail where a rule was never asked.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Decide the tests of policies and compare with what they expect; exit code 1 where one is otherwise."""
    reports = []
    with _reading_policies():
        for file in files:
            compiled = _read_policy(file)
            if not compiled.tests:
                raise InvalidRequest(f"{file} has no tests")
            reports.append((str(file), run_tests(compiled), compiled.source_map))
    if as_json:
        _print_json([output.tests_to_dict(*each) for each in reports])
    else:
        output.show_tests(reports)
    uncovered = require_coverage and any(tested.coverage.never_asked for _, tested, _ in reports)
    if uncovered or output.has_failure(tested for _, tested, _ in reports):
        raise typer.Exit(1)


@app.command()
def lint(files: FilesArgument, as_json: JsonOption = False) -> None:
    """Say what is wrong with policies; exit code 1 where there is an error or a warning. Says only what is proved."""
    reports = []
    with _reading_policies():
        for file in files:
            compiled = _read_policy(file)
            reports.append((str(file), _lint(compiled), compiled.source_map))
    if as_json:
        _print_json([output.lint_to_dict(*each) for each in reports])
    else:
        output.show_lint(reports)
    if output.has_problem(report for _, report, _ in reports):
        raise typer.Exit(1)


@app.command("compile")
def compile_policies(
    file: Annotated[Path, typer.Argument(help="A policy file in YAML or JSON.", metavar="FILE")],
) -> None:
    """Print what a policy file is compiled to: the payloads that decide, as a policy file."""
    with _reading_policies():
        compiled = _read_sound_policy(file)
    _print_json(as_payloads(compiled))


@app.command()
def explain(
    file: Annotated[Path | None, typer.Argument(help="A policy file with tests.", metavar="FILE")] = None,
    test: Annotated[str | None, typer.Option("--test", help="Explain the test of this name.", metavar="NAME")] = None,
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
            name, compiled = str(file), _read_policy(file)
            source_map: SourceMap | None = compiled.source_map
            asked = _read_test(name, compiled, test, proposal)
        elif proposal is None or test is not None:
            raise InvalidRequest("name a policy file, or with --proposal the id of a recorded proposal")
        else:
            with open_past(store, log) as past:
                entries = check_there(past.read(STREAM_PREFIX + space), space)
                asked = _find_recorded(entries, space, proposal)
            name, source_map = "the policy", _map_source(asked.space)
        explanation: Explanation = explanation_of(asked, reader, source_map=source_map)
        refusals = advise_on_explanation(asked, explanation, Actor(reader, asked.actor.id))
    if as_json:
        _print_json({**msgspec.to_builtins(explanation), "refusals": msgspec.to_builtins(refusals)})
    else:
        output.show_explanation(explanation, name)
        output.show_refusals(refusals)


@app.command()
def impact(
    against: Annotated[Path, typer.Option("--against", help="The policy to try on the past.", metavar="FILE")],
    store: StoreOption = DEFAULT_STORE,
    space: SpaceOption = "default",
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Decide a space's past again under another policy.

    Exit code 0 where no verdict would be another, 1 where one would, 2 where that could not be found out of all of
    them.
    """
    with exiting_with_two():
        compiled = _read_sound_policy(against)
        with open_past(store, log) as past:
            entries = check_there(past.read(STREAM_PREFIX + space), space)
            belief = PastBelief(past.read_whole, complete=past.complete)
            found = impact_of(space, entries, compile_policy(compiled.pairs), belief.at)
    if as_json:
        _print_json({**msgspec.to_builtins(found), "counts": found.counts()})
    else:
        output.show_impact(found, str(against), compiled.source_map)
    if found.flips or found.unknown:
        raise typer.Exit(1 if found.flips else 2)


@app.command()
def schema() -> None:
    """Print the JSON Schema of policy files, for editors and other programs."""
    _print_json(policy_schema())


# --- files ------------------------------------------------------------------------------------------------------------


@contextmanager
def _reading_policies() -> Iterator[None]:
    """Exit code 2 where something cannot be read, 1 where a space or a proposal is not there or its log is bad."""
    with failing_cleanly():
        try:
            yield
        except (SpaceNotFound, RecordNotFound) as exc:
            fail(exc, 1)


def _read_policy(file: Path) -> CompiledPolicy:
    return compile_file(read_input(file, MAX_BYTES), str(file))


def _read_sound_policy(file: Path) -> CompiledPolicy:
    """The policy in a file; InvalidDocument where a space would refuse it."""
    compiled = _read_policy(file)
    faults = validate_policy(compiled.pairs)
    if faults:
        raise InvalidDocument(str(file), locate_faults(faults, compiled.source_map))
    return compiled


def _lint(compiled: CompiledPolicy) -> LintReport:
    pace = Pace(MAX_LINT_SECONDS, rest=lambda _: None)
    pace.begin()
    return lint_policy(compiled.pairs, _tool_ids(compiled), pace.may_go_on)


def _tool_ids(compiled: CompiledPolicy) -> list[str] | None:
    return None if compiled.tools is None else [each.tool_id for each in compiled.tools]


def _read_test(file: str, compiled: CompiledPolicy, name: str | None, proposal: str | None) -> Hypothetical:
    if proposal is not None:
        if name is not None:
            raise InvalidRequest("--test and --proposal are two ways to name one proposal")
        said = read_document(read_input(proposal, MAX_BYTES), proposal, ProposalSketch)
        test = PolicyTest("proposal", said)
    else:
        named = {each.name: each for each in compiled.tests}
        if name is None and len(named) != 1:
            raise InvalidRequest(f"{file} has {len(named)} tests: name one with --test, or a file with --proposal")
        if name is not None and name not in named:
            raise InvalidRequest(f"{file} has no test `{name}`")
        test = named[name] if name is not None else next(iter(named.values()))
    tools = {tool.tool_id: tool for tool in compiled.tools or ()}
    return situation(compiled.given, test, compile_policy(compiled.pairs), tools)


def _map_source(space: Space) -> SourceMap | None:
    """Where the policy of a space stands in the file that it was written as; None where it was not written as one."""
    return None if space.policy_source is None else map_source(space.policy_source)


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


def _print_json(content: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
    sys.stdout.buffer.flush()
