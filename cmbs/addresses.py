"""Which network addresses belong to this machine alone."""

from __future__ import annotations

import ipaddress
from enum import StrEnum


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


class Reach(StrEnum):
    """From where an address is reached."""

    LOOPBACK = "loopback"
    PRIVATE = "private"
    PUBLIC = "public"


# What carries an IPv4 address through a gateway of the network (NAT64).
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def classify_address(text: str) -> Reach:
    """Where an address leads; what is not known to be public is private. ValueError where it is no address.

    An IPv6 address that stands for an IPv4 address leads where that one does.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        address = inner or address
    if address.is_loopback:
        return Reach.LOOPBACK
    return Reach.PUBLIC if address.is_global and not address.is_multicast else Reach.PRIVATE
