"""`python -m bench.baselines MODULE:APP PORT`: serve an application as `cmbs serve` does, but over plain ASGI."""

from __future__ import annotations

import sys

import uvicorn


def main() -> None:
    """Serve until a signal comes."""
    uvicorn.run(
        sys.argv[1],
        host="127.0.0.1",
        port=int(sys.argv[2]),
        http="httptools",
        loop="auto",
        ws="none",
        interface="asgi3",
        workers=1,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=10,
    )


if __name__ == "__main__":
    main()
