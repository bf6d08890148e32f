"""The application of a process that is to be small answers as the other does."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from api.rest.app import create_app
from tests.support.fake_node import FakeNode

REQUESTS = [
    ("GET", "/healthz"),
    ("HEAD", "/healthz"),
    ("GET", "/healthz/"),
    ("POST", "/healthz"),
    ("OPTIONS", "/v1/sources"),
    ("GET", "/readyz"),
    ("GET", "/nothing/here"),
    ("GET", "/docs"),
    ("GET", "/openapi.json"),
    ("GET", "/v1/sources"),
    ("GET", "/v1/sources?stat=live"),
    ("GET", "/v1/lookup"),
    ("DELETE", "/v1/sources/http%3A%2F%2Fpod%3A8000%2F"),
    ("PUT", "/v1/sources"),
    ("POST", "/v1/hash"),
    ("POST", "/v1/pick"),
    ("PATCH", "/v1/pick/v1/completions"),
    ("GET", "/workers"),
    ("GET", "/metrics"),
]


def answers(method: str, path: str, body: bytes) -> list[tuple[int, list[tuple[str, str]], bytes]]:
    """Status, headers and body, of either application."""

    async def ask(*, slim: bool) -> tuple[int, list[tuple[str, str]], bytes]:
        app = httpx.ASGITransport(create_app(FakeNode(), slim=slim), raise_app_exceptions=False)
        headers = {"content-type": "application/json", "x-request-id": "r"}
        async with httpx.AsyncClient(transport=app, base_url="http://index") as client:
            answer = await client.request(method, path, content=body, headers=headers)
        return answer.status_code, answer.headers.multi_items(), answer.content

    return [asyncio.run(ask(slim=slim)) for slim in (False, True)]


@pytest.mark.parametrize("body", [b"", b"{", b'{"token_ids": [1, 2], "block_size": 2}'])
@pytest.mark.parametrize(("method", "path"), REQUESTS)
def test_both_answer_alike(method: str, path: str, body: bytes) -> None:
    """Whatever is asked: answers, refusals, what no path or method is, and faults of ours."""
    whole, slim = answers(method, path, body)

    assert whole == slim
