"""What the inference extension's protocol and its conformance tests ask of a picker, as far as no cluster is needed.

Named after these; what they ask of a gateway is in tests/e2e/gateways, with a real Envoy. Engines here never spoke:
what is asked for holds without a word from them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Final

import pytest

from indexer.clock import SystemClock
from indexer.node import Node
from indexer.settings import load
from schemas.rpc.envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse
from tests.support.ext_proc import SERVED, Stream, destination_of, gateway, handed_back

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import grpc

PODS: Final = ("10.0.0.1:3000", "10.0.0.2:3000", "10.0.0.3:3000")
PORTS: Final = ("10.0.0.1:3000", "10.0.0.1:3002", "10.0.0.1:3004")
"""Data-parallel ranks of one pod, each at a port of its own."""
PROMPT: Final = json.dumps({"model": "conformance-fake-model", "prompt": "Write as if you were a critic"}).encode()
NAMESPACE, KEY = "envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset"


@contextlib.asynccontextmanager
async def _pool(*pods: str) -> AsyncIterator[tuple[Node, grpc.aio.Channel]]:
    """A picker for these."""
    flags = [f"{pod}=tcp://127.0.0.1:{9_000 + i},model=m" for i, pod in enumerate(pods)]
    node, stop = Node(load(environment={}, source_flags=flags), SystemClock()), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(node.run(stop))
        async with gateway(node) as channel:
            yield node, channel
        stop.set()


async def _told(channel: grpc.aio.Channel, subset: object = None) -> ProcessingResponse | None:
    """What a request is answered with that is streamed both ways."""
    stream = Stream(channel)
    await stream.headers(metadata=None if subset is None else {NAMESPACE: {KEY: subset}})
    await stream.body(PROMPT)
    return await stream.said()


@pytest.mark.parametrize("chosen", [PODS[2:], PODS[:2], PODS])
async def test_gateway_following_epp_routing(chosen: tuple[str, ...]) -> None:
    """One designated pod, two, or all: traffic is told to go there and nowhere else, and reaches each of them."""
    async with _pool(*PODS) as (_, channel):
        first: set[str] = set()
        while first != {*chosen}:
            told = destination_of(await _told(channel, [*chosen]))
            assert told is not None
            assert {*chosen} == {*told}
            first.add(told[0])


async def test_gateway_following_epp_routing_dp() -> None:
    """Each port of one address is an endpoint of its own."""
    async with _pool(*PORTS) as (_, channel):
        for port in PORTS:
            assert [port] == destination_of(await _told(channel, [port]))


@pytest.mark.parametrize(("subset", "told"), [([PODS[1]], [PODS[1]]), (",".join(PODS[1:2]), [PODS[1]])])
async def test_endpoint_subset(subset: object, told: list[str]) -> None:
    """If the key is set, only endpoints of the list are selected, whatever form it has."""
    async with _pool(*PODS) as (_, channel):
        assert told == destination_of(await _told(channel, subset))


@pytest.mark.parametrize("subset", [[], "", ["10.9.9.9:3000"], ["10.0.0.1:4000"]])
async def test_endpoint_subset_without_an_eligible_endpoint(subset: object) -> None:
    """503 as an immediate response; an address at another port is another endpoint."""
    async with _pool(*PODS) as (node, channel):
        node._was_ready = True
        answer = await _told(channel, subset)
    assert answer is not None
    assert 503 == answer.immediate_response.status.code


async def test_no_ready_endpoints() -> None:
    """503 as well, once it is known that there are none."""
    async with _pool() as (_, channel):
        answer = await _told(channel)
    assert answer is not None
    assert 503 == answer.immediate_response.status.code


async def test_destination_endpoint() -> None:
    """The same value in header and metadata: endpoints with commas between them, the first to be used first."""
    async with _pool(*PODS) as (_, channel):
        told = destination_of(await _told(channel))
    assert told is not None
    assert {*PODS} == {*told}


async def test_gateway_destination_endpoint_served() -> None:
    """The picker learns who served, and passes the response on."""
    async with _pool(*PODS) as (node, channel):
        stream = Stream(channel)
        await stream.headers()
        await stream.body(PROMPT)
        told = destination_of(await stream.said())
        assert told is not None
        await handed_back(stream)
        await stream.answered(metadata={"envoy.lb": {SERVED: told[1]}})
        answer = await stream.said()
        assert answer is not None
        assert "response_headers" == answer.WhichOneof("response")
        await stream.ended()
        assert {"fallback": 1} == node.telemetry.served
