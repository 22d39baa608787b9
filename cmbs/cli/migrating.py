"""`cmbs migrate`."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from cmbs.bootstrap import DEFAULT_STORE
from cmbs.cli.output import err, failing_cleanly
from cmbs.errors import InvalidRequest
from cmbs.stores import InMemoryStore, SQLiteStore, open_store

MAX_PARTITIONS = 1024


def migrate(
    url: Annotated[
        str, typer.Argument(envvar="CMBS_STORE", help="The store to migrate.", metavar="[URL]")
    ] = DEFAULT_STORE,
    partitions: Annotated[
        int,
        typer.Option(min=0, max=MAX_PARTITIONS, help="Cut the tables of an empty PostgreSQL database in so many."),
    ] = 0,
) -> None:
    """Bring a store to the newest schema, or prepare a database with partitions."""
    with failing_cleanly(), closing(open_store(url)) as store:
        if partitions:
            if isinstance(store, (InMemoryStore, SQLiteStore)):
                raise InvalidRequest("only tables of a PostgreSQL database can be partitioned")
            store.partition(partitions)
    err.print("the schema is the newest" + (f", in {partitions} partitions" if partitions else ""))
