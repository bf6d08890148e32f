"""What a lookup is compared with: the least that a route in the same server process can do.

Bare ASGI, the same body read by the same reader, a constant answer. `GET` parameters: `size` of the answer in bytes.
Only this package mounts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from api.rest.body import BodyReader, CallerGone
from api.rest.front import Front
from api.rest.limits import RestLimits

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

NULL_PATH: Final = "/null"
_SIZE: Final = b"size="


class FrontWithNull(Front):
    """The product's own application, and one more path that is looked at first."""

    def __init__(self, front: Front, limits: RestLimits) -> None:
        super().__init__(front.lookups, front)
        self._front, self.answers = front, front.answers
        self._bodies = BodyReader(limits)
        self._answers: dict[bytes, bytes] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection scope."""
        if scope["type"] != "http" or scope["path"] != NULL_PATH:
            await self._front(scope, receive, send)
            return
        try:
            await self._bodies.read(receive, dict(scope["headers"]))
        except CallerGone:
            return
        content = self._answer(scope["query_string"])
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(content))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    def _answer(self, query_string: bytes) -> bytes:
        content = self._answers.get(query_string)
        if content is None:
            content = self._answers[query_string] = b"0" * int(query_string.removeprefix(_SIZE))
        return content
