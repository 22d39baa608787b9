"""`cmbs analyse` and `cmbs bench agents`: what they print, where they read from, and how they fail."""

import json
from functools import partial
from pathlib import Path

import msgspec
import pytest

from cmbs.analysis.report import Report
from cmbs.belief.server import BeliefServer
from cmbs.console import ConsoleFiles
from cmbs.kit import KitProvider, ontology_of
from cmbs.kit.writing import format_kit
from cmbs.messages import OntologyBundle
from cmbs.stores import SQLiteStore
from tests.support.cli import invoke
from tests.support.domains import install, kit_of
from tests.support.http_server import serving
from tests.support.store_fixture import tampering

pytestmark = pytest.mark.slow

YES, NO = frozenset({0}), frozenset({1})
HALVES = kit_of([[YES, NO, NO, NO], [YES, YES, NO, NO], [YES, NO, YES, NO]], [1.0] * 4)


@pytest.fixture
def place(place: Path) -> Path:
    """A directory to work in, with the kit in it."""
    (place / "halves.json").write_text(format_kit(HALVES, "kit.json"), "utf-8")
    return place


@pytest.fixture
def sessions(place: Path) -> list[str]:
    """In `cmbs.db`: one that resolves, one that kills its truth, one about something else."""
    server = BeliefServer(belief_provider=KitProvider(HALVES), store=SQLiteStore(place / "cmbs.db"))
    resolved, _ = server.declare_session(ontology_of(HALVES))
    server.apply_probe(resolved, "p1", "o0", "good")
    server.apply_probe(resolved, "p2", "o0", "good")
    server.apply_probe(resolved, "p0", "o0", "forgetful")
    mistaken, _ = server.declare_session(ontology_of(HALVES))
    server.apply_probe(mistaken, "p0", "o1", "hasty")
    server.close()
    plain = BeliefServer(store=SQLiteStore(place / "cmbs.db"))
    other, _ = plain.declare_session(OntologyBundle("weather", "1", "", ""), ["rain", "sun"])
    plain.close()
    return [resolved, mistaken, other]


