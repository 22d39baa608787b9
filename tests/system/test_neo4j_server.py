"""`scripts/neo4j_server.py`: what it says where it cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import neo4j_server
from scripts.neo4j_server import Neo4jMissing, kernel_jars, main, start


def executable(directory: Path, name: str, script: str) -> None:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(f"#!/bin/sh\n{script}\n")
    (directory / name).chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory of the path, empty; the cache is empty, too."""
    path = tmp_path / "path"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return path


def test_without_java_it_says_so(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Neo4jMissing, match="needs Java 17 or newer: there is no `java`"):
        start(tmp_path / "data")
    assert main(["--port", "0", "--data", str(tmp_path / "data")]) == 1
    assert "there is no `java`" in capsys.readouterr().err


def test_an_old_java_is_named(path: Path, tmp_path: Path) -> None:
    executable(path, "java", "echo 'openjdk version \"11.0.2\"' >&2")
    with pytest.raises(Neo4jMissing, match=r"11\.0\.2"):
        start(tmp_path / "data")


def test_maven_is_needed_only_for_the_first_time(path: Path, tmp_path: Path) -> None:
    with pytest.raises(Neo4jMissing, match="there is no `mvn`"):
        kernel_jars()
    fetching = 'for each; do case "$each" in -DoutputDirectory=*) mkdir "${each#*=}";; esac; done'
    executable(path, "mvn", f"PATH=/usr/bin:/bin\n{fetching}")
    jars = kernel_jars()
    assert jars.is_dir()
    assert jars.is_relative_to(tmp_path / "cache" / "cmbs")
    (path / "mvn").unlink()
    assert kernel_jars() == jars


def test_a_download_that_fails_leaves_nothing_behind(path: Path, tmp_path: Path) -> None:
    executable(path, "mvn", "echo 'no such artifact'; exit 1")
    with pytest.raises(Neo4jMissing, match="no such artifact"):
        kernel_jars()
    assert [each.name for each in (tmp_path / "cache" / "cmbs").iterdir()] == ["neo4j.lock"]


def test_a_kernel_that_does_not_start_is_quoted(path: Path, tmp_path: Path) -> None:
    answers = 'case "$1" in -version) echo \'version "17.0.1"\' >&2;; *) echo "port is taken" >&2; exit 1;; esac'
    executable(path, "java", answers)
    executable(path, "mvn", 'PATH=/usr/bin:/bin\nfor each; do last="$each"; done; mkdir "${last#*=}"')
    with pytest.raises(Neo4jMissing, match="port is taken"):
        start(tmp_path / "data")


def test_the_pom_names_the_long_term_line_and_no_place_to_fetch_it_from() -> None:
    pom = (neo4j_server.KERNEL / "pom.xml").read_text("utf-8")
    assert "<neo4j.version>5.26." in pom
    assert "://" not in pom
