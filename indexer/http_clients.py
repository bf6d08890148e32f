"""[I/O] HTTP clients for servers that others run: nothing that one answers steers the client.

Promise: no redirect is followed, nor looked at, as a place that is none raises what no caller expects; no cookie is
kept, of which there could be any number; no proxy of the environment is used.
"""

from __future__ import annotations

from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Final

import httpx

if TYPE_CHECKING:
    from httpx import Response

_LIMITS: Final = httpx.Limits(max_connections=100, max_keepalive_connections=20)
"""Of connections, where nobody says otherwise."""


def client(timeout_s: float | None, limits: httpx.Limits = _LIMITS) -> httpx.AsyncClient:
    """One for an event loop. `timeout_s` None: each request has its own."""
    return httpx.AsyncClient(
        trust_env=False,
        follow_redirects=False,
        cookies=_no_cookies(),
        event_hooks={"response": [_stay_here]},
        timeout=timeout_s,
        limits=limits,
    )


def _no_cookies() -> CookieJar:
    return CookieJar(DefaultCookiePolicy(allowed_domains=()))


async def _stay_here(response: Response) -> None:
    """Before httpx makes a request of it, which it does also where none is followed."""
    response.headers.pop("location", None)
