"""Packages built from a clean clone on a machine without Node, installed into empty environments, and used."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from scripts.build_console import VIEWER_FILES
from tests.support.extras import IMPORT_ALL, MODULES, ROOT, list_modules, read_failures, read_project
from tests.support.http_server import serving

pytestmark = pytest.mark.slow

UV = Path(sys.executable).parent / "uv"
STATIC = "cmbs/console/static"
# Programs that every machine has; npm runs scripts with them.
PROGRAMS = ("env", "sh")
DECLARATION = {
    "ontology": {
        "hypothesis_space_id": "demo",
        "hypothesis_version": "1",
        "causal_graph_ref": "graph://demo",
        "causal_graph_version": "1",
    },
    "hypotheses": ["disk", "network"],
}


UV_BUILD = (UV, "build", "--quiet", "--python", sys.executable)


class Packages(NamedTuple):
    """What was built: the sdist of a clone, and the wheel of that sdist. `clone` and `programs` can build more."""

    sdist: Path
    wheel: Path
    clone: Path
    programs: Path


def run(*command: str | Path, path: str = os.environ["PATH"]) -> None:
    """Run a program to its end, which must be a good one."""
    ran = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"


def clone(directory: Path) -> Path:
    """The files that a clone has once all changes are committed."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, directory / name)
    return directory


def build_packages(directory: Path) -> None:
    """Build both below `directory`, with no Node on the PATH."""
    programs = directory / "programs"
    programs.mkdir()
    for name in PROGRAMS:
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    source = clone(directory / "source")
    run(*UV_BUILD, "--sdist", "--out-dir", directory / "sdist", source, path=str(programs))
    (sdist,) = (directory / "sdist").glob("*.tar.gz")
    # Neither Node nor a shell: there is nothing left to build.
    run(*UV_BUILD, "--wheel", "--out-dir", directory / "wheel", sdist, path="")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """The packages, built once in a run of the tests, whichever process of it asks first."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    directory = shared / "packages"
    with (shared / "packages.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not directory.exists():
            directory.mkdir()
            build_packages(directory)
    (sdist,) = (directory / "sdist").glob("*.tar.gz")
    (wheel,) = (directory / "wheel").glob("*.whl")
    return Packages(sdist, wheel, directory / "source", directory / "programs")


def install(wheel: Path, extras: str, directory: Path) -> Path:
    """An environment with `cmbs[extras]` of this wheel, in the versions that are locked; its directory of programs."""
    run(UV, "venv", "--quiet", "--python", sys.executable, directory)
    requirement = f"cmbs[{extras}] @ {wheel.as_uri()}"
    locked = ("--constraints", ROOT / "requirements" / "dev.txt", "--only-binary", ":all:")
    run(UV, "pip", "install", "--quiet", "--python", directory / "bin" / "python", *locked, requirement)
    return directory / "bin"


def read_wheel(wheel: Path) -> dict[str, bytes]:
    """Everything in a wheel but the two files that name the builder and list the rest."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith(("/WHEEL", "/RECORD"))}


@pytest.mark.req("PKG-04")
def test_the_packages_hold_the_console_and_nothing_that_was_only_used_to_build_it(packages: Packages) -> None:
    wheel = read_wheel(packages.wheel)
    assert {f"{STATIC}/index.html", f"{STATIC}/report.html"} <= wheel.keys()
    # The viewer of the API docs, with the licences of what is in it.
    assert {f"{STATIC}/docs/{name}" for name in VIEWER_FILES} <= wheel.keys()
    assert any(re.fullmatch(rf"{STATIC}/assets/index-[\w-]+\.js", name) for name in wheel)
    with tarfile.open(packages.sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {name for name in wheel if name.startswith("cmbs/")} <= inside
    assert not any("node_modules" in name for name in {*inside, *wheel})


@pytest.mark.deep
@pytest.mark.req("PKG-04")
def test_a_wheel_of_the_clone_is_the_wheel_of_its_sdist(packages: Packages, tmp_path: Path) -> None:
    run(*UV_BUILD, "--wheel", "--out-dir", tmp_path, packages.clone, path=str(packages.programs))
    (wheel,) = tmp_path.glob("*.whl")
    assert read_wheel(wheel) == read_wheel(packages.wheel)


def test_the_metadata_of_the_wheel_says_what_the_project_says(packages: Packages) -> None:
    project = read_project()["project"]
    (content,) = (data for name, data in read_wheel(packages.wheel).items() if name.endswith(".dist-info/METADATA"))
    told = message_from_bytes(content)
    assert told.get_all("Classifier") == project["classifiers"]
    assert told["License-Expression"] == project["license"]
    assert told.get_all("License-File") == project["license-files"]
    assert told["Requires-Python"] == project["requires-python"]
    assert set(told.get_all("Provides-Extra", [])) == project["optional-dependencies"].keys()
    # Extras that take in others are written out, so that no installer has to.
    assert not any(each.startswith("cmbs") for each in told.get_all("Requires-Dist", []))


# What each extra imports is also checked with the others hidden, by tests/system/test_packaging.py, in seconds.
@pytest.mark.deep
@pytest.mark.req("PKG-03")
def test_each_extra_installs_and_imports_alone(packages: Packages, tmp_path: Path, subtests: pytest.Subtests) -> None:
    listed = list_modules()
    for extras in MODULES:
        with subtests.test(extras=extras):
            programs = install(packages.wheel, extras, tmp_path / (extras or "bare"))
            ran = subprocess.run(
                [programs / "python", "-I", "-c", IMPORT_ALL],
                input=json.dumps(listed[extras]),
                capture_output=True,
                text=True,
                check=False,
            )
            assert read_failures(ran) == {}


@pytest.mark.req("PKG-04")
def test_the_installed_wheel_serves_the_console_and_the_protocol(packages: Packages, tmp_path: Path) -> None:
    programs = install(packages.wheel, "server", tmp_path / "environment")
    options = ("--store", "sqlite:///beliefs.db")
    with serving(tmp_path, *options, command=programs / "cmbs") as server, server.client() as client:
        page = client.get("/")
        assert page.status_code == httpx2.codes.OK
        (script,) = re.findall(r'<script type="module"[^>]* src="\./?([^"]+)"', page.text)
        loaded = client.get(f"/{script}")
        assert (loaded.status_code, loaded.headers["content-type"].partition(";")[0]) == (200, "text/javascript")
        viewer = re.findall(r'(?:src|href)="(/docs/[^"]+)"', client.get("/docs").text)
        assert {client.get(path).status_code for path in viewer} == {httpx2.codes.OK}
        assert client.get("/healthz").status_code == httpx2.codes.OK
        declared = client.post("/v1/sessions", json=DECLARATION)
        assert declared.status_code == httpx2.codes.CREATED
        session = client.get(f"/v1/sessions/{declared.json()['session_id']}").json()
        assert session["survivors"] == ["disk", "network"]
        assert server.stop() == 0
    assert (tmp_path / "beliefs.db").is_file()
