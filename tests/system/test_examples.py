"""What a reader tries first works as shown: the replay demo, the commands in the documents, the worked example."""

import json
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from scripts.check_docs import ROOT, Block, markdown_files, read_document
from tests.support.http_server import free_port, serving

pytestmark = pytest.mark.slow

DEMO = ROOT / "examples" / "replay_demo.py"
ENVIRONMENT = Path(sys.executable).parent.parent
DOCUMENTED_URL = "http://127.0.0.1:8080"
ANYTHING = "…"
# Ids and hashes differ from run to run; the same one must stay the same one.
RANDOM = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{64}")
MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z")

Events = list[dict[str, Any]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server for tests that make sessions of their own; the URL that it listens on."""
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running.url


# --- the replay demo --------------------------------------------------------------------------------------------------


def run_demo(url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, DEMO, url], cwd=ROOT, capture_output=True, text=True, check=False)


@contextmanager
def altering(url: str, alter: Callable[[Events], Events]) -> Iterator[str]:
    """A proxy in front of a server that hands out audit logs only after altering them; its URL."""

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.forward(None)

        def do_POST(self) -> None:
            self.forward(self.rfile.read(int(self.headers["content-length"])))

        def forward(self, body: bytes | None) -> None:
            headers = {"content-type": "application/json"}
            with urllib.request.urlopen(urllib.request.Request(url + self.path, body, headers)) as response:
                status, answer = response.status, json.load(response)
            if self.path.endswith("/audit"):
                answer["events"] = alter(answer["events"])
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name that it overrides
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{proxy.server_port}"
        finally:
            proxy.shutdown()
            thread.join()


def take_back_elimination(events: Events) -> Events:
    events[2]["delta"]["eliminated"] = []
    return events


ALTERATIONS: dict[str, Callable[[Events], Events]] = {
    "a tail cut off": lambda events: events[:-1],
    "an entry dropped": lambda events: [events[0], events[2]],
    "entries swapped": lambda events: [events[0], events[2], events[1]],
    "an elimination taken back": take_back_elimination,
}


@pytest.mark.req("BS-7-DEMO-01")
def test_the_replay_demo_proves_that_the_log_leads_to_the_final_survivors(server: str) -> None:
    ran = run_demo(server)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert [line.split()[0] for line in ran.stdout.splitlines()] == [
        "declared",
        "eliminated",
        "eliminated",
        "snapshot",
        "audit",
        "replayed",
        "proven",
    ]
    assert ran.stdout.endswith("the log alone leads to the same snapshot: bad-deploy, pool-exhausted\n")


@pytest.mark.req("BS-7-DEMO-01")
@pytest.mark.parametrize("alteration", ALTERATIONS)
def test_the_replay_demo_notices_a_log_that_was_altered_on_the_way(server: str, alteration: str) -> None:
    with altering(server, ALTERATIONS[alteration]) as url:
        ran = run_demo(url)
    assert (ran.returncode, ran.stderr[:8]) == (1, "MISMATCH")


def test_the_replay_demo_says_where_it_found_no_server() -> None:
    port = free_port()
    ran = run_demo(f"http://127.0.0.1:{port}")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"no belief server at http://127.0.0.1:{port}: ")


# --- the commands in the documents ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A shell block, and the block right after it if that shows what is printed."""

    command: Block
    shown: Block | None


def steps(path: Path) -> list[Step]:
    """The shell blocks of a document that talk to a server, in order."""
    blocks = read_document(path).blocks
    return [
        Step(block, shown if shown is not None and shown.language in {"json", "text"} else None)
        for block, shown in zip_longest(blocks, blocks[1:])
        if block.language == "sh" and "no-run" not in block.words
    ]


def documents_with_commands() -> list[Path]:
    return [path for path in markdown_files() if any(DOCUMENTED_URL in step.command.text for step in steps(path))]


def outputs(path: Path, url: str, directory: Path) -> list[str]:
    """What each step of a document prints, all run in one shell, one after the other, as a reader would."""
    script = "printf '\\036'\n".join(step.command.text for step in steps(path)).replace(DOCUMENTED_URL, url)
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=directory, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split("\036")


class Resemblance:
    """Whether what was shown is what was printed. Times may differ; ids and hashes too, if each keeps its identity."""

    def __init__(self) -> None:
        self._pairs: set[tuple[str, str]] = set()

    def same(self, shown: object, printed: object) -> bool:
        match shown, printed:
            case str(), _ if shown == ANYTHING:
                return True
            case dict(), dict():
                return list(shown) == list(printed) and all(self.same(shown[key], printed[key]) for key in shown)
            case list(), list():
                return len(shown) == len(printed) and all(map(self.same, shown, printed))
            case str(), str():
                self._pairs.update(zip(RANDOM.findall(shown), RANDOM.findall(printed), strict=False))
                return self._plain(shown) == self._plain(printed)
            case _:
                return shown == printed and type(shown) is type(printed)

    def each_keeps_its_identity(self) -> bool:
        shown, printed = {pair[0] for pair in self._pairs}, {pair[1] for pair in self._pairs}
        return len(shown) == len(printed) == len(self._pairs)

    @staticmethod
    def _plain(text: str) -> str:
        return MOMENT.sub("moment", RANDOM.sub("random", text))


def assert_prints_what_it_shows(path: Path, url: str, directory: Path) -> None:
    resemblance = Resemblance()
    for step, printed in zip(steps(path), outputs(path, url, directory), strict=True):
        if step.shown is None:
            continue
        read: Callable[[str], object] = json.loads if step.shown.language == "json" else str.strip
        shown, answer = read(step.shown.text), read(printed.replace(url, DOCUMENTED_URL))
        assert resemblance.same(shown, answer), f"line {step.command.line}: {printed}"
    assert resemblance.each_keeps_its_identity()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A directory that looks like a checkout to the commands of a document."""
    (tmp_path / ".venv").symlink_to(ENVIRONMENT)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


@pytest.mark.parametrize("path", documents_with_commands(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_commands_of_a_document_print_what_it_shows(path: Path, checkout: Path) -> None:
    with serving(checkout) as fresh:
        assert_prints_what_it_shows(path, fresh.url, checkout)


def test_the_readme_can_be_followed_twice_on_one_database(checkout: Path) -> None:
    with serving(checkout) as fresh:
        for _ in range(2):
            assert_prints_what_it_shows(ROOT / "README.md", fresh.url, checkout)


# --- three incidents --------------------------------------------------------------------------------------------------


def run_incidents(directory: Path, policy: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The example with three incidents; under another policy than its own, if one is named."""
    script = "import pathlib, sys\nfrom examples import three_incidents as example\n"
    script += "" if policy is None else "example.POLICY = pathlib.Path(sys.argv[2])\n"
    script += "sys.exit(example.main(pathlib.Path(sys.argv[1])))"
    command: list[str | Path] = [sys.executable, "-c", script, directory, *([] if policy is None else [policy])]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.deep
@pytest.mark.req("CASE-GATE-01", "CASE-GATE-03", "CASE-OPEN-01", "CASE-READ-02")
def test_of_three_incidents_on_a_real_server_only_the_action_of_the_solved_one_runs(tmp_path: Path) -> None:
    ran = run_incidents(tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = [line.strip() for line in ran.stdout.splitlines()]
    assert 'restarted in the end: ["checkout"]' in lines
    attempts = [tuple(line.split()[1:4]) for line in lines if line.split()[1] in {"PROPOSE", "OPEN_CASE"}]
    assert attempts == [
        ("PROPOSE", "search-agent", "ALLOW_UNMET"),
        ("PROPOSE", "search-agent", "ALLOW_UNMET"),
        ("PROPOSE", "login-agent", "NO_CASE"),
        ("PROPOSE", "search-agent", "NO_CASE"),
        ("OPEN_CASE", "search-agent", "NOT_AUTHORISED"),
        ("PROPOSE", "search-agent", "NO_CASE"),
    ]
    assert any(line.startswith("good proof.json: decision: ") for line in lines)
    assert lines[-1] == "everything is as it should be"


@pytest.mark.deep
@pytest.mark.req("CASE-GATE-03")
def test_the_example_notices_a_gate_that_an_agent_can_open_by_itself(tmp_path: Path) -> None:
    weak = tmp_path / "weak.yaml"
    text = (ROOT / "examples" / "policy" / "on_call.yaml").read_text("utf-8")
    weak.write_text(text.replace("independent.n_survivors == 1", "independent.n_survivors <= 3"), "utf-8")
    ran = run_incidents(tmp_path, weak)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert '  its restart: ["running", "ALLOWED"], but expected ["parked", "ALLOW_UNMET"]' in ran.stdout
    assert ran.stdout.endswith("something is not as it should be\n")


# --- the protocol document --------------------------------------------------------------------------------------------


@pytest.mark.req("BS-8-PROTOCOL-01")
def test_the_worked_example_recomputes_with_the_standard_library_alone() -> None:
    blocks = [block for block in read_document(ROOT / "BELIEF_PROTOCOL.md").blocks if block.language == "python"]
    # -I and -S: neither the checkout nor any installed package can be imported.
    alone = subprocess.run(
        [sys.executable, "-I", "-S", "-c", blocks[0].text + "print(hashes[-1])"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (alone.returncode, alone.stderr) == (0, "")
    assert RANDOM.fullmatch(alone.stdout.strip())
    assert "import cmbs" not in blocks[0].text
    assert "== hashes" in blocks[1].text
