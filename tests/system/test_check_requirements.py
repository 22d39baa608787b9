"""`scripts/check_requirements.py` notices requirements whose tests no push runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import check_requirements
from tests.support.subtests import for_each

TEST = '@pytest.mark.req("X")\ndef test() -> None: ...\n'
DEEP = {
    "a function": f"@pytest.mark.deep\n{TEST}",
    "a class": '@pytest.mark.deep\nclass TestIt:\n    @pytest.mark.req("X")\n    def test(self) -> None: ...\n',
    "a module": f"pytestmark = pytest.mark.deep\n{TEST}",
    "a module with several markers": f"pytestmark = [pytest.mark.neo4j, pytest.mark.deep]\n{TEST}",
}
PUSHED = {
    "another marker": f"pytestmark = [pytest.mark.neo4j]\n{TEST}",
    "a parameter": f'@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.deep)])\n{TEST}',
    "another test is deep": f"@pytest.mark.deep\ndef test_more() -> None: ...\n{TEST}",
    "one claim of two": f"{TEST}{DEEP['a function']}",
}


def find_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> list[str]:
    monkeypatch.setattr(check_requirements, "ROOT", tmp_path)
    monkeypatch.setattr(check_requirements, "TESTS", tmp_path)
    check_requirements.nodes_in.cache_clear()
    (tmp_path / "requirements.toml").write_text('[[requirement]]\nid = "X"\nspec = "s"\nbehaviour = "b"\n')
    (tmp_path / "test_it.py").write_text(source)
    return list(check_requirements.faults())


@for_each("what", DEEP)
def test_a_requirement_that_only_deep_tests_claim_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    said = "X: every test that claims it is marked `deep`, so no push runs one"
    assert find_faults(tmp_path, monkeypatch, DEEP[what]) == [said]


@for_each("what", PUSHED)
def test_a_requirement_that_any_other_test_claims_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    assert find_faults(tmp_path, monkeypatch, PUSHED[what]) == []
