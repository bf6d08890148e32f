"""Routing, methods and the error path for a process that is to be small: Starlette's router without its application.

That brings a page for debugging, and HTML's entities for it. A test compares answers with FastAPI's.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Router
from starlette.types import Message, Receive, Scope, Send

Handlers = Mapping[int | type[Exception], Callable[[Request, Any], Coroutine[Any, Any, Response]]]
"""What answers where a route raises. That of `Exception` is for all that no other is for."""


class SlimApplication:
    """As an application of Starlette's: a fault is answered, where nothing was yet, and raised once more."""

    def __init__(self, routes: Sequence[BaseRoute], handlers: Handlers) -> None:
        self._fault = handlers[Exception]
        others = {kind: handler for kind, handler in handlers.items() if kind is not Exception}
        self._app = ExceptionMiddleware(Router(routes, redirect_slashes=False), others)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        scope["app"] = self  # without one the router answers by itself what it has no route for
        answered = False

        async def noting(message: Message) -> None:
            nonlocal answered
            answered = True
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception as error:
            if not answered:
                response = await self._fault(Request(scope), error)
                await response(scope, receive, send)
            raise
