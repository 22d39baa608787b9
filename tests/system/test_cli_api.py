"""`cmbs api`: the operations of the API from a shell."""

import json
from pathlib import Path

import pytest

from cmbs.api.operations import ALL_OPERATIONS
from tests.support.cli import invoke
from tests.support.http_server import serving
from tests.support.transports import ONTOLOGY


@pytest.mark.req("CLIENT-12")
def test_an_operation_is_called_by_its_name_and_answers_in_json(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'cmbs.db'}"
    declared = invoke(
        *("api", "declare_session", f"ontology:={json.dumps(ONTOLOGY)}", 'hypotheses:=["a","b"]', "--server", store)
    )
    assert declared.exit_code == 0, declared.output
    session_id = json.loads(declared.stdout)["session_id"]
    asked = ("api", "query_belief", f"session_id={session_id}", "--server", store)
    assert json.loads(invoke(*asked, "--fields", "n_survivors").stdout) == {"n_survivors": 2}
    assert "survivors" not in json.loads(invoke(*asked, "--minimal").stdout)
    eliminated = ("api", "eliminate", f"session_id={session_id}", "source_id=me", 'eliminated:=["a"]')
    late = invoke(*eliminated, "--if-match", "e0", "--server", store)
    assert (late.exit_code, json.loads(late.stdout)["error"]["code"]) == (1, "CONFLICT")


@pytest.mark.slow
@pytest.mark.req("CLIENT-12")
def test_a_file_is_sent_as_it_is_and_an_actor_is_named(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("format: 2\nrules: []\n", "utf-8")
    with serving(tmp_path, "--store", "memory:") as server:
        options = ("--server", server.url, "--actor", "operator:ops")
        assert invoke("api", "create_space", "space_id=shop", *options).exit_code == 0
        checked = invoke("api", "check_policy", "space_id=shop", f"text=@{policy}", *options)
        assert json.loads(checked.stdout)["sound"] is True


@pytest.mark.req("CLIENT-12")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("eliminat",), "did you mean `eliminate`"),
        (("zzz",), "there is no operation `zzz`"),
        (("query_belief",), "`query_belief` needs `session_id`"),
        (("query_belief", "session_id=s", "when=now"), "has no argument `when`"),
        (("follow_all",), "follow it with `cmbs follow`"),
        (("query_belief", "session_id"), "is no argument: write NAME=TEXT"),
        (("query_belief", "session_id=s", "at:=x"), "is not JSON"),
        (("put_kit", "text=@bytes.bin"), "`bytes.bin` is no text in UTF-8"),
        (("put_kit", "text=@nowhere.yaml"), "No such file"),
        (("declare_session", "kit:=" + "[" * 100_000), "is not JSON"),
        (("zzz",), "`cmbs api --list` lists the operations"),
        (("query_belief",), "`cmbs api query_belief --help` explains its arguments"),
        (("list_sessions", "label=a:b", "label=c:d"), "`label` is there twice: write several values as a list"),
        (("healthz", "--server", "ftp://x"), "is no place of a server"),
        (("healthz", "--server", "http://[::1"), "is no place of a server"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bytes.bin").write_bytes(b"\xff\xfe")
    monkeypatch.chdir(tmp_path)
    ran = invoke("api", *arguments, CMBS_STORE="memory:")
    assert ran.exit_code == 2, ran
    assert said in ran.stderr


@pytest.mark.req("CLIENT-12")
def test_operations_and_their_arguments_are_listed() -> None:
    listed = invoke("api", "--list")
    assert listed.exit_code == 0, listed.output
    assert [each.operation_id for each in ALL_OPERATIONS if each.operation_id not in listed.stdout] == []
    assert "belief:write" in listed.stdout
    arguments = invoke("api", "observe", "--list").stdout
    assert [word for word in ("session_id", "probe_id", "required", "seen_at") if word not in arguments] == []
    assert "did you mean `observe`" in invoke("api", "observ", "--list").stderr


@pytest.mark.req("CLIENT-12")
def test_help_after_an_operation_is_about_that_operation() -> None:
    helped = invoke("api", "observe", "--help")
    assert helped.exit_code == 0, helped.output
    words = ("Tell what was seen.", "POST /v1/sessions/{session_id}/observations", "belief:write", "response:=JSON")
    assert [word for word in words if word not in helped.stdout] == []
    assert "text=@FILE" in invoke("api", "--server", "http://127.0.0.1:1", "put_kit", "--help").stdout
    assert "It takes no arguments." in invoke("api", "whoami", "--help").stdout
    assert "`cmbs follow`" in invoke("api", "follow_all", "--help").stdout
    unknown = invoke("api", "observ", "--help")
    assert (unknown.exit_code, "did you mean `observe`" in unknown.stderr) == (2, True)
    assert "--idempotency-key" in invoke("api", "--help").stdout


@pytest.mark.req("CLIENT-12")
def test_what_is_listed_for_a_program_has_one_line_for_each_row() -> None:
    listed = invoke("api", "--list", COLUMNS="40").stdout.splitlines()
    assert [line.split()[0] for line in listed[1:]] == [each.operation_id for each in ALL_OPERATIONS]
    (line,) = (each for each in listed if each.startswith("put_kit "))
    assert line.split()[1:4] == ["spaces:operate", "POST", "/v1/kits"]


@pytest.mark.req("CLIENT-12")
def test_a_wait_that_is_no_number_is_refused_by_the_server(tmp_path: Path) -> None:
    for wait in ("abc", "inf", "nan", "1e999"):
        ran = invoke(
            "api", "query_belief", "session_id=s", f"wait={wait}", "--server", f"sqlite:///{tmp_path / 's.db'}"
        )
        error = json.loads(ran.stdout)["error"]
        assert (ran.exit_code, error["code"], error["details"]["field"]) == (1, "INVALID_REQUEST", "wait")
