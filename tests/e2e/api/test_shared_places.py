"""What waits has one limit, whichever door it comes by: REST, picks and gRPC take places out of the same.

And only what waits takes them: a question that can be answered at once is, however many wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import httpx
import msgspec
import pytest

from api.access.gates import Gates
from api.rest.limits import RestLimits
from api.server import ServerSettings
from schemas.lookup import LookupQuery
from schemas.rpc.indexer.v1.indexer_pb2 import GetPodScoresRequest
from schemas.rpc.indexer.v1.indexer_pb2_grpc import IndexerServiceStub
from schemas.rpc.kvindexer.v1.kvindexer_pb2 import LookupBatchRequest, LookupRequest, LookupResult
from schemas.rpc.kvindexer.v1.kvindexer_pb2_grpc import KvIndexerStub
from tests.support.callers import bearer, gates
from tests.support.collecting import until
from tests.support.fake_node import FakeNode
from tests.support.rpc import refused
from tests.support.serving import DEADLINE_S, served

PLACES = 5
ONE_CALLER = 4
"""What one caller gets of them: something is left for others."""
OK = (200, "")

Question = dict[str, Any]
TEXT: Question = {"prompt": "t"}
KNOWN: Question = {"prompt": "known"}
PLAIN: Question = {"token_ids": [1]}
EVENTS: Question = {"token_ids": [1], "min_sequence": {"p": 1}, "timeout_ms": 60_000}


class HeldNode(FakeNode):
    """Tokenizes, and learns of events, when it is let. One text it knows."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = 0
        self.may_go_on = asyncio.Event()

    async def tokenized(self, query: LookupQuery) -> LookupQuery:
        await self._wait()
        return await super().tokenized(query)

    def tokenized_before(self, query: LookupQuery) -> LookupQuery | None:
        assert query.text is not None
        known = query.text.prompt == KNOWN["prompt"]
        return msgspec.structs.replace(query, tokens=bytes(4), text=None) if known else None

    async def wait_applied(self, query: LookupQuery, timeout_s: float) -> None:  # noqa: ARG002 - the port
        await self._wait()

    async def _wait(self) -> None:
        self.waiting += 1
        await self.may_go_on.wait()


class Doors:
    """One caller in front of all of them. Each method asks, and gives (200, "") or what it was refused with."""

    def __init__(self, url: str, channel: grpc.aio.Channel, name: str | None) -> None:
        self._url = url
        self._channel = channel
        self._headers = {} if name is None else {"authorization": bearer(name)}
        self._metadata = tuple(self._headers.items())
        self._client = httpx.AsyncClient(base_url=url, timeout=DEADLINE_S, headers=self._headers)
        self.arriving = 0
        self.may_end = asyncio.Event()

    async def close(self) -> None:
        await self._client.aclose()

    async def lookup(self, asked: Question) -> tuple[int, str]:
        return _told(await self._client.post("/v1/lookup", json=asked))

    async def coded(self, asked: Question) -> tuple[int, str]:
        """By the general way."""
        told = {"content-type": "application/json", "content-encoding": "gzip"}
        content = gzip.compress(json.dumps(asked).encode())
        return _told(await self._client.post("/v1/lookup", content=content, headers=told))

    async def batch(self, asked: Question) -> tuple[int, str]:
        (item,) = (await self._client.post("/v1/lookup/batch", json={"items": [asked]})).json()["items"]
        return (item["status"], item["code"]) if "code" in item else OK

    async def pick(self, asked: Question) -> tuple[int, str]:
        return _told(
            await self._client.post("/v1/pick", json={"prompt": asked.get("prompt") or asked.get("token_ids")})
        )

    async def call(self, asked: Question) -> tuple[int, str]:
        return await _outcome(KvIndexerStub(self._channel).Lookup(LookupRequest(**asked), metadata=self._metadata))

    async def stream(self, asked: Question) -> tuple[int, str]:
        call = KvIndexerStub(self._channel).LookupStream(metadata=self._metadata)
        await call.write(LookupRequest(**asked))
        result = await call.read()
        await call.done_writing()
        return _result(result)

    async def calls(self, asked: Question) -> tuple[int, str]:
        """A batch."""
        request = LookupBatchRequest(items=[LookupRequest(**asked)])
        answer = await KvIndexerStub(self._channel).LookupBatch(request, metadata=self._metadata)
        return _result(answer.items[0])

    async def scores(self, asked: Question) -> tuple[int, str]:
        return await _outcome(IndexerServiceStub(self._channel).GetPodScores(GetPodScoresRequest(**asked)))

    async def lookup_in_parts(self) -> tuple[int, str]:
        return await self._in_parts("/v1/lookup", b'{"token_ids":[1]}')

    async def pick_in_parts(self) -> tuple[int, str]:
        return await self._in_parts("/v1/pick", b'{"prompt":[1]}')

    async def _in_parts(self, path: str, body: bytes) -> tuple[int, str]:
        """A body that is still to come: its head is believed, its end waits for `may_end`."""
        host, _, port = self._url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nexpect: 100-continue\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode())
        begin = await reader.readexactly(12)
        if begin.endswith(b"100"):
            self.arriving += 1
            await self.may_end.wait()
            writer.write(body)
            await reader.readuntil(b"\r\n\r\n")
            begin = await reader.readexactly(12)
        rest = await reader.read()
        writer.close()
        status = int(begin[9:])
        return OK if status in {200, 204} else (status, json.loads(rest[rest.index(b"{") :])["code"])


