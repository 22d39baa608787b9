"""Which network addresses belong to this machine alone."""

from __future__ import annotations

import ipaddress


def is_remote(peer: str) -> bool:
    """Whether an address can belong to another machine, or be reached from one.

    Only loopback addresses cannot. What is no address (a socket file, a test) counts as local.
    """
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return not (mapped or address).is_loopback
