"""A token that is taken away while a stream of its caller stands."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc

from api.access.tokens import TokenAccess
from indexer.model import Descriptor
from schemas.rpc.kvindexer.v1.kvindexer_pb2 import LookupRequest, WatchSourcesRequest
from tests.support.callers import bearer, gates, write_tokens
from tests.support.fake_node import FakeNode
from tests.support.rpc import DEADLINE_S, refused, rpc_client

SHOWN = (("authorization", bearer("asks")),)


def test_a_stream_of_lookups_ends_with_its_token(tmp_path: Path) -> None:
    """At the next question: the same as on a connection of REST."""

    async def ask() -> None:
        access = gates(tmp_path, ("asks", ("lookup",), None)).access
        assert isinstance(access, TokenAccess)
        node = FakeNode()
        async with asyncio.timeout(DEADLINE_S), rpc_client(node, access=access) as stub:
            stream = stub.LookupStream(metadata=SHOWN)
            await stream.write(LookupRequest(token_ids=[1]))
            assert (await stream.read()).answer.pods
            write_tokens(tmp_path / "tokens.json", ("other", ("lookup",), None))
            access.look()
            await stream.write(LookupRequest(token_ids=[1]))
            assert grpc.StatusCode.UNAUTHENTICATED is (await refused(stream.read()))[0]
        assert 1 == len(node.queries)

    asyncio.run(ask())


def test_who_watches_learns_nothing_more(tmp_path: Path) -> None:
    """Not even what happens next; also where the token is bound to another tenant now."""

    async def watch(*left: tuple[str, tuple[str, ...], str | None]) -> None:
        access = gates(tmp_path, ("asks", ("lookup",), None)).access
        assert isinstance(access, TokenAccess)
        node = FakeNode()
        await node.add_source(Descriptor(pod="a", endpoint="tcp://10.0.0.1:1", origin="api"))
        async with asyncio.timeout(DEADLINE_S), rpc_client(node, access=access) as stub:
            stream = stub.WatchSources(WatchSourcesRequest(), metadata=SHOWN)
            assert "a" == (await stream.read()).source.pod
            await stream.read()
            write_tokens(tmp_path / "tokens.json", *left)  # type: ignore[arg-type]
            access.look()
            await node.add_source(Descriptor(pod="b", endpoint="tcp://10.0.0.1:2", origin="api"))
            assert grpc.StatusCode.UNAUTHENTICATED is (await refused(stream.read()))[0]

    asyncio.run(watch())
    asyncio.run(watch(("asks", ("lookup",), "x")))
