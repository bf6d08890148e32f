"""`limits.lookups_waiting` is one limit: lookups of REST, picks and gRPC take places out of the same."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from api.access.gates import Gates
from api.rest.limits import RestLimits
from api.server import ServerSettings
from schemas.lookup import LookupQuery
from schemas.rpc.indexer.v1.indexer_pb2 import GetPodScoresRequest
from schemas.rpc.indexer.v1.indexer_pb2_grpc import IndexerServiceStub
from schemas.rpc.kvindexer.v1.kvindexer_pb2 import LookupRequest, LookupResult
from schemas.rpc.kvindexer.v1.kvindexer_pb2_grpc import KvIndexerStub
from tests.support.callers import bearer, gates
from tests.support.collecting import until
from tests.support.fake_node import FakeNode
from tests.support.rpc import refused
from tests.support.serving import DEADLINE_S, served

PLACES = 5
ONE_CALLER = 4
"""What one caller gets of them: something is left for others."""
TEXT = LookupRequest(prompt="t")
REFUSED = (429, "lookups.too_many")


class HeldNode(FakeNode):
    """Tokenizes when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = 0
        self.may_go_on = asyncio.Event()

    async def tokenized(self, query: LookupQuery) -> LookupQuery:
        self.waiting += 1
        await self.may_go_on.wait()
        return await super().tokenized(query)


class Doors:
    """One caller in front of all of them. Each method asks, and gives (200, "") or what it was refused with."""

    def __init__(self, addresses: list[str], channel: grpc.aio.Channel, name: str | None) -> None:
        self.url = addresses[0]
        self._channel = channel
        self._headers = {} if name is None else {"authorization": bearer(name)}
        self.may_end = asyncio.Event()
        self.arriving = 0
        self._client = httpx.AsyncClient(base_url=self.url, timeout=DEADLINE_S, headers=self._headers)

    async def close(self) -> None:
        await self._client.aclose()

    async def lookup(self) -> tuple[int, str]:
        """A body that is still to come: its head is believed, its end waits for `may_end`."""
        host, _, port = self.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        told = "".join(f"{name}: {value}\r\n" for name, value in self._headers.items())
        head = f"POST /v1/lookup HTTP/1.1\r\nhost: x\r\n{told}content-type: application/json\r\n"
        writer.write(f"{head}expect: 100-continue\r\ncontent-length: 17\r\nconnection: close\r\n\r\n".encode())
        begin = await reader.readexactly(12)
        if begin.endswith(b"100"):
            self.arriving += 1
            await self.may_end.wait()
            writer.write(b'{"token_ids":[1]}')
            await reader.readuntil(b"\r\n\r\n")
            begin = await reader.readexactly(12)
        rest = await reader.read()
        writer.close()
        return int(begin[9:]), _code(rest)

    async def pick(self) -> tuple[int, str]:
        answer = await self._client.post("/v1/pick", json={"prompt": "t"})
        return (200, "") if answer.is_success else (answer.status_code, answer.json()["code"])

    async def call(self) -> tuple[int, str]:
        return await _outcome(KvIndexerStub(self._channel).Lookup(TEXT, metadata=tuple(self._headers.items())))

    async def stream(self) -> tuple[int, str]:
        call = KvIndexerStub(self._channel).LookupStream(metadata=tuple(self._headers.items()))
        await call.write(TEXT)
        result: LookupResult = await call.read()
        await call.done_writing()
        return (200, "") if result.HasField("answer") else (429, result.problem.code)

    async def scores(self) -> tuple[int, str]:
        return await _outcome(IndexerServiceStub(self._channel).GetPodScores(GetPodScoresRequest(prompt="t")))


def _code(answer: bytes) -> str:
    return next((code for code in ("lookups.too_many",) if f'"code":"{code}"'.encode() in answer), "")


async def _outcome(call: Awaitable[Any]) -> tuple[int, str]:
    try:
        status, code, _ = await refused(call)
    except AssertionError:
        return 200, ""
    return (429 if status is grpc.StatusCode.RESOURCE_EXHAUSTED else 500), code


@contextlib.asynccontextmanager
async def _doors(node: FakeNode, *names: str | None, known: Gates | None = None) -> AsyncIterator[list[Doors]]:
    settings = ServerSettings(port=0, grpc_port=0, limits=RestLimits(lookups_waiting=PLACES))
    async with contextlib.AsyncExitStack() as stack:
        addresses = list(await stack.enter_async_context(served(node, settings, gates=known)))
        channel = grpc.aio.insecure_channel(addresses[-1].removeprefix("grpc://"))
        await stack.enter_async_context(channel)
        callers = [Doors(addresses, channel, name) for name in names]
        for each in callers:
            stack.push_async_callback(each.close)
        yield callers


Ask = Callable[[Doors], Coroutine[Any, Any, tuple[int, str]]]
WITH_TOKENS: list[Ask] = [Doors.lookup, Doors.pick, Doors.call, Doors.stream]
ALL: list[Ask] = [*WITH_TOKENS, Doors.scores]


@pytest.mark.parametrize("held", [ALL[:4], ALL[1:], [Doors.call] * 4, [Doors.pick] * 4, [Doors.lookup] * 4])
def test_all_doors_share_one_limit(held: list[Ask]) -> None:
    """Whichever doors took its places, the next is refused at each; when they are free, none is."""

    async def body() -> None:
        node = HeldNode()
        async with _doors(node, None) as (caller,), asyncio.timeout(DEADLINE_S):
            async with asyncio.TaskGroup() as tasks:
                asked = [tasks.create_task(ask(caller)) for ask in held]
                await until(lambda: node.waiting + caller.arriving == ONE_CALLER, "the places taken")
                assert {REFUSED} == {await ask(caller) for ask in ALL}
                assert {"limits.lookups_waiting": len(ALL)} == node.limits_reached
                node.may_go_on.set()
                caller.may_end.set()
            assert {(200, "")} == {each.result() for each in asked}
            assert {(200, "")} == {await ask(caller) for ask in ALL}

    asyncio.run(body())


def test_a_token_has_one_share_at_all_doors(tmp_path: Path) -> None:
    """By whatever protocol it comes; another on the same machine has its own."""

    async def body() -> None:
        node = HeldNode()
        known = gates(tmp_path, ("greedy", ("lookup",), None), ("other", ("lookup",), None))
        async with _doors(node, "greedy", "other", known=known) as (greedy, other), asyncio.timeout(DEADLINE_S):
            async with asyncio.TaskGroup() as tasks:
                asked = [tasks.create_task(ask(greedy)) for ask in WITH_TOKENS]
                await until(lambda: node.waiting + greedy.arriving == ONE_CALLER, "its places")
                assert {REFUSED} == {await ask(greedy) for ask in WITH_TOKENS}
                asked.append(tasks.create_task(other.call()))
                await until(lambda: node.waiting + greedy.arriving == PLACES, "the other's")
                node.may_go_on.set()
                greedy.may_end.set()
            assert {(200, "")} == {each.result() for each in asked}

    asyncio.run(body())
