"""Where commands run."""

from pathlib import Path

import pytest


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory to work in."""
    monkeypatch.delenv("CMBS_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path
