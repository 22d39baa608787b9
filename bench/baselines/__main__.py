"""`python -m bench.baselines MODULE:APP PORT`: serve an application just as `cmbs serve` serves its own."""

from __future__ import annotations

import sys

from granian import Granian
from granian.constants import HTTPModes, Interfaces, Loops
from granian.log import LogLevels


def main() -> None:
    """Serve until a signal comes."""
    Granian(
        sys.argv[1],
        address="127.0.0.1",
        port=int(sys.argv[2]),
        interface=Interfaces.ASGI,
        workers=1,
        loop=Loops.auto,
        http=HTTPModes.http1,
        log_level=LogLevels.warning,
        workers_kill_timeout=10,
    ).serve()


if __name__ == "__main__":
    main()
