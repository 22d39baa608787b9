"""`cmbs fsck`, `cmbs export` and `cmbs import`: what they print, and the exit codes that scripts rely on."""

import json
from pathlib import Path

import pytest

from cmbs.belief.server import BeliefServer
from cmbs.ledger.format import FINGERPRINT
from cmbs.stores import SQLiteStore
from tests.support.cli import invoke
from tests.support.store_fixture import NO_SUCH_SESSION, StoreFixture, declared, tampering


@pytest.fixture
def sessions(place: Path) -> list[str]:
    """Two sessions in `cmbs.db`; their ids, the oldest first."""
    server = BeliefServer(store=SQLiteStore(place / "cmbs.db"))
    opened = [declared(server) for _ in range(2)]
    for session_id in opened:
        server.eliminate(session_id, "s", "o", ["a"])
    server.close()
    return opened


def tamper(place: Path, session_id: str) -> None:
    with tampering(place / "cmbs.db", "audit_events_no_update") as connection:
        connection.execute(
            "UPDATE audit_events SET entry = CAST(replace(CAST(entry AS TEXT), '[\"a\"]', '[\"b\"]') AS BLOB)"
            " WHERE stream_id = ? AND seq = 1",
            (session_id,),
        )


# --- fsck ---


@pytest.mark.req("FSCK-02")
def test_a_store_that_is_well_ends_with_0(sessions: list[str]) -> None:
    ran = invoke("fsck")
    assert (ran.exit_code, ran.stdout, ran.stderr) == (0, "2 sessions, 4 events, 0 bad\n", "")


@pytest.mark.req("FSCK-02")
def test_only_the_sessions_that_are_named_are_checked(sessions: list[str], place: Path) -> None:
    tamper(place, sessions[0])
    ran = invoke("fsck", f"sqlite:///{place}/cmbs.db", "--session", sessions[1])
    assert (ran.exit_code, ran.stdout, ran.stderr) == (0, "1 session, 2 events, 0 bad\n", "")


@pytest.mark.req("FSCK-02")
def test_what_is_wrong_is_named_and_ends_with_1(sessions: list[str], place: Path) -> None:
    tamper(place, sessions[0])
    store = SQLiteStore(place / "cmbs.db")
    store.put_checkpoint(sessions[1], 1, b"nonsense")
    store.close()
    ran = invoke("fsck")
    assert (ran.exit_code, ran.stdout) == (1, "2 sessions, 4 events, 2 bad\n")
    first, second = ran.stderr.splitlines()
    assert first.startswith(
        f"bad  {sessions[0]}: audit_events.entry seq 1: LEDGER_CORRUPT: ledger of `{sessions[0]}` is bad at seq 1"
    )
    assert second == f"bad  {sessions[1]}: checkpoints seq 1: the checkpoint of seq 1 does not fit the log"


@pytest.mark.req("FSCK-02")
@pytest.mark.parametrize("command", [("fsck",), ("verify",)], ids=["fsck", "verify"])
def test_what_an_intruder_wrote_does_not_wipe_its_finding_from_a_terminal(
    sessions: list[str], place: Path, command: tuple[str, ...]
) -> None:
    with tampering(place / "cmbs.db", "audit_events_no_update") as connection:
        forged = "\x1b[2K\x1b[1A\ngood"
        connection.execute("UPDATE audit_events SET ts = ? WHERE stream_id = ? AND seq = 1", (forged, sessions[0]))
    ran = invoke(*command)
    assert ran.exit_code == 1
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"bad  {sessions[0]}: audit_events.ts seq 1: stored is `\\x1b[2K\\x1b[1A\\ngood`")


@pytest.mark.req("FSCK-02")
def test_a_session_that_is_not_there_ends_with_1(sessions: list[str]) -> None:
    ran = invoke("fsck", "--session", NO_SUCH_SESSION)
    assert (ran.exit_code, ran.stdout) == (1, "1 session, 0 events, 1 bad\n")


@pytest.mark.req("FSCK-02")
def test_what_cannot_be_opened_ends_with_2(subtests: pytest.Subtests, place: Path) -> None:
    for arguments in [["fsck"], ["fsck", "nonsense"], ["export", "-"], ["import", "missing"]]:
        with subtests.test(arguments=arguments):
            ran = invoke(*arguments)
            assert (ran.exit_code, ran.stdout) == (2, "")
            assert ran.stderr.startswith("cmbs: ")
            assert list(place.iterdir()) == []


# --- export and import ---


LEFT_BEHIND = "keys stay behind: the key register is not exported, and actors in these entries are checked here alone\n"
WARNING = "warning: keys were not imported; "


