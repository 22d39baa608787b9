"""Connections to PostgreSQL that do not wait for ever, and notice what a standby does not have."""

from __future__ import annotations

from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.errors import Diagnostic
from psycopg.pq import TransactionStatus

WAIT_SECONDS = 10.0
# A statement may take so many times as long as anything else is waited for: a long log takes time to read.
STATEMENT_WAITS = 6

R = TypeVar("R")


class Connection(psycopg.Connection[Any]):
    """A connection that gives up on a database that no longer answers, as one behind a broken network does not."""

    patience = STATEMENT_WAITS * WAIT_SECONDS
    # Whether a commit went on without the standby that it was to wait for.
    unreplicated = False

    def wait(self, gen: PQGen[R], interval: float = 0.1, timeout: float | None = None) -> R:
        """As the base class does, but not for ever."""
        try:
            return super().wait(gen, interval, self.patience if timeout is None else timeout)
        except psycopg.OperationalError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.close()  # an answer that still came would be taken for the next one's
            raise


def note_unreplicated(connection: Connection, notice: Diagnostic) -> None:
    if notice.source_function == "SyncRepWaitForLSN":
        connection.unreplicated = True
