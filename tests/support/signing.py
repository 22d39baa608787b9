"""Signing keys and notaries of tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cmbs.belief.server import BeliefServer
from cmbs.transparency.key_files import KeyFiles
from cmbs.transparency.notary import Notary

NOW = "2026-01-01T00:00:00.000000Z"


def files_in(directory: Path) -> KeyFiles:
    return KeyFiles.open(directory / "signing.key", "example.com/log", NOW)


def notary_of(server: BeliefServer, directory: Path, **options: Any) -> Notary:
    """A notary that hears of what the server writes."""
    notary = Notary(server.log, files_in(directory), **options)
    server.observe_appends(notary.note_appends)
    return notary
