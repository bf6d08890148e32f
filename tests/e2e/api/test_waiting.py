"""Lookups with `min_sequence`, over real sockets: woken by the event, ended by caller, deadline or stop."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any

from api.rest.limits import RestLimits
from api.server import ServerSettings
from indexer.clock import SystemClock
from indexer.model import RawBatch
from indexer.node import Node
from indexer.settings import Settings
from tests.support.core_events import payload
from tests.support.serving import DEADLINE_S, served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LONG_MS = 86_400_000
ALL_DAY = {"token_ids": [1], "min_sequence": {"a": 10**9}, "timeout_ms": LONG_MS}
SMALL = RestLimits(lookups_waiting=2, sequence_waits=3)


class Asked:
    """One question on a connection of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def answer(self) -> tuple[int, dict[str, Any]]:
        """Status and document."""
        async with asyncio.timeout(DEADLINE_S):
            head = await self._reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
            body = await self._reader.readexactly(length)
        self.hang_up()
        return int(head[9:12]), json.loads(body)

    def hang_up(self) -> None:
        """As a caller that has lost patience."""
        self._writer.close()


class Service:
    """A node with one pod, `a`, and its face."""

    def __init__(self, node: Node, port: int) -> None:
        self._port = port
        sink = node.source_for_topic("a", None, 0)
        assert sink is not None
        self._sink, self._next = sink, 0

    async def ask(self, **question: object) -> Asked:
        """Send it; the answer may take its time."""
        body = json.dumps(question).encode()
        head = f"POST /v1/lookup HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(head.encode() + body)
        return Asked(reader, writer)

    async def status(self, **question: object) -> int:
        """Of its answer."""
        return (await (await self.ask(**question)).answer())[0]

    def say(self) -> None:
        """The engine's next batch."""
        self._sink.apply(RawBatch(b"", self._next, payload()))
        self._next += 1


@contextlib.asynccontextmanager
async def running(limits: RestLimits = SMALL, stop: asyncio.Event | None = None) -> AsyncIterator[Service]:
    """The service until the block ends, or `stop` is set inside it."""
    stop = stop or asyncio.Event()
    node = Node(Settings(), SystemClock())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(node.run(stop))
        async with served(node, ServerSettings(port=0, limits=limits), stop) as addresses:
            yield Service(node, int(addresses[0].rpartition(":")[2]))


async def _until_full(service: Service) -> None:
    """Fill the waits up: each is told apart from a refused one by not being answered."""
    async with asyncio.timeout(DEADLINE_S):
        while await service.status(token_ids=[1], min_sequence={"a": 10**9}, timeout_ms=0) != 429:
            pass


def test_the_batch_that_is_waited_for_brings_the_answer() -> None:
    """Not a clock: the deadline is a day away."""

    async def scenario() -> dict[str, Any]:
        async with running() as service:
            asked = await service.ask(token_ids=[1], min_sequence={"a": 1}, timeout_ms=LONG_MS)
            service.say()
            assert 200 == await service.status(token_ids=[1])
            service.say()
            return (await asked.answer())[1]

    assert [("a", 1)] == [(entry["pod"], entry["sequence"]) for entry in asyncio.run(scenario())["pods"]]


def test_waits_have_a_limit_of_their_own() -> None:
    """Beyond it they are refused; plain lookups are not, however many wait."""

    async def scenario() -> tuple[tuple[int, dict[str, Any]], int]:
        async with running() as service:
            waiting = [await service.ask(**ALL_DAY) for _ in range(3)]
            await _until_full(service)
            refused, plain = await (await service.ask(**ALL_DAY)).answer(), await service.status(token_ids=[1])
            for each in waiting:
                each.hang_up()
            return refused, plain

    (status, problem), plain = asyncio.run(scenario())
    assert (429, "lookups.too_many_waits", 200) == (status, problem["code"], plain)


def test_waits_are_limited_in_bytes_of_prompts() -> None:
    """They hold them all the time."""

    async def scenario() -> list[int]:
        async with running(RestLimits(sequence_wait_bytes=100)) as service:
            wait = {"min_sequence": {"a": 10**9}, "timeout_ms": 0}
            hashes = {"block_hashes": [1] * 3, "block_size": 16}
            prompts = ({"token_ids": [1] * 26}, {"token_ids": []}, hashes)
            return [await service.status(**wait, **prompt) for prompt in prompts]

    assert [429, 200, 429] == asyncio.run(scenario())


def test_a_caller_that_hangs_up_waits_no_longer() -> None:
    """Its place is free, whatever deadline it gave."""

    async def scenario() -> int:
        async with running() as service:
            waiting = [await service.ask(**ALL_DAY) for _ in range(3)]
            await _until_full(service)
            for each in waiting:
                each.hang_up()
            async with asyncio.timeout(DEADLINE_S):
                while (status := await service.status(**{**ALL_DAY, "timeout_ms": 0})) == 429:
                    pass
            return status

    assert 200 == asyncio.run(scenario())


def test_at_the_stop_everyone_who_waits_is_answered() -> None:
    """With what is known, and that the sequence was not reached."""

    async def scenario() -> list[tuple[int, dict[str, Any]]]:
        stop = asyncio.Event()
        async with running(stop=stop) as service:
            waiting = [await service.ask(**ALL_DAY) for _ in range(3)]
            await _until_full(service)
            stop.set()
            return [await each.answer() for each in waiting]

    answers = asyncio.run(scenario())
    assert [200] * 3 == [status for status, _ in answers]
    assert [["deadline"]] * 3 == [[entry["reason"] for entry in answer["pods"]] for _, answer in answers]


def test_a_pod_that_nobody_has_is_waited_for_and_named() -> None:
    """It may be about to appear; until it does, what was demanded is not met."""

    async def scenario() -> dict[str, Any]:
        async with running() as service:
            service.say()
            asked = await service.ask(token_ids=[1], min_sequence={"nobody": 1, "a": 0}, timeout_ms=0)
            return (await asked.answer())[1]

    answer = asyncio.run(scenario())
    assert "exact" != answer["state"]
    assert ["nobody"] == [entry["pod"] for entry in answer["pods"] if entry["reason"] == "deadline"]