def _told(answer: httpx.Response) -> tuple[int, str]:
    return OK if answer.is_success else (answer.status_code, answer.json()["code"])


def _result(result: LookupResult) -> tuple[int, str]:
    return OK if result.HasField("answer") else (result.problem.status, result.problem.code)


async def _outcome(call: Awaitable[Any]) -> tuple[int, str]:
    try:
        status, code, _ = await refused(call)
    except AssertionError:
        return OK
    return (429 if status is grpc.StatusCode.RESOURCE_EXHAUSTED else 500), code


@contextlib.asynccontextmanager
async def _doors(
    node: FakeNode, limit: str, *names: str | None, known: Gates | None = None
) -> AsyncIterator[list[Doors]]:
    limits = RestLimits(**{limit: PLACES})  # type: ignore[arg-type]  # each is a number
    async with contextlib.AsyncExitStack() as stack:
        settings = ServerSettings(port=0, grpc_port=0, limits=limits)
        url, *_, rpc = await stack.enter_async_context(served(node, settings, gates=known))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(rpc.removeprefix("grpc://")))
        callers = [Doors(url, channel, name) for name in names]
        for each in callers:
            stack.push_async_callback(each.close)
        yield callers


Ask = Callable[[Doors, Question], Coroutine[Any, Any, tuple[int, str]]]
BOTH: list[Ask] = [Doors.lookup, Doors.coded, Doors.batch, Doors.call, Doors.stream, Doors.calls]
WITH_TOKENS: list[Ask] = [*BOTH, Doors.pick]
TEXTS: list[Ask] = [*WITH_TOKENS, Doors.scores]


@pytest.mark.parametrize(
    ("limit", "code", "asked", "doors", "held"),
    [
        *(
            ("texts_waiting", "texts.too_many", TEXT, TEXTS, held)
            for held in (TEXTS[:4], TEXTS[4:], *([door] * ONE_CALLER for door in TEXTS))
        ),
        *(
            ("sequence_waits", "lookups.too_many_waits", EVENTS, BOTH, held)
            for held in (BOTH[:4], BOTH[2:], *([door] * ONE_CALLER for door in BOTH))
        ),
    ],
)
def test_all_doors_share_one_limit(limit: str, code: str, asked: Question, doors: list[Ask], held: list[Ask]) -> None:
    """Whichever doors took its places, who would wait is refused at each, and nobody else is."""

    async def body() -> None:
        node = HeldNode()
        async with _doors(node, limit, None) as (caller,), asyncio.timeout(DEADLINE_S):
            async with asyncio.TaskGroup() as tasks:
                waiting = [tasks.create_task(ask(caller, asked)) for ask in held]
                await until(lambda: node.waiting == ONE_CALLER, "the places taken")
                assert {(429, code)} == {await ask(caller, asked) for ask in doors}
                assert {f"limits.{limit}": len(doors)} == node.limits_reached
                assert {OK} == {await ask(caller, PLAIN) for ask in WITH_TOKENS}
                assert {OK} == {await ask(caller, KNOWN) for ask in TEXTS}
                node.may_go_on.set()
            assert {OK} == {each.result() for each in waiting}
            assert {OK} == {await ask(caller, asked) for ask in doors}
        assert {f"limits.{limit}": len(doors)} == node.limits_reached

    asyncio.run(body())


def test_a_token_has_one_share_at_all_doors(tmp_path: Path) -> None:
    """By whatever protocol it comes; another on the same machine has its own."""

    async def body() -> None:
        node = HeldNode()
        known = gates(tmp_path, ("greedy", ("lookup",), None), ("other", ("lookup",), None))
        async with (
            _doors(node, "texts_waiting", "greedy", "other", known=known) as (greedy, other),
            asyncio.timeout(DEADLINE_S),
        ):
            async with asyncio.TaskGroup() as tasks:
                doors: list[Ask] = [Doors.lookup, Doors.pick, Doors.call, Doors.stream]
                asked = [tasks.create_task(ask(greedy, TEXT)) for ask in doors]
                await until(lambda: node.waiting == ONE_CALLER, "its places")
                assert {(429, "texts.too_many")} == {await ask(greedy, TEXT) for ask in WITH_TOKENS}
                asked.append(tasks.create_task(other.call(TEXT)))
                await until(lambda: node.waiting == PLACES, "the other's")
                node.may_go_on.set()
            assert {OK} == {each.result() for each in asked}

    asyncio.run(body())


def test_bodies_that_arrive_share_one_limit() -> None:
    """Lookups of REST and picks; who waits for anything else has left it, and gRPC counts its messages itself."""

    async def body() -> None:
        node = HeldNode()
        async with _doors(node, "lookups_waiting", None) as (caller,), asyncio.timeout(DEADLINE_S):
            async with asyncio.TaskGroup() as tasks:
                waiting = [tasks.create_task(ask(caller, TEXT)) for ask in TEXTS]
                await until(lambda: node.waiting == len(TEXTS), "those that take no place")
                parts = [Doors.lookup_in_parts, Doors.pick_in_parts]
                arriving = [tasks.create_task(ask(caller)) for ask in parts * 2]
                await until(lambda: caller.arriving == ONE_CALLER, "the places taken")
                general: list[Ask] = [Doors.coded, Doors.pick]
                assert {(429, "lookups.too_many")} == {await ask(caller, PLAIN) for ask in general}
                assert {OK} == {await ask(caller, PLAIN) for ask in BOTH if ask not in general}
                caller.may_end.set()
                node.may_go_on.set()
            assert {OK} == {each.result() for each in [*waiting, *arriving]}

    asyncio.run(body())
