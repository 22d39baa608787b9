"""`cmbs kit put`, `declare`, `observe` and `probes`: a session over a kit from the command line."""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from cmbs.audit.fsck import check_stream
from cmbs.belief.server import BeliefServer
from cmbs.bootstrap import Settings, put_kits
from cmbs.errors import InvalidRequest
from cmbs.stores.sqlite import SQLiteStore
from tests.support.cli import invoke

KIT = """id: coin
version: "1"
soundness: sound
hypotheses: [fair, bent]
probes:
  - {id: toss, outcomes: [{id: heads, eliminates: []}, {id: tails, eliminates: [bent]}]}
  - id: share
    reading: {cuts: [0.7], outcomes: [even, odd]}
    window: {reduction: mean}
    outcomes: [{id: even, eliminates: [bent]}, {id: odd, eliminates: [fair]}]
"""


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    file = tmp_path / "coin.yaml"
    file.write_text(KIT)
    return file


@pytest.mark.req("OBS-CLI-01")
def test_a_session_over_a_kit_is_opened_observed_and_asked_from_the_command_line(kit: Path, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/cmbs.db"

    def run(*arguments: str) -> str:
        result = invoke(*arguments, "--store", store)
        assert result.exit_code == 0, result.output
        return result.stdout.strip()

    assert run("kit", "put", str(kit)) == sha256(b"cmbs/1/kit\0" + KIT.encode()).hexdigest()
    assert "as it was before" in invoke("kit", "put", str(kit), "--store", store).stderr
    assert run("kit", "list").startswith("coin  version 1  2 hypotheses, 2 probes")
    assert json.loads(run("kit", "list", "--json"))["kit_id"] == "coin"
    assert run("kit", "show", "coin") == KIT.strip()
    session = run("declare", "coin", "--observations-only", "--title", "A coin", "--label", "team:games")
    assert "A coin" in run("sessions", "--kit", "coin", "--label", "team:games")
    assert "share" in run("probes", session)
    assert json.loads(run("probes", session, "--json", "--limit", "1"))["n_probes"] == 2
    assert run("observe", session, "toss", "heads") == "ruled out: nothing; 2 survivors"
    assert run("observe", session, "toss", "--no-data", "--observation", "later").startswith("ruled out: nothing")
    seen = json.loads(
        run("observe", session, "share", "--samples", "0.4,0.6", "--seen-at", "2026-01-01T00:00:00Z", "--json")
    )
    assert (seen["applied_eliminated"], seen["observation"]["outcome_id"]) == (["bent"], "even")
    again = invoke("observe", session, "toss", "heads", "--store", store)
    assert "recorded before" in again.stderr
    assert "seen before" in again.stderr
    assert invoke("observe", session, "toss", "tails", "--store", store).exit_code == 1
    assert "asked: " in run("probes", session)


@pytest.mark.req("OBS-CLI-01")
def test_what_cannot_be_done_is_an_error_that_says_why(subtests: pytest.Subtests, kit: Path, tmp_path: Path) -> None:
    for arguments in [
        ("observe", "SESSION", "share"),
        ("observe", "SESSION", "share", "even", "--number", "1"),
        ("observe", "SESSION", "share", "--samples", "1,many"),
        ("observe", "SESSION", "shar", "even"),
        ("declare", "coins"),
        ("kit", "show", "coins"),
        ("kit", "put", "no-such-file.yaml"),
        ("kit", "put", "FILE", "--store", "memory:"),
    ]:
        with subtests.test(arguments=arguments):
            store = f"sqlite:///{tmp_path}/cmbs.db"
            invoke("kit", "put", str(kit), "--store", store)
            session = invoke("declare", "coin", "--store", store).stdout.strip()
            named = [{"SESSION": session, "FILE": str(kit)}.get(each, each) for each in arguments]
            result = invoke(*named, *([] if "--store" in named else ["--store", store]))
            assert result.exit_code == 2
            assert result.stderr.startswith("cmbs: ")


@pytest.mark.req("OBS-CLI-01")
def test_kits_of_the_settings_are_put_on_record_once_and_a_bad_one_is_named(kit: Path, tmp_path: Path) -> None:
    settings = Settings.from_environment({"CMBS_KIT": f"{kit}"})
    assert Settings.from_environment(settings.to_environment()).kits == (str(kit),)
    log = SQLiteStore(tmp_path / "cmbs.db")
    server = BeliefServer(store=log)
    for each in (BeliefServer(store=log), server):
        put_kits(settings, each)
        assert len(each.kits.shelf("coin").contents) == 1
    assert check_stream(log, "kit:coin").findings == []
    kit.write_text(KIT.replace("[fair]}]", "[unfair]}]"))
    with pytest.raises(InvalidRequest, match=r"coin.yaml.*line"):
        put_kits(settings, server)
    kit.write_bytes(b"\xff")
    with pytest.raises(InvalidRequest, match="UTF-8"):
        put_kits(settings, server)
    server.close()


@pytest.mark.req("OBS-CLI-01")
def test_a_server_does_not_start_with_a_kit_that_is_wrong(kit: Path, tmp_path: Path) -> None:
    kit.write_text("id: coin\n")
    result = invoke(
        "serve",
        "--store",
        f"sqlite:///{tmp_path}/cmbs.db",
        "--port",
        "1",
        "--kit",
        str(kit),
        "--uds",
        str(tmp_path / "s"),
    )
    assert result.exit_code == 2
    assert "coin.yaml" in result.stderr
