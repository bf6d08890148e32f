"""Which callers are on this machine, and no browser's page: those who may change sources until others are known.

Pure. A request that a proxy forwarded is not local, whoever the proxy is.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from starlette.types import Scope

from api.problems import RequestRefused

_FORWARDED: Final = (b"forwarded", b"x-forwarded-for", b"x-real-ip")


def require_local(scope: Scope, headers: Mapping[bytes, bytes]) -> None:
    """Raise `RequestRefused` 403 unless the caller is on this machine."""
    client = scope.get("client")
    if client and not is_loopback(client[0]):  # a Unix socket has no address: the file's permissions decide
        _refuse(
            "this path answers callers on the loopback address only, until auth.tokens_file (to register sources: "
            "auth.endpoints) opens it"
        )
    if any(name in headers for name in _FORWARDED):
        _refuse("this path answers no forwarded request: its real caller may be anywhere")
    require_no_foreign_page(headers)


def require_no_foreign_page(headers: Mapping[bytes, bytes]) -> None:
    """Raise `RequestRefused` 403 where a browser sends this for a page of another site."""
    origin = headers.get(b"origin")
    if origin is not None and not _local_origin(origin):
        _refuse("this path answers no page of another site")


def is_loopback(host: str) -> bool:
    """Whether that address, or the name localhost, is this machine itself."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _local_origin(origin: bytes) -> bool:
    try:
        host = urlsplit(origin.decode("ascii")).hostname
    except ValueError:
        return False
    return host is not None and is_loopback(host)


def _refuse(detail: str) -> None:
    raise RequestRefused(HTTPStatus.FORBIDDEN, "caller.not_local", detail)
