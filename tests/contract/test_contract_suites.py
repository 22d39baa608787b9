"""The shipped contracts can fail: for each of their tests there is a store that breaks the law, and it is noticed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.support import broken_stores
from tests.support.broken_stores import CONTRACTS, NOTICED_BY

ROOT = Path(__file__).resolve().parents[2]
CASES = [(name, test) for (name, _), test in NOTICED_BY.items()]


def laws_of(contract: type) -> set[str]:
    return {name for name in vars(contract) if name.startswith("test_")}


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], list[str]]:
    """Every broken store under the test that must notice it: what each run (with other parameters) complained of."""
    report = tmp_path_factory.mktemp("contracts") / "report.xml"
    chosen = [f"{broken_stores.__file__}::{name}::{test}" for name, test in CASES]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--junitxml={report}"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *chosen], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED, ran.stdout + ran.stderr
    complaints: dict[tuple[str, str], list[str]] = {}
    for case in ET.parse(report).iter("testcase"):
        name = case.attrib["classname"].rpartition(".")[2]
        complaint = case.find("failure")
        assert case.find("error") is None, (name, ET.tostring(case, "unicode"))
        test = case.attrib["name"].partition("[")[0]
        complaints.setdefault((name, test), []).append("" if complaint is None else complaint.attrib["message"])
    return complaints


@pytest.mark.slow
@pytest.mark.req("BS-5.1-STORE-08")
@pytest.mark.parametrize(("name", "test"), CASES)
def test_a_store_that_breaks_a_law_is_noticed(failed: dict[tuple[str, str], list[str]], name: str, test: str) -> None:
    complaints = failed[name, test]
    # Of a test with parameters every one of them.
    assert complaints
    assert all(complaints)


@pytest.mark.req("BS-5.1-STORE-08")
def test_there_is_a_broken_store_for_every_test_of_every_contract() -> None:
    for contract in CONTRACTS:
        assert {test for (_, its), test in NOTICED_BY.items() if its is contract} == laws_of(contract)


def test_the_suites_need_pytest_and_the_fakes_do_not() -> None:
    script = (
        "import sys; sys.modules['pytest'] = sys.modules['hypothesis'] = None; import cmbs.testing\n"
        "try:\n    import cmbs.testing.contracts.elimination_store\nexcept ImportError:\n    print('as promised')"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert shown == "as promised\n"