@pytest.mark.req("TRANSFER-02", "TRANSFER-03")
def test_sessions_move_through_a_file(sessions: list[str], place: Path) -> None:
    ran = invoke("export", "sessions.jsonl")
    assert (ran.exit_code, ran.stdout, ran.stderr) == (0, "", f"2 sessions exported\n{LEFT_BEHIND}")
    first_line = (place / "sessions.jsonl").read_bytes().splitlines()[0]
    header = {"format": "cmbs/1/export", "left_out": ["identity:keys"], "fingerprint": FINGERPRINT}
    assert json.loads(first_line) == header
    ran = invoke("import", "sessions.jsonl", "--store", "sqlite:///copy.db")
    counted, warning = ran.stderr.splitlines()
    assert (ran.exit_code, ran.stdout, counted) == (0, "", "2 sessions, 4 events imported")
    assert warning.startswith(WARNING)
    assert "`cmbs keys create`" in warning
    first, second = SQLiteStore(place / "cmbs.db"), SQLiteStore(place / "copy.db")
    assert [first.read(each) for each in sessions] == [second.read(each) for each in sessions]
    for store in (first, second):
        store.close()
    assert invoke("fsck", "sqlite:///copy.db").exit_code == 0


@pytest.mark.postgres
@pytest.mark.req("TRANSFER-02")
def test_sessions_move_through_standard_output_and_input_to_postgresql(sessions: list[str], place: Path) -> None:
    exported = invoke("export", "-", "--session", sessions[1])
    assert (exported.exit_code, exported.stderr) == (0, f"1 session exported\n{LEFT_BEHIND}")
    with StoreFixture.at("postgres", place) as fixture:
        ran = invoke("import", "-", "--store", fixture.url, given=exported.stdout_bytes)
        counted, _ = ran.stderr.splitlines()
        assert (ran.exit_code, ran.stdout, counted) == (0, "", "1 session, 2 events imported")
        assert invoke("fsck", fixture.url).stdout == "1 session, 2 events, 0 bad\n"
        assert invoke("export", "-", "--store", fixture.url).stdout_bytes == exported.stdout_bytes


@pytest.mark.req("TRANSFER-02")
def test_a_session_that_does_not_verify_ends_with_1_and_nothing_is_in(sessions: list[str], place: Path) -> None:
    *lines, tampered, end, total = invoke("export", "-").stdout_bytes.splitlines()
    exported = b"\n".join([*lines, tampered.replace(b'["a"]', b'["b"]'), end, total])
    ran = invoke("import", "-", "--store", "sqlite:///copy.db", given=exported)
    assert ran.exit_code == 1
    counted, _, reason = ran.stderr.splitlines()
    assert counted == "0 sessions, 0 events imported"
    assert reason.startswith(f"cmbs: LEDGER_CORRUPT: ledger of `{sessions[1]}` is bad at seq 1")
    assert invoke("fsck", "sqlite:///copy.db").stdout == "0 sessions, 0 events, 0 bad\n"


@pytest.mark.req("READ-01")
def test_a_session_that_does_not_link_is_not_exported(sessions: list[str], place: Path) -> None:
    tamper(place, sessions[1])
    ran = invoke("export", "sessions.jsonl")
    assert ran.exit_code == 1
    assert ran.stderr.startswith(f"cmbs: LEDGER_CORRUPT: ledger of `{sessions[1]}` is bad at seq 1")


@pytest.mark.req("TRANSFER-02")
def test_a_session_that_is_not_there_is_not_exported(sessions: list[str]) -> None:
    ran = invoke("export", "-", "--session", NO_SUCH_SESSION)
    assert ran.exit_code == 1
    assert ran.stderr.startswith("cmbs: SESSION_NOT_FOUND")


@pytest.mark.req("TRANSFER-02")
def test_a_file_that_is_no_export_ends_with_2(place: Path) -> None:
    ran = invoke("import", "-", given=b"nonsense\n")
    assert ran.exit_code == 2
    assert "cmbs: INVALID_REQUEST: line 1: " in ran.stderr


@pytest.mark.req("TRANSFER-03")
@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"", "line 1: not an export"),
        (b'{"format":"cmbs/2/export"}\n', "line 1: not an export"),
        (b'{"format":"cmbs-export/1"}\n', "line 1: an export of an earlier format, which this software does not read"),
    ],
)
def test_no_store_is_made_for_a_file_that_is_no_export(place: Path, header: bytes, said: str) -> None:
    Path("in.jsonl").write_bytes(header)
    ran = invoke("import", "in.jsonl", "--store", "sqlite:///new.db")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert f"cmbs: INVALID_REQUEST: {said}" in " ".join(ran.stderr.split())
    assert not list(place.glob("new.db*"))
