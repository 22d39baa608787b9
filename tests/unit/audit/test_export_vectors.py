"""One corpus of good and forged exports, which every verifier of exports judges alike: here `cmbs` and the offline one.

The console's verifier passes it too: console/tests/corpus.test.ts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cmbs import offline_verifier as verifier
from cmbs.audit.transfer import import_lines
from cmbs.belief.server import BeliefServer
from cmbs.errors import CmbsError, LedgerCorrupt
from cmbs.ledger import Head, StoredEntry
from cmbs.stores.memory import InMemoryStore
from cmbs.substrate.kernel.replay import verify_space
from tests.support.exports import check_export, join_lines
from tests.support.subtests import for_each

VECTORS = sorted((Path(__file__).resolve().parents[2] / "vectors" / "exports").glob("*.json"))


def read(path: Path) -> tuple[dict[str, Any], list[bytes]]:
    vector = json.loads(path.read_text("utf-8"))
    return vector, [line.encode("utf-8", "surrogatepass") for line in vector["export"]]


@pytest.mark.req("OFFLINE-02", "OFFLINE-04")
@for_each("path", VECTORS, ids=lambda path: path.stem)
def test_the_offline_verifier_judges_the_corpus(path: Path) -> None:
    vector, lines = read(path)
    known = verifier.Known()
    if "kept" in vector:
        verifier.load_kept("\n".join(map(json.dumps, vector["kept"])), known)
    expected = vector["expected"]
    if "good" in expected:
        report = check_export(join_lines(lines), known)
        assert {*report.streams} == {*expected["good"]}
        assert report.figures["events"] == sum(expected["good"].values())
        return
    left_open = {"rules": "their verdicts", "kits": "observations over kits"}.get(expected.get("needs"))
    if left_open is not None:
        # Nothing here decides a space again, or reads a kit, and of how many entries that is so is said.
        assert any(left_open in each for each in check_export(join_lines(lines), known).not_checked)
        return
    with pytest.raises(verifier.Refused) as caught:
        check_export(join_lines(lines), known)
    place = caught.value.place
    assert {name: place.get(name) for name in expected["bad"]} == expected["bad"], caught.value.describe()


@pytest.mark.req("OFFLINE-03")
@for_each("path", VECTORS, ids=lambda path: path.stem)
def test_cmbs_import_judges_the_corpus(path: Path) -> None:
    vector, lines = read(path)
    expected = vector["expected"]
    if expected.get("needs") in {"streams", "kept"}:
        # An import takes in stream after stream; `cmbs verify --heads` has what was kept.
        return
    if "good" in expected:
        assert {each.session_id: each.events for each in take_in(lines)} == expected["good"]
        return
    with pytest.raises(CmbsError) as caught:
        take_in(lines)
    if isinstance(caught.value, LedgerCorrupt) and "seq" in expected["bad"]:
        assert caught.value.seq == expected["bad"]["seq"], caught.value


def take_in(lines: Sequence[bytes]) -> list[Any]:
    def take_space(space_id: str, entries: Sequence[StoredEntry], head: Head) -> None:
        verify_space(space_id, entries, head)

    return list(import_lines(BeliefServer(store=InMemoryStore()), lines, take_space))


def test_the_corpus_has_files_of_every_kind() -> None:
    kinds = [read(path)[0]["expected"] for path in VECTORS]
    assert sum("good" in each for each in kinds) >= 10
    assert sum("bad" in each for each in kinds) >= 150
    assert {each.get("needs") for each in kinds} == {None, "rules", "streams", "kept", "kits"}
