"""What signed checkpoints cost: durable appends with a notary that signs every second, and without."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from bench.harness import Effort, Result, at_least, belief_server, interleaved, shown
from bench.servers import disk_directory
from bench.sqlite_group_commit import WAITERS, append_rate
from cmbs.system import SystemClock
from cmbs.transparency.key_files import KeyFiles
from cmbs.transparency.notary import Notary

NAME = "server_checkpoints"
INTERVAL_SECONDS = 1.0


def run(effort: Effort) -> list[Result]:
    """Compare two servers, each on a file of its own; a round lasts for several checkpoints."""
    appends = effort.operations // WAITERS
    with (
        disk_directory() as directory,
        belief_server(f"sqlite:///{directory}/plain.db") as plain,
        belief_server(f"sqlite:///{directory}/signed.db") as signed,
    ):
        files = KeyFiles.open(Path(directory) / "signing.key", "bench.example/log", SystemClock().now())
        with closing(Notary(signed.log, files, interval_seconds=INTERVAL_SECONDS)) as notary:
            signed.observe_appends(notary.note_appends)
            notary.start()
            rates = interleaved(
                {
                    "plain": lambda: append_rate(plain, WAITERS, appends),
                    "signed": lambda: append_rate(signed, WAITERS, appends),
                },
                2 * effort.rounds,
            )
    return [
        Result(
            NAME,
            f"ELIMINATE on SQLite, {WAITERS} threads, a checkpoint a second: {shown(rates['signed'])}/s",
            f"without checkpoints: {shown(rates['plain'])}/s",
            rates["signed"] / rates["plain"],
            at_least(0.9),
        )
    ]
