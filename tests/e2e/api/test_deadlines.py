"""Deadlines at every door that takes texts: answered in time with what is known, beside an engine that never does."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from api.server import ServerSettings
from indexer.clock import SystemClock
from indexer.model import Descriptor
from indexer.node import Node
from indexer.settings import Settings
from indexer.settings.sections import Models, TokenizerEntry
from tests.support.serving import DEADLINE_S, served
from tests.support.tokenize_engine import TokenizeEngine, engine, never, well

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

TEXT = {"model": "m", "prompt": "What is the capital of France?"}
SLOW_MS = 86_400_000


@contextlib.asynccontextmanager
async def running(made: TokenizeEngine) -> AsyncIterator[httpx.AsyncClient]:
    """A service whose one model is tokenized by that engine; callers have all the time they need."""
    source = Descriptor(pod="a", endpoint="tcp://127.0.0.1:1", model="m", address=f"127.0.0.1:{made.port}")
    models = Models(tokenizers={"m": TokenizerEntry(engine=made.url)})
    stop = asyncio.Event()
    node = Node(Settings(models=models, sources=(source,)), SystemClock())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(node.run(stop))
        async with (
            served(node, ServerSettings(port=0, grpc_port=None), stop) as addresses,
            httpx.AsyncClient(base_url=addresses[0], timeout=DEADLINE_S) as client,
        ):
            yield client


def _with(
    reply: Callable[..., Awaitable[None]], ask: Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]
) -> httpx.Response:
    async def scenario() -> httpx.Response:
        async with engine(reply) as made, running(made) as client:
            return await ask(client)

    return asyncio.run(scenario())


_HEADERS: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"timeout_ms": 30}, {}),
    ({"timeout_ms": 0}, {}),
    ({"timeout_ms": SLOW_MS}, {"x-kvindexer-timeout-ms": "30"}),
    ({}, {"x-envoy-expected-rq-timeout-ms": "30"}),
    ({"timeout_ms": 30, "min_sequence": {"a": 10**9}}, {}),
]


@pytest.mark.parametrize(("options", "headers"), _HEADERS)
def test_a_lookup_says_that_its_time_was_over(options: dict[str, Any], headers: dict[str, str]) -> None:
    """200: nothing is wrong with it."""
    answer = _with(never, lambda client: client.post("/v1/lookup", json=TEXT | options, headers=headers))

    assert 200 == answer.status_code
    assert ("no_signal", "deadline") == (answer.json()["state"], answer.json()["reason"])


@pytest.mark.parametrize("timeout_ms", [0, 1, 30])
def test_a_sequence_is_not_waited_for_longer(timeout_ms: int) -> None:
    """With ids: what is known is told, and which pod is behind."""
    body = {"token_ids": [1], "min_sequence": {"a": 10**9}, "timeout_ms": timeout_ms}
    answer = _with(never, lambda client: client.post("/v1/lookup", json=body))

    assert (200, "deadline") == (answer.status_code, answer.json()["pods"][0]["reason"])


@pytest.mark.parametrize("name", ["x-kvindexer-timeout-ms", "x-envoy-expected-rq-timeout-ms"])
@pytest.mark.parametrize(("path", "status"), [("/v1/pick", 204), ("/v1/pick/v1/completions", 200)])
def test_a_pick_has_no_opinion_then(name: str, path: str, status: int) -> None:
    """The gateway balances by itself."""
    answer = _with(never, lambda client: client.post(path, json=TEXT, headers={name: "30"}))

    assert (status, "no_signal", b"") == (answer.status_code, answer.headers["x-kvindexer-state"], answer.content)


def test_in_a_batch_only_what_is_slow_is_late() -> None:
    """The others are answered as ever, in the same answer."""
    items = [TEXT, {"token_ids": [1]}, TEXT | {"timeout_ms": 10}]
    headers = {"x-kvindexer-timeout-ms": "40"}
    answer = _with(never, lambda client: client.post("/v1/lookup/batch", json={"items": items}, headers=headers))

    assert ["deadline", "no_events_yet", "deadline"] == [item["reason"] for item in answer.json()["items"]]


def test_a_text_that_is_read_in_time_is_asked_for() -> None:
    """The same service, an engine that answers."""
    answer = _with(well, lambda client: client.post("/v1/lookup", json=TEXT | {"timeout_ms": SLOW_MS}))

    assert len(TEXT["prompt"]) == answer.json()["prompt_tokens"]
    assert "engine" == answer.json()["tokenizer"]["source"]
