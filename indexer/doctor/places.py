"""Where an endpoint is, as far as its text tells. Pure."""

from __future__ import annotations

import ipaddress
from typing import Final

_TCP: Final = "tcp://"


def host_and_port(endpoint: str) -> tuple[str, int] | None:
    """Of `tcp://HOST:PORT` and of `HOST:PORT`, brackets taken off; None where it is none (`ipc://`, a bare name)."""
    if "://" in endpoint and not endpoint.startswith(_TCP):
        return None
    host, colon, port = endpoint.removeprefix(_TCP).rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or len(port) > len("65535"):
        return None
    return host.strip("[]"), int(port)


def is_address(name: str) -> bool:
    """A number of a machine and a port, as engines are mostly named."""
    place = host_and_port(name)
    try:
        return place is not None and "://" not in name and bool(ipaddress.ip_address(place[0]))
    except ValueError:
        return False


def is_loopback(endpoint: str) -> bool:
    """It leads to the machine of whoever connects: loopback, or a path."""
    place = host_and_port(endpoint)
    return endpoint.startswith("ipc://") if place is None else is_loopback_host(place[0])


def is_loopback_host(host: str) -> bool:
    """The same of an address or a name without port and brackets."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_every_interface(endpoint: str) -> bool:
    """An address to bind, and none to connect to."""
    place = host_and_port(endpoint)
    if place is None:
        return False
    try:
        address = ipaddress.ip_address(place[0])
    except ValueError:
        return place[0] == "*"
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_unspecified)


def one_spelling(endpoint: str) -> str:
    """The same for the same place."""
    place = host_and_port(endpoint)
    if place is None:
        return endpoint
    host = place[0].lower()
    return f"{'127.0.0.1' if host == 'localhost' else host}:{place[1]}"
