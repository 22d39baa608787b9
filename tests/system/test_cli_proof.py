"""`cmbs proof`: documents to files, what a check prints, and the exit codes that scripts rely on."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cmbs import offline_verifier
from cmbs.belief.server import BeliefServer
from cmbs.stores import SQLiteStore
from cmbs.substrate.belief_source import ServedBelief
from tests.support.cli import invoke
from tests.support.heads_log import HeadsLog
from tests.support.proving import ONTOLOGY, anchors_of
from tests.support.spaces import SPACE, World, constraint, delta
from tests.support.store_fixture import NO_SUCH_SESSION, declared

HEX_BYTES = 64


@pytest.fixture
def session_id(place: Path) -> str:
    """A session in `cmbs.db`: `a` is eliminated by event 1, and a conclusion while an obligation is open denied."""
    server = BeliefServer(store=SQLiteStore(place / "cmbs.db"))
    session_id = declared(server)
    server.eliminate(session_id, "s", "o", ["a"])
    server.enter_obligation(session_id, "look", 1)
    server.declare_conclusion(session_id, "b")
    server.close()
    return session_id


@pytest.mark.req("PROOF-07")
def test_a_proof_is_written_to_a_file_and_checked_from_it(subtests: pytest.Subtests, session_id: str) -> None:
    for arguments in [
        ("inclusion", "{}", "--at", "1"),
        ("consistency", "{}", "2"),
        ("membership", "{}", "b"),
        ("elimination", "{}", "a"),
        ("transition", "{}", "--at", "1"),
        ("transition", "{}", "--at", "1", "--entry"),
        ("refusal", "{}"),
    ]:
        with subtests.test(arguments=arguments):
            made = invoke("proof", *(each.format(session_id) for each in arguments), "--out", "proof.json")
            assert (made.exit_code, made.stdout) == (0, "")
            statement = made.stderr.removeprefix("proven: ").strip()
            checked = invoke("proof", "check", "proof.json")
            first, *conditions = checked.stdout.splitlines()
            assert (checked.exit_code, first) == (4, f"good {arguments[0]}: {statement}")
            assert conditions
            assert all(line.startswith("if   ") for line in conditions)


@pytest.mark.req("PROOF-07", "PROOF-02")
def test_a_decision_is_proven_with_what_it_rests_on_and_checked_without_cmbs(session_id: str, place: Path) -> None:
    server = BeliefServer(store=SQLiteStore(place / "cmbs.db"))
    few = {"op": "schema", "args": [f"$belief.{session_id}.n_survivors", {"maximum": 3}]}
    world = World(server.log, belief=ServedBelief(server))
    world.open(policy={"constraint.any": constraint(when=few)})
    world.propose(delta(colour="red"))
    world.close()
    server.close()
    made = invoke("proof", "decision", SPACE, "--out", "proof.json")
    assert (made.exit_code, made.stdout) == (0, "")
    checked = invoke("proof", "check", "proof.json")
    assert (checked.exit_code, checked.stdout.startswith("good decision: ")) == (4, True)
    assert session_id in checked.stdout
    assert "\nnot checked: what the entry says beside the survivors of " in checked.stdout
    verifier = shutil.copy(offline_verifier.__file__, place / "verifier.py")
    ran = subprocess.run(
        [sys.executable, "-I", "-S", verifier, "proof.json"], cwd=place, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 4, ran.stderr
    assert checked.stdout.splitlines()[0].removeprefix("good decision: ") in ran.stdout
    forged = (place / "proof.json").read_text().replace(session_id, NO_SUCH_SESSION)
    assert invoke("proof", "check", "-", given=forged).exit_code == 1


@pytest.mark.req("PROOF-07", "PROOF-09")
def test_with_the_roots_that_were_kept_nothing_is_left_open(session_id: str, place: Path) -> None:
    store = SQLiteStore(place / "cmbs.db")
    known = anchors_of(store, session_id)
    store.close()
    (tree,) = known.trees[session_id]
    kept = {"streams": {session_id: [{"size": tree.size, "root": tree.root.hex()}]}}
    Path("kept.json").write_text(json.dumps(kept))
    document = invoke("proof", "membership", session_id, "b").stdout
    said = f"good membership: `b` survived after event 3 of `{session_id}`\n"
    question = ("--kind", "membership", "--stream", session_id, "--at", "3", "--hypothesis", "b")
    checked = invoke("proof", "check", "-", "--anchors", "kept.json", *question, given=document)
    assert (checked.exit_code, checked.stdout) == (0, said)
    # What was not asked is a condition like any other.
    checked = invoke("proof", "check", "-", "--anchors", "kept.json", *question[:4], given=document)
    open_question = "if   this is the answer to what you ask: --at, --hypothesis was not given\n"
    assert (checked.exit_code, checked.stdout) == (4, said + open_question)
    checked = invoke("proof", "check", "-", *question, given=document)
    assert (checked.exit_code, checked.stdout.count("\nif   the stream ")) == (4, 1)
    for name, value, is_of in (
        ("kind", "elimination", "`membership`"),
        ("stream", NO_SUCH_SESSION, f"`{session_id}`"),
        ("at", "2", "3"),
        ("hypothesis", "c", "`b`"),
    ):
        checked = invoke("proof", "check", "-", "--anchors", "kept.json", f"--{name}", value, given=document)
        reason = f"cmbs: field `{name}`: the proof answers another question: its {name} is {is_of}\n"
        assert (checked.exit_code, checked.stdout, checked.stderr) == (1, "", reason)
    heads = {"heads": {session_id: [{"seq": 3, "event_hash": "00" * 32}]}}
    Path("heads.json").write_text(json.dumps(heads))
    checked = invoke("proof", "check", "-", "--anchors", "heads.json", given=document)
    assert (checked.exit_code, checked.stderr) == (
        1,
        "cmbs: field `stream.head`: another entry than the head that was kept at seq 3\n",
    )
    kept["streams"][session_id][0]["root"] = "00" * 32
    Path("kept.json").write_text(json.dumps(kept))
    checked = invoke("proof", "check", "-", "--anchors", "kept.json", given=document)
    assert (checked.exit_code, checked.stderr) == (
        1,
        f"cmbs: field `stream.root`: `{session_id}` has another root at size 4 than the one that was kept\n",
    )
    Path("kept.json").write_text("[]")
    assert invoke("proof", "check", "-", "--anchors", "kept.json", given=document).exit_code == 2


@pytest.mark.req("PROOF-07")
def test_a_changed_proof_and_a_false_statement_end_with_1(session_id: str) -> None:
    document = invoke("proof", "elimination", session_id, "a").stdout
    ran = invoke("proof", "check", "-", given=document.replace('"hypothesis_id":"a"', '"hypothesis_id":"b"'))
    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.endswith(f"event 1 of `{session_id}` did not eliminate `b`\n")
    for arguments in (
        ("membership", session_id, "a"),
        ("refusal", session_id, "--at", "0"),
        ("inclusion", session_id, "--at", "9"),
        ("inclusion", "nowhere"),
        ("decision", "nowhere"),
    ):
        ran = invoke("proof", *arguments)
        assert (ran.exit_code, ran.stdout) == (1, "")
    assert invoke("proof", "membership", session_id, "unheard-of").exit_code == 2
    assert invoke("proof", "check", "missing.json").exit_code == 2


@pytest.mark.req("PROOF-07", "PROOF-09")
def test_an_id_cannot_print_lines_of_its_own(place: Path) -> None:
    server = BeliefServer(store=SQLiteStore(place / "cmbs.db"))
    forged = "x\ngood membership: `b` survived"
    session_id = server.declare_session(ONTOLOGY, [forged, "b"]).session_id
    server.close()
    made = invoke("proof", "membership", session_id, forged, "--out", "proof.json")
    assert (made.exit_code, len(made.stderr.splitlines())) == (0, 1)
    checked = invoke("proof", "check", "proof.json")
    first, *conditions = checked.stdout.splitlines()
    escaped = "`x\\u000agood membership: \\u0060b\\u0060 survived`"
    assert first == f"good membership: {escaped} survived after event 0 of `{session_id}`"
    assert all(line.startswith("if   ") for line in conditions)
    ran = invoke(
        "proof", "check", "-", given=(place / "proof.json").read_text().replace('"position":1', '"position":0')
    )
    assert (ran.exit_code, len(ran.stderr.splitlines())) == (1, 1)


@pytest.mark.req("PROOF-07", "PROOF-09")
def test_a_document_of_checkpoints_answers_no_question_about_a_stream(session_id: str) -> None:
    log = HeadsLog([{"head_hash": "00" * 32, "root": "00" * 32, "size": 1, "stream_id": session_id}])
    record, growth = json.dumps(log.record(0, 1)), json.dumps(log.consistency(1, 1))
    assert invoke("proof", "check", "-", "--key", log.vkey, given=record).exit_code == 0
    asked = invoke("proof", "check", "-", "--key", log.vkey, "--kind", "membership", given=record)
    assert (asked.exit_code, asked.stdout) == (1, "")
    assert "a document of the kind `checkpoint-record` answers no such question" in asked.stderr
    # What it could be compared with was not given.
    assert invoke("proof", "check", "-", "--key", log.vkey, given=growth).exit_code == 4
    Path("note.txt").write_text(log.note(1))
    kept = ("--anchors", "note.txt")
    assert invoke("proof", "check", "-", *kept, "--key", log.vkey, given=growth).exit_code == 0
    unsigned = invoke("proof", "check", "-", *kept, given=growth)
    assert (unsigned.exit_code, "name the key that you trust" in unsigned.stderr) == (2, True)
    forged = HeadsLog([{}])
    assert invoke("proof", "check", "-", *kept, "--key", forged.vkey, given=growth).exit_code == 2
