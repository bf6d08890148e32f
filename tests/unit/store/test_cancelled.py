"""Whoever is told to end while a call is under way ends, whatever the library makes of it. Nobody is told twice.

`asyncio.wait_for` of Python 3.11, in which the library writes to sentinels, returns what it waited for when that came
in the same moment, and the cancellation is gone.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from indexer.clock import SystemClock
from indexer.store import client as client_module
from indexer.store.address import parse
from indexer.store.client import Client, ClientOptions
from indexer.store.failures import StoreFailure
from indexer.store.library import exceptions as theirs

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class _Keeps:
    """A connection in which a cancellation is lost: it goes on, and ends as it is told."""

    def __init__(self, end: Callable[[], object]) -> None:
        self._end = end
        self.asked = asyncio.Event()

    async def execute_command(self, *_: object, **__: object) -> object:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return self._end()


def _replies() -> bytes:
    return b"1"


def _fails() -> bytes:
    raise theirs.ConnectionError


def _is_cancelled() -> bytes:
    raise asyncio.CancelledError


def _client(
    monkeypatch: pytest.MonkeyPatch, end: Callable[[], object], *, timeout_s: float = 30.0
) -> tuple[Client, _Keeps]:
    connection = _Keeps(end)
    monkeypatch.setattr(client_module, "connect", lambda *_: connection)
    options = ClientOptions(timeout_s=timeout_s, retries=0)
    return Client(parse("redis://127.0.0.1:1"), options, SystemClock(), random.Random(1)), connection


async def _outcome(work: Coroutine[None, None, None]) -> Exception | None:
    try:
        await work
    except Exception as error:  # noqa: BLE001 - it is looked at
        return error
    return None


@pytest.mark.parametrize("end", [_replies, _fails])
def test_who_is_told_to_end_ends(monkeypatch: pytest.MonkeyPatch, end: Callable[[], object]) -> None:
    """Also where the call comes to something."""

    async def body() -> None:
        client, connection = _client(monkeypatch, end)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(client.string(b"k"))
            await connection.asked.wait()
            task.cancel()
        assert task.cancelled()

    asyncio.run(body())


@pytest.mark.parametrize("end", [_replies, _fails])
def test_a_time_that_is_over_is_over(monkeypatch: pytest.MonkeyPatch, end: Callable[[], object]) -> None:
    """Of whoever calls: it is a cancellation, too."""

    async def body() -> None:
        client, connection = _client(monkeypatch, end)
        limit = asyncio.timeout(30.0)

        async def asked() -> None:
            async with limit:
                await client.string(b"k")

        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(_outcome(asked()))
            await connection.asked.wait()
            limit.reschedule(0.0)
        assert isinstance(task.result(), TimeoutError)

    asyncio.run(body())


def test_a_call_that_takes_too_long_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own time is no cancellation of whoever calls."""

    async def body() -> None:
        client, _ = _client(monkeypatch, _is_cancelled, timeout_s=0.01)
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(StoreFailure) as caught:
            await client.string(b"k")
        assert ("timeout", 0) == (caught.value.kind, task.cancelling())

    asyncio.run(body())
