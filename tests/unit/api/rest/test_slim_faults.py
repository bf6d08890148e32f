"""A fault inside the application of a process that is to be small."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from starlette.responses import Response
from starlette.routing import Route

from api.rest.slim import SlimApplication

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Message


class _Broken(Response):
    """It begins to answer, and fails."""

    async def __call__(self, scope: object, receive: object, send: object) -> None:  # noqa: ARG002 - of the base
        await send({"type": "http.response.start", "status": 200, "headers": []})  # type: ignore[operator]
        raise ZeroDivisionError


async def _at_once(_: Request) -> Response:
    raise ZeroDivisionError


async def _midway(_: Request) -> Response:
    return _Broken()


async def _refuse(_request: Request, error: Exception) -> Response:
    return Response(type(error).__name__, status_code=500)


@pytest.mark.parametrize(("path", "statuses"), [("/at-once", [500]), ("/midway", [200])])
def test_it_is_answered_unless_an_answer_has_begun_and_raised_once_more(path: str, statuses: list[int]) -> None:
    """As Starlette's own application does: whoever serves logs it."""
    app = SlimApplication([Route("/at-once", _at_once), Route("/midway", _midway)], {Exception: _refuse})
    said: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        said.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "root_path": ""}
    with pytest.raises(ZeroDivisionError):
        asyncio.run(app({**scope, "query_string": b"", "headers": []}, receive, send))

    assert statuses == [each["status"] for each in said if each["type"] == "http.response.start"]
