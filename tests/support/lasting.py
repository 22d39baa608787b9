"""Stores that outlive the servers over them: to open a database anew for each would take longer than all the rest."""

from __future__ import annotations

from typing import Any

from cmbs.testing import FailingLog, FailingStore


class _Lasting:
    def close(self) -> None:
        """Goes on."""


class LastingStore(_Lasting, FailingStore[Any]):
    """A store that can be told to fail, and that its servers do not close."""


class LastingLog(_Lasting, FailingLog[Any]):
    """A log that can be told to fail, and that its servers do not close."""
