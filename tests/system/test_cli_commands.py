"""`cmbs verify`, `cmbs version` and the help: what they print, and the exit codes that scripts rely on."""

import ast
import builtins
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import cmbs.cli
from cmbs.audit import plain_rows
from cmbs.belief.server import BeliefServer
from cmbs.cli.app import COMMANDS, load_command
from cmbs.stores import SQLiteStore
from tests.support.cli import invoke
from tests.support.http_server import run_cmbs
from tests.support.store_fixture import declared, tampering


@pytest.fixture
def sessions(place: Path) -> list[str]:
    """Three sessions in `cmbs.db`, each with an elimination; their ids, the oldest first."""
    server = BeliefServer(store=SQLiteStore(place / "cmbs.db"))
    opened = [declared(server) for _ in range(3)]
    for session_id in opened:
        server.eliminate(session_id, "s", "o", ["a"])
    server.close()
    return opened


# --- help -------------------------------------------------------------------------------------------------------------


def test_the_help_has_a_line_for_every_command() -> None:
    shown = invoke("--help")
    assert shown.exit_code == 0
    for name, command in COMMANDS.items():
        assert re.search(rf" {name} +{re.escape(command.help)}", shown.stdout)


def test_the_table_of_commands_agrees_with_the_commands(subtests: pytest.Subtests) -> None:
    for name in COMMANDS:
        with subtests.test(name=name):
            command = load_command(name)
            assert (command.name, command.help.partition("\n")[0]) == (name, COMMANDS[name].help)
            shown = invoke(name, "--help")
            assert shown.exit_code == 0
            assert command.help.split(".")[0] in shown.stdout
            for parameter in command.params:
                for option in parameter.opts:
                    assert option.lower() in shown.stdout.lower()


def test_the_help_imports_no_command() -> None:
    script = (
        "import sys, cmbs.cli\ntry:\n    cmbs.cli.main()\nfinally:\n    print(sorted(sys.modules), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", script, "--help"], capture_output=True, text=True, check=True)
    loaded = {name for name in ast.literal_eval(ran.stderr) if name.startswith("cmbs")}
    assert loaded == {"cmbs", "cmbs.cli", "cmbs.cli.app"}
    assert "Usage" in ran.stdout


def test_no_command_at_all_shows_the_help() -> None:
    assert "Usage" in invoke().output


def test_a_command_line_that_makes_no_sense_ends_with_2(subtests: pytest.Subtests) -> None:
    for arguments in [["nonsense"], ["verify", "--nonsense"], ["version", "surplus"]]:
        with subtests.test(arguments=arguments):
            ran = invoke(*arguments)
            assert (ran.exit_code, ran.stdout) == (2, "")


def test_the_version_is_that_of_the_package(subtests: pytest.Subtests) -> None:
    for argument in ["version", "--version"]:
        with subtests.test(argument=argument):
            ran = invoke(argument)
            assert (ran.exit_code, ran.stdout) == (0, f"{version('cmbs')}\n")
            assert cmbs.__version__ == version("cmbs")


