"""One method of one path."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from api.access.caller import Scope

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Door(NamedTuple):
    """What its callers must be allowed to, and who answers. None: nobody is asked."""

    scope: Scope | None
    handler: Handler
