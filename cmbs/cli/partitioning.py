"""`cmbs partition`."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from cmbs.cli.output import err, failing_cleanly
from cmbs.errors import InvalidRequest
from cmbs.stores import POSTGRES_SCHEMES, open_postgres

MAX_PARTITIONS = 1024


def partition(
    url: Annotated[
        str, typer.Argument(envvar="CMBS_STORE", help="A PostgreSQL database with nothing in it.", metavar="URL")
    ],
    partitions: Annotated[int, typer.Option(min=1, max=MAX_PARTITIONS, help="How many partitions.")],
) -> None:
    """Partition the tables of an empty PostgreSQL database by stream."""
    with failing_cleanly():
        if not url.startswith(POSTGRES_SCHEMES):
            raise InvalidRequest("only tables of a PostgreSQL database can be partitioned")
        with closing(open_postgres(url)) as store:
            store.partition(partitions)
    err.print(f"the tables are in {partitions} partitions")
