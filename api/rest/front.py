"""The outermost ASGI application: one comparison sends lookups the short way, everything else to the app.

Promise: whatever happens inside, the caller gets a well-formed answer or, being gone, none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from api.faces.query import QueryRoute
from api.problems import log_fault
from api.rest import hot
from api.rest.heads import AnswerNow

SOURCES: Final = "/v1/sources/"


class Front:
    """Dispatches, and keeps faults of ours from the server's log, which would print their messages."""

    def __init__(self, lookups: hot.LookupRoute, app: ASGIApp, queries: Mapping[str, QueryRoute] | None = None) -> None:
        self.lookups = lookups
        self.answers: dict[bytes, AnswerNow] = {
            hot.PATH.encode(): lookups.answer_now,
            **{path.encode(): route.answer_now for path, route in (queries or {}).items()},
        }
        """By path. For a server that has a lane for them."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif scope["path"] == hot.PATH:
            await self.lookups(scope, receive, send)
        else:
            try:
                await self._app(_by_raw_path(scope), receive, send)
            except Exception as error:  # noqa: BLE001 - the app has answered 500 and raises it once more
                log_fault(error)


def _by_raw_path(scope: Scope) -> Scope:
    """Route by the path as it was sent: a pod's name may hold a `/`, which the caller percent-encodes."""
    raw = scope.get("raw_path")
    if raw is None or not scope["path"].startswith(SOURCES):
        return scope
    return {**scope, "path": raw.decode("ascii", "replace")}