@pytest.mark.slow
def test_python_can_run_the_package(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cmbs", "version"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"{version('cmbs')}\n", "")


# --- verify -----------------------------------------------------------------------------------------------------------


def test_good_sessions_verify_with_their_heads(sessions: list[str], place: Path) -> None:
    store = SQLiteStore(place / "cmbs.db")
    heads = {session_id: head.event_hash.hex() for session_id in sessions if (head := store.head(session_id))}
    store.close()
    ran = invoke("verify")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == [
        *(f"good {session_id}: 2 events, 3 of 4 survive, head {heads[session_id]}" for session_id in sessions),
        "3 sessions, 0 bad",
    ]


def test_only_the_sessions_that_are_named_are_verified(sessions: list[str]) -> None:
    ran = invoke("verify", sessions[1])
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert [line.split(":")[0] for line in ran.stdout.splitlines()] == [f"good {sessions[1]}", "1 session, 0 bad"]


def test_a_session_that_was_tampered_with_is_bad_and_the_others_are_not(sessions: list[str], place: Path) -> None:
    with tampering(place / "cmbs.db", "audit_events_no_update") as connection:
        connection.execute(
            "UPDATE audit_events SET entry = CAST(replace(CAST(entry AS TEXT), '[\"a\"]', '[\"b\"]') AS BLOB)"
            " WHERE stream_id = ? AND seq = 1",
            (sessions[1],),
        )
    ran = invoke("verify")
    assert ran.exit_code == 1
    assert [line.split(":")[0] for line in ran.stdout.splitlines()] == [
        f"good {sessions[0]}",
        f"good {sessions[2]}",
        "3 sessions, 1 bad",
    ]
    assert ran.stderr.startswith(
        f"bad  {sessions[1]}: audit_events.entry seq 1: LEDGER_CORRUPT: ledger of `{sessions[1]}` is bad at seq 1"
    )


def test_a_session_whose_tail_was_cut_off_is_bad(sessions: list[str], place: Path) -> None:
    with tampering(place / "cmbs.db", "audit_events_no_delete") as connection:
        connection.execute("DELETE FROM audit_events WHERE stream_id = ? AND seq = 1", (sessions[0],))
    ran = invoke("verify", sessions[0])
    assert ran.exit_code == 1
    assert ran.stderr.startswith(f"bad  {sessions[0]}: audit_events seq 1: the row is missing")


def test_a_session_that_is_not_there_is_bad(subtests: pytest.Subtests, sessions: list[str]) -> None:
    for name in ["none-such", "[/red]", ":fire:", "", "é"]:
        with subtests.test(name=name):
            ran = invoke("verify", "--", name, sessions[0])
            assert ran.exit_code == 1
            assert ran.stderr == f"bad  {name}: SESSION_NOT_FOUND: no session `{name}`\n"
            assert ran.stdout.endswith("2 sessions, 1 bad\n")


def test_an_empty_store_has_nothing_bad_in_it(place: Path) -> None:
    SQLiteStore(place / "cmbs.db").close()
    ran = invoke("verify")
    assert (ran.exit_code, ran.stdout) == (0, "0 sessions, 0 bad\n")


def test_more_sessions_than_fit_a_page_are_all_verified(sessions: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_rows, "_PAGE", 2)
    assert invoke("verify").stdout.endswith("\n3 sessions, 0 bad\n")


def test_a_store_that_is_none_or_not_there_is_an_error_and_is_not_made(subtests: pytest.Subtests, place: Path) -> None:
    for url in [None, "sqlite:///typo.db", "postgres:nowhere", "sqlite:///", "cmbs.db", ""]:
        with subtests.test(url=url):
            ran = invoke("verify", *([] if url is None else ["--store", url]))
            assert (ran.exit_code, ran.stdout) == (2, "")
            missing = url in (None, "sqlite:///typo.db")
            assert ran.stderr.startswith("cmbs: INVALID_REQUEST: there is no store at ") is missing
            assert ("is not a store" in ran.stderr) is not missing
            assert list(place.iterdir()) == []


def test_a_file_that_is_no_store_is_an_error(place: Path) -> None:
    (place / "cmbs.db").write_bytes(b"not a database, but long enough to be looked at " * 40)
    ran = invoke("verify")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("cmbs: STORE_UNAVAILABLE: ")


@pytest.mark.slow
def test_the_command_that_is_installed_does_the_same(sessions: list[str], place: Path) -> None:
    ran = run_cmbs("verify", directory=place)
    assert (ran.returncode, ran.stdout.splitlines()[-1], ran.stderr) == (0, "3 sessions, 0 bad", "")


# --- a bare installation ----------------------------------------------------------------------------------------------


def test_a_command_that_lacks_its_packages_says_which_extra_has_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import_as_usual = builtins.__import__

    def without_typer(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "typer":
            raise ModuleNotFoundError("no typer", name="typer")
        return import_as_usual(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_typer)
    monkeypatch.delitem(sys.modules, "cmbs.cli.app")
    with pytest.raises(SystemExit) as ended:
        cmbs.cli.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == "the `cmbs` command needs `typer`: install it with `pip install 'cmbs[server]'`\n"


@pytest.mark.parametrize(
    ("arguments", "module", "lacks", "extra"),
    [
        (["analyse", "--help"], "cmbs.cli.analysis", "rich.table", "server"),
        (["mcp", "--store", "memory:"], "cmbs.mcp.gateway.opening", "mcp.server.stdio", "tools"),
    ],
)
def test_what_is_imported_late_names_the_extra_that_brings_it(
    arguments: list[str],
    module: str,
    lacks: str,
    extra: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, lacks, None)
    monkeypatch.setattr(sys, "argv", ["cmbs", *arguments])
    with pytest.raises(SystemExit) as ended:
        cmbs.cli.main()
    assert ended.value.code == 2
    package = lacks.partition(".")[0]
    assert capsys.readouterr().err == (
        f"the `cmbs` command needs `{package}`: install it with `pip install 'cmbs[{extra}]'`\n"
    )


def test_a_module_of_our_own_that_is_missing_is_not_blamed_on_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "cmbs.cli.serve", raising=False)
    monkeypatch.setitem(sys.modules, "cmbs.cli.demo", None)
    with pytest.raises(ModuleNotFoundError, match=r"cmbs\.cli\.demo"):
        load_command("serve")