@pytest.fixture
def page_of_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of a report as it is before it is built, for runs without Node."""
    sources = Path(__file__).resolve().parents[2] / "console"
    monkeypatch.setattr("cmbs.cli.analysis.ConsoleFiles", partial(ConsoleFiles, sources))


def read_report(file: Path) -> Report:
    """What stands in a page."""
    data = file.read_text("utf-8").split('id="report">')[1].split("</script>")[0]
    return msgspec.json.decode(data, type=Report)


# --- one session ---


def test_a_session_is_told_event_by_event(sessions: list[str]) -> None:
    ran = invoke("analyse", sessions[0], "--kit", "halves.json", "--truth", "h0")
    assert ran.exit_code == 0
    for said in (
        "resolved by event 2: 2 eliminations",
        "optimum (exact)",
        "cross agent",
        "forgetful",
        "truth        │ found",
    ):
        assert said in ran.stdout
    assert "not exact" not in ran.stdout


def test_who_killed_the_truth_is_told(sessions: list[str]) -> None:
    ran = invoke("analyse", sessions[1], "--kit", "halves.json", "--truth", "h0")
    assert "the truth h0 was killed by event 1 (" in ran.stdout
    assert "of hasty" in ran.stdout
    assert "best next probes, in bits: p1 (0.918)" in ran.stdout


def test_what_is_not_exact_is_told(sessions: list[str]) -> None:
    ran = invoke("analyse", sessions[0], "--kit", "halves.json", "--steps", "0")
    assert "optimum (huffman)" in ran.stdout
    assert "not exact: the exact optimum" in ran.stdout


def test_a_session_without_a_kit_is_told_without(sessions: list[str]) -> None:
    ran = invoke("analyse", sessions[2])
    assert ran.exit_code == 0
    assert "kit " not in ran.stdout


def test_json_is_the_analysis_itself(sessions: list[str]) -> None:
    found = json.loads(invoke("analyse", sessions[0], "--kit", "halves.json", "--json").stdout)
    assert (found["session_id"], found["kit"]["regret"]["probes"]) == (sessions[0], 3)


def test_the_installed_kit_of_a_session_is_found(
    sessions: list[str], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(HALVES, tmp_path_factory.mktemp("site"), monkeypatch)
    for options in ((), ("--kit", "domain")):
        found = json.loads(invoke("analyse", sessions[0], "--json", *options).stdout)
        assert found["kit"]["kit_id"] == "domain"


# --- many ---


@pytest.mark.usefixtures("page_of_report")
def test_without_a_name_every_session_is_in_the_table_and_on_the_page(sessions: list[str], place: Path) -> None:
    (place / "truths.json").write_text(json.dumps({sessions[0]: "h0", sessions[1]: "h0"}))
    ran = invoke("analyse", "--truths", "truths.json", "--html", "report.html")
    assert ran.exit_code == 0
    assert all(session_id in ran.stdout for session_id in sessions)
    assert "truth found                   │ 1 of 2" in ran.stdout
    report = read_report(place / "report.html")
    assert [each.session_id for each in report.sessions] == sessions
    assert [len(each.events or []) for each in report.sessions] == [4, 2, 1]
    assert ("truth found", "1 of 2") in report.summary


def test_without_a_console_the_page_says_how_to_get_one(
    sessions: list[str], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cmbs.cli.analysis.ConsoleFiles", partial(ConsoleFiles, place))
    ran = invoke("analyse", *sessions, "--html", "report.html")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "run `make console`" in ran.stderr
    assert not (place / "report.html").exists()


def test_sessions_that_are_not_about_the_kit_are_left_out_unless_they_are_named(sessions: list[str]) -> None:
    ran = invoke("analyse", "--kit", "halves.json", "--json")
    assert [each["session_id"] for each in json.loads(ran.stdout)] == sessions[:2]
    table = invoke("analyse", "--kit", "halves.json")
    assert "1 session left out: not about the kit" in table.stderr
    named = invoke("analyse", sessions[2], "--kit", "halves.json")
    assert (named.exit_code, named.stdout) == (2, "")
    assert "kit `domain` does not know `rain`, `sun`" in named.stderr


# --- from a server ---


@pytest.mark.slow
def test_a_server_is_read_as_a_store_is(sessions: list[str], place: Path) -> None:
    with serving(place, "--store", f"sqlite:///{place}/cmbs.db") as server:
        everything = invoke("analyse", "--json", "--url", server.url)
        missing = invoke("analyse", "nowhere", "--url", server.url)
        not_a_server = invoke("analyse", "--url", f"{server.url}/healthz")
    assert json.loads(everything.stdout) == json.loads(invoke("analyse", "--json").stdout)
    assert missing.exit_code == 1
    assert missing.stderr.startswith("cmbs: SESSION_NOT_FOUND: no session `nowhere`\n  next: ")
    assert not_a_server.exit_code == 2
    assert "no such path" in not_a_server.stderr


# --- failures ---


@pytest.mark.usefixtures("page_of_report")
def test_a_log_that_does_not_verify_is_not_analysed(sessions: list[str], place: Path) -> None:
    with tampering(place / "cmbs.db", "audit_events_no_update") as connection:
        connection.execute(
            "UPDATE audit_events SET entry = CAST(replace(CAST(entry AS TEXT), 'hasty', 'tasty') AS BLOB)"
            " WHERE stream_id = ? AND seq = 1",
            (sessions[1],),
        )
    ran = invoke("analyse", sessions[1])
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "LEDGER_CORRUPT" in ran.stderr
    assert invoke("analyse", sessions[0]).exit_code == 0
    report = invoke("analyse", "--kit", "halves.json", "--html", "page.html")
    assert report.exit_code == 1
    assert sessions[0] in report.stdout
    assert sessions[1] not in report.stdout
    assert "LEDGER_CORRUPT" in report.stderr
    assert "1 session left out" in report.stderr
    assert [each.session_id for each in read_report(place / "page.html").sessions] == sessions[:1]


def test_one_truth_is_that_of_the_sessions_that_have_it(sessions: list[str]) -> None:
    found = json.loads(invoke("analyse", "--truth", "h1", "--json").stdout)
    assert [each["truth"] and each["truth"]["hypothesis_id"] for each in found] == ["h1", "h1", None]


def test_what_cannot_be_read_says_why(subtests: pytest.Subtests, sessions: list[str], place: Path) -> None:
    for arguments, code, message in [
        (["analyse", "nowhere"], 1, "no session `nowhere`"),
        (["analyse", "--store", "sqlite:///nowhere.db"], 2, "there is no store at"),
        (["analyse", "--truths", "nowhere.json"], 2, "nowhere.json"),
        (["analyse", "--truths", "list.json"], 2, "does not map sessions to hypotheses"),
        (["analyse", "--truths", "absent.json"], 2, "has no hypothesis `absent`"),
        (["analyse", "SESSION", "--truth", "absent"], 2, "has no hypothesis `absent`"),
        (["analyse", "--kit", "nowhere.json"], 2, "nowhere.json"),
        (["analyse", "--kit", "nowhere"], 2, "`nowhere` is no file and no installed kit"),
        (["analyse", "--url", "http://127.0.0.1:1"], 2, "http://127.0.0.1:1"),
        (["analyse", "--url", "ftp://here"], 2, "`ftp://here` is not the address of a server"),
        (["analyse", "--url", "nonsense"], 2, "`nonsense` is not the address of a server"),
        (["analyse", "--url", "http://"], 2, "is no place of a server"),
        (["bench", "agents", "list.json"], 1, "list.json:1:1: the kit must have fields"),
    ]:
        with subtests.test(arguments=arguments, code=code, message=message):
            (place / "list.json").write_text('["h0"]')
            (place / "absent.json").write_text(json.dumps({sessions[1]: "absent"}))
            ran = invoke(*(sessions[1] if each == "SESSION" else each for each in arguments))
            assert (ran.exit_code, ran.stdout) == (code, "")
            assert message in ran.stderr


def test_truths_of_sessions_that_are_not_there_are_told(sessions: list[str], place: Path) -> None:
    (place / "truths.json").write_text(json.dumps({sessions[1]: "h0", "nowhere": "h0"}))
    ran = invoke("analyse", "--truths", "truths.json")
    assert ran.exit_code == 0
    assert "1 truth of sessions that were not analysed, such as `nowhere`" in ran.stderr


# --- the scoreboard ---


def test_the_scoreboard_has_a_line_for_every_agent(place: Path) -> None:
    ran = invoke("bench", "agents", "halves.json")
    assert ran.exit_code == 0
    assert "kit domain, version 1: 4 hypotheses, 4 classes, 3 probes, 0.000 residual bits" in ran.stdout
    assert "optimum 2.000 probes (exact)" in ran.stdout
    lines = {line.split()[0]: line.split()[1:] for line in ran.stdout.splitlines() if len(line.split()) == 9}
    assert lines["optimal"] == ["4", "4", "2.000", "2", "2.000", "0.0%", "0.000", "0.000"]
    assert list(lines) == ["agent", "fixed", "random", "greedy", "optimal"]


def test_the_scoreboard_as_json(place: Path) -> None:
    board = json.loads(invoke("bench", "agents", "halves.json", "--json", "--seed", "5").stdout)
    assert (board["seed"], board["method"], [each["agent"] for each in board["scores"]]) == (
        "5",
        "exact",
        ["fixed", "random", "greedy", "optimal"],
    )


def test_an_agent_that_cannot_play_is_named(place: Path) -> None:
    ran = invoke("bench", "agents", "halves.json", "--steps", "0")
    assert "(huffman: the exact optimum, and the greedy one, take more steps than were allowed)" in ran.stdout
    assert "optimal did not play: the exact optimum takes more steps than were allowed" in ran.stdout
