"""[I/O] HTTP clients for servers that others run: nothing that one answers steers the client.

Promise: no redirect is followed, nor looked at, as a place that is none raises what no caller expects; no cookie is
kept, of which there could be any number; no proxy of the environment is used. Answers are asked for uncompressed: what
is read is what was sent, and cannot grow.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ssl
    from http.cookiejar import CookieJar

    import httpx
    from httpx import Response

CONNECTIONS_MAX: Final = 100
KEPT_MAX: Final = 20
"""Where nobody says otherwise."""

_PROBED: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)
"""A connection whose other end is gone ends after 25 s, also while nothing is sent on it."""


def client(
    timeout_s: float | None,
    connections_max: int = CONNECTIONS_MAX,
    kept_max: int = KEPT_MAX,
    *,
    tls: ssl.SSLContext | None = None,
) -> httpx.AsyncClient:
    """One for an event loop. `timeout_s` None: each request has its own. `tls`: whom to believe, and probing.

    With `tls` connections are probed by the system, so that one whose other end is gone ends while nobody writes.
    """
    import httpx  # noqa: PLC0415 - 3 MB, only where somebody is asked

    limits = httpx.Limits(max_connections=connections_max, max_keepalive_connections=kept_max)
    transport = None
    if tls is not None:
        transport = httpx.AsyncHTTPTransport(verify=tls, trust_env=False, limits=limits, socket_options=_PROBED)
    return httpx.AsyncClient(
        transport=transport,
        trust_env=False,
        follow_redirects=False,
        headers={"accept-encoding": "identity"},
        cookies=_no_cookies(),
        event_hooks={"response": [_stay_here]},
        timeout=timeout_s,
        limits=limits,
    )


def load() -> None:
    """Load what the first client needs now, at the start: it takes longer than a caller's deadline may be."""
    import httpx  # noqa: F401, PLC0415 - as above


class TooLong(Exception):
    """An answer that is longer than is read; says so."""


async def body_of(response: Response, bytes_max: int) -> bytes:
    """All of it, as it was sent; of one that is longer no more is read. Raises `TooLong`."""
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_raw():
        size += len(part)
        if size > bytes_max:
            raise TooLong(f"more than {bytes_max} bytes")
        parts.append(part)
    return b"".join(parts)


def _no_cookies() -> CookieJar:
    from http.cookiejar import CookieJar, DefaultCookiePolicy  # noqa: PLC0415 - as above

    return CookieJar(DefaultCookiePolicy(allowed_domains=()))


async def _stay_here(response: Response) -> None:
    """Before httpx makes a request of it, which it does also where none is followed."""
    response.headers.pop("location", None)


def failures() -> tuple[type[Exception], ...]:
    """What a request of such a client raises where nobody is reached, or speaks HTTP: for an `except` clause."""
    import httpx  # noqa: PLC0415 - as above

    return TimeoutError, httpx.HTTPError, httpx.InvalidURL, UnicodeError


def why_not_reached(error: Exception) -> str:
    """What went wrong between here and a server, in words of ours."""
    import httpx  # noqa: PLC0415 - as above

    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return "no answer in time"
    if isinstance(error, httpx.ConnectError):
        return why_not_connected(error)
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol | UnicodeError):
        return "its address is none"
    return "the connection ended, or it speaks no HTTP"


def why_not_connected(error: BaseException) -> str:
    """By the system's own error, which lies below those of three libraries."""
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, BaseExceptionGroup):
            below = below.exceptions[0]
            continue
        if isinstance(below, socket.gaierror):
            return "its name cannot be resolved"
        if isinstance(below, OSError) and below.errno:
            return os.strerror(below.errno).lower()
        below = below.__cause__ or below.__context__
    return "it cannot be connected to"
