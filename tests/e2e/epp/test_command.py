"""`kvindexer serve` with the role `epp` from outside: engines speak, a gateway asks, and tells what came of it."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from typing import TYPE_CHECKING, Final

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from api.demo.engine import EngineSimulator
from api.epp.server import LIVENESS, READINESS, SERVICE
from tests.support.core_events import BLOCK, payload, stored
from tests.support.core_service import RunningService, applied
from tests.support.ext_proc import (
    BUFFERED,
    DEADLINE_S,
    DUPLEX,
    NONE,
    SERVED,
    Stream,
    destination_of,
    handed_back,
    piece_of,
)
from tests.support.moved import PICKED, check_moved

if TYPE_CHECKING:
    from collections.abc import Iterator

PODS: Final = ("127.0.0.1:8101", "127.0.0.1:8102", "127.0.0.1:8103")
BLOCKS: Final = 10


def _prompt(engine: int) -> list[int]:
    """Which that engine alone holds."""
    return [1_000 * (engine + 1) + i for i in range(BLOCKS * BLOCK)]


class Fleet:
    """Three engines that hold a prompt each, of two models, and the service that knows."""

    def __init__(self) -> None:
        self.engines = [EngineSimulator() for _ in PODS]
        for engine in self.engines:
            engine.start()
        models = ("m", "m", "n")
        flags = [
            f"vllm-{i}={engine.endpoint},model={models[i]},address={PODS[i]}" for i, engine in enumerate(self.engines)
        ]
        self.service = RunningService(flags, roles="collect,lookup,epp", server__epp_port="0", epp__reads_usage="true")
        for i, engine in enumerate(self.engines):
            engine.publish(payload(stored(range(1, BLOCKS + 1), _prompt(i))))
        for i in range(len(PODS)):
            self.service.wait_for(lambda i=i: applied(self.service, f"vllm-{i}", 0), "the engines to be heard")  # type: ignore[misc]
        found = re.search(r"epp://([0-9.:]+)", self.service.banner)
        assert found is not None, self.service.banner
        self.address = found[1]


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    """One for all tests here."""
    made = Fleet()
    with made.service:
        yield made
    for engine in made.engines:
        engine.close()


async def _picked(
    channel: grpc.aio.Channel, body: dict[str, object], subset: object = None, mode: int = BUFFERED
) -> tuple[Stream, list[str] | None]:
    """A request that is on its way."""
    stream = Stream(channel, mode, DUPLEX)
    hint = None if subset is None else {"envoy.lb.subset_hint": {"x-gateway-destination-endpoint-subset": subset}}
    await stream.headers(metadata=hint)
    if mode == BUFFERED:
        await stream.said()
    await stream.body(json.dumps(body).encode())
    answer = await stream.said()
    assert answer is not None
    if answer.HasField("immediate_response"):
        assert 503 == answer.immediate_response.status.code
        return stream, None
    told = destination_of(answer)
    if mode == DUPLEX:
        await handed_back(stream)
    return stream, told


async def test_the_pod_that_holds_the_prompt_comes_first(fleet: Fleet) -> None:
    """The other one of its model behind it, and none of another model."""
    async with grpc.aio.insecure_channel(fleet.address) as channel:
        for mode in (BUFFERED, DUPLEX):
            for engine, told in ((0, [PODS[0], PODS[1]]), (1, [PODS[1], PODS[0]])):
                assert told == (await _picked(channel, {"model": "m", "prompt": _prompt(engine)}, mode=mode))[1]
        assert [PODS[2]] == (await _picked(channel, {"model": "n", "prompt": _prompt(0)}))[1]


async def test_a_model_that_nobody_knows_is_picked_for_in_the_whole_pool(fleet: Fleet) -> None:
    """By load alone, and not always in one order."""
    async with grpc.aio.insecure_channel(fleet.address) as channel:
        first: set[str] = set()
        while len(first) < len(PODS):
            told = (await _picked(channel, {"model": "unheard-of", "prompt": _prompt(0)}))[1]
            assert told is not None
            assert {*PODS} == {*told}
            first.add(told[0])


@pytest.mark.parametrize(
    ("subset", "told"),
    [
        ([PODS[1]], [PODS[1]]),
        (f"{PODS[1]}, {PODS[0]}", [PODS[0], PODS[1]]),
        ([f"{PODS[1]},{PODS[0]}", "10.9.9.9:1"], [PODS[0], PODS[1]]),
        (["127.0.0.1:9999"], None),
        ("127.0.0.1", None),
        ([], None),
        ("", None),
    ],
)
async def test_only_endpoints_of_the_subset_are_picked(fleet: Fleet, subset: object, told: list[str] | None) -> None:
    """A list or a text with commas, by address and port; 503 where none of it can be had."""
    async with grpc.aio.insecure_channel(fleet.address) as channel:
        assert told == (await _picked(channel, {"model": "m", "prompt": _prompt(0)}, subset))[1]


async def test_who_served_and_what_was_reused_is_taken_from_the_response(fleet: Fleet) -> None:
    """Tokens and bodies stay as they are; the report of consistency knows the rest."""
    async with grpc.aio.insecure_channel(fleet.address) as channel:
        before = fleet.service.metrics()
        stream, told = await _picked(channel, {"model": "m", "prompt": _prompt(0)})
        assert [PODS[0], PODS[1]] == told
        await stream.answered(metadata={"envoy.lb": {SERVED: PODS[1]}}, content_type="text/event-stream")
        await stream.said()
        usage = {"prompt_tokens": BLOCKS * BLOCK, "prompt_tokens_details": {"cached_tokens": 4}}
        for event in ({"choices": [{"text": '"usage": {'}]}, {"choices": [], "usage": usage}):
            await stream.answered_body(b"data: " + json.dumps(event).encode() + b"\n\n")
            assert (b"data: " + json.dumps(event).encode() + b"\n\n", False) == piece_of(await stream.said())
        await stream.answered_body(b"data: [DONE]\n\n", end=True)
        assert (b"data: [DONE]\n\n", True) == piece_of(await stream.said())
        await stream.ended()
    fallback, joined = 'kvindexer_epp_served_total{by="fallback"}', 'kvindexer_feedback_total{result="joined"}'
    after: dict[str, float] = {}

    def told_all() -> bool:
        after.update(fleet.service.metrics())
        return all(after.get(name, 0) == before.get(name, 0) + 1 for name in (fallback, joined))

    fleet.service.wait_for(told_all, "the reports")
    assert 'kvindexer_routed_total{result="expected"}' in after
    rows = fleet.service.call("GET", "/v1/reports/consistency").json()["sources"]
    (row,) = [each for each in rows if each["pod"] == "vllm-1"]
    assert row["windows"]["1m"]["samples"] == 1
    assert row["windows"]["1m"]["real_tokens"] == 4
    check_moved([fleet.service.call("GET", "/metrics").content], PICKED)


@pytest.mark.parametrize("name", [LIVENESS, READINESS, SERVICE, ""])
async def test_health_has_the_names_that_gateways_ask_for(fleet: Fleet, name: str) -> None:
    """Sooner or later all is well."""
    async with grpc.aio.insecure_channel(fleet.address) as channel:
        watching = HealthStub(channel).Watch(HealthCheckRequest(service=name), timeout=DEADLINE_S)
        while HealthCheckResponse.SERVING != (await watching.read()).status:
            assert LIVENESS != name


async def test_a_stop_lets_streams_end_in_order() -> None:
    """Who waits for a response that gateways keep themselves goes on alone; the exit code is 0."""
    service = RunningService(
        ["127.0.0.1:1=tcp://127.0.0.1:9,model=m"], roles="collect,lookup,epp", server__epp_port="0"
    )
    found = re.search(r"epp://([0-9.:]+)", service.banner)
    assert found is not None
    with service:
        async with grpc.aio.insecure_channel(found[1]) as channel:
            stream = Stream(channel, BUFFERED, NONE)
            await stream.headers(end=True)
            assert ["127.0.0.1:1"] == destination_of(await stream.said())
            service.send_signal(signal.SIGTERM)
            assert None is await stream.said()
        assert 0 == await asyncio.to_thread(service.wait_ended)


async def test_where_engines_make_themselves_known_nobody_is_refused() -> None:
    """One that was never sent anything has said nothing yet: were clients refused, it would stay so."""
    bound = {"events__source_bind": '["tcp://127.0.0.1:*"]', "server__epp_port": "0"}
    with RunningService([], roles="collect,lookup,epp", **bound) as service:
        found = re.search(r"epp://([0-9.:]+)", service.banner)
        assert found is not None
        async with grpc.aio.insecure_channel(found[1]) as channel:
            for subset, told in ((None, None), ([PODS[0]], None), ([], 503)):
                hint = {"envoy.lb.subset_hint": {"x-gateway-destination-endpoint-subset": subset}}
                stream = Stream(channel, BUFFERED, NONE)
                await stream.headers(metadata=None if subset is None else hint)
                await stream.said()
                await stream.body(b"{}")
                answer = await stream.said()
                assert answer is not None
                assert told == (answer.immediate_response.status.code or None)
                assert told or destination_of(answer) is None
