"""The same question gets the same answer at every door: REST in its three forms, gRPC in its, and the core itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import grpc
import httpx
import msgspec
import pytest
import uvloop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.ports import Encoding
from api.server import ServerSettings, serve
from schemas.lookup import LookupAnswer, LookupQuery
from schemas.rpc.kvindexer.v1 import kvindexer_pb2 as pb
from schemas.rpc.kvindexer.v1.kvindexer_pb2_grpc import KvIndexerStub
from tests.support.core import Core
from tests.support.core_events import BLOCK, stored, u32
from tests.support.fake_node import FakeNode
from tests.support.rpc_shapes import as_rest

DEADLINE_S = 20.0
PODS = ("10.0.0.1:8000", "10.0.0.2:8000", "[fd00::1]:80")


class CoreNode(FakeNode):
    """The faces' port on a real core, which a test exchanges."""

    core: Core

    def lookup(self, query: LookupQuery, *, encoding: Encoding) -> LookupAnswer:
        return self.core.lookup.answer(query, encoding)


class Doors(NamedTuple):
    """One service and clients of all its doors."""

    node: CoreNode
    http: httpx.Client
    rpc: KvIndexerStub


@pytest.fixture(scope="module")
def doors() -> Iterator[Doors]:
    """REST and gRPC on real sockets, in a thread of their own."""
    node, stop, up = CoreNode(), asyncio.Event(), threading.Event()
    addresses: list[str] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def run() -> None:
        loops.append(asyncio.get_running_loop())

        def listens(where: Sequence[str]) -> None:
            addresses.extend(where)
            up.set()

        await serve(node, ServerSettings(port=0, grpc_port=0), stop, announce=listens)

    def serving() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())

    thread = threading.Thread(target=serving, name="doors")
    thread.start()
    assert up.wait(DEADLINE_S), "the server did not come up"
    with (
        httpx.Client(base_url=addresses[0], timeout=DEADLINE_S) as http,
        grpc.insecure_channel(addresses[-1].removeprefix("grpc://")) as channel,
    ):
        yield Doors(node, http, KvIndexerStub(channel))
    loops[0].call_soon_threadsafe(stop.set)
    thread.join(DEADLINE_S)
    assert not thread.is_alive(), "the server did not end"


TOKENS = st.lists(st.sampled_from([0, 1, 2**32 - 1]), max_size=4 * BLOCK) | st.integers(0, 5).map(
    lambda blocks: list(range(blocks * BLOCK + 3))
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from(["m", "other", "unknown"]),
        "lora_name": st.sampled_from(["a", "b"]),
        "pods": st.lists(st.sampled_from([*PODS, "nobody"]), min_size=1, max_size=3, unique=True),
        "pod_roles": st.lists(st.sampled_from(["prefill", "decode", "both"]), min_size=1, max_size=2, unique=True),
        "max_lag_ms": st.sampled_from([0, 5_000]),
        "partial": st.booleans(),
        "limit": st.integers(0, 3),
        "group": st.sampled_from(["rank", "pod"]),
    },
)
HELD = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5), st.sampled_from(["GPU", "CPU", "DISK"])), max_size=5)


def core_that_holds(held: list[tuple[int, int, str]]) -> Core:
    """Three engines, one of another model, one of two ranks; each holds so many blocks of 0, 1, 2, … in a tier."""
    core = Core()
    engines = [
        core.engine(PODS[0], model="m"),
        core.engine(PODS[1], model="m", dp_rank=1, role="prefill"),
        core.engine(PODS[2], model="other"),
    ]
    core.engine(PODS[1], model="m", dp_rank=0, connected=False)
    for number, blocks, medium in held:
        tokens = list(range(blocks * BLOCK))
        engines[number].say(stored([100 + n for n in range(blocks)], tokens, medium=medium))
    return core


def told(answer: dict[str, Any]) -> dict[str, Any]:
    """All but the time that it took; a name that is null is as good as none."""
    without = {"took_us"} | ({"nearest_model"} if answer.get("nearest_model") is None else set())
    return {name: value for name, value in answer.items() if name not in without}


def rest(doors: Doors, body: dict[str, Any], form: str) -> dict[str, Any]:
    """What REST says to JSON, MessagePack or bare bytes."""
    encode = msgspec.json.encode if form == "json" else msgspec.msgpack.encode
    if form == "octet-stream":
        content, options = u32(body["token_ids"]), {name: value for name, value in body.items() if name != "token_ids"}
        flat = {name: str(value).lower() if isinstance(value, bool) else value for name, value in options.items()}
    else:
        content, flat = encode(body), {}
    headers = {"content-type": f"application/{form}", "accept": "application/json"}
    response = doors.http.post("/v1/lookup", content=content, params=flat, headers=headers)
    assert 200 == response.status_code, response.text
    answer: dict[str, Any] = response.json()
    return told(answer)


def rpc(doors: Doors, **asked: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - fields of the message
    """What gRPC says to it alone, in a batch, and in a stream."""
    request = pb.LookupRequest(**asked)
    alone = doors.rpc.Lookup(request, timeout=DEADLINE_S)
    batch = doors.rpc.LookupBatch(pb.LookupBatchRequest(items=[request]), timeout=DEADLINE_S)
    (streamed,) = doors.rpc.LookupStream(iter([request]), timeout=DEADLINE_S)
    return [told(as_rest(answer)) for answer in (alone, batch.items[0].answer, streamed.answer)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(HELD, TOKENS, OPTIONS)
def test_tokens(doors: Doors, held: list[tuple[int, int, str]], tokens: list[int], options: dict[str, Any]) -> None:
    """As a list in JSON, MessagePack and gRPC, and as bytes in all three."""
    doors.node.core = core_that_holds(held)
    body = {"token_ids": tokens, "request_id": "r", **options}
    query = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    asked = LookupQuery(tokens=u32(tokens), request_id="r", **query)
    expected = told(msgspec.json.decode(msgspec.json.encode(doors.node.core.lookup.answer(asked))))

    answers = [rest(doors, body, form) for form in ("json", "msgpack", "octet-stream")]
    answers += rpc(doors, token_bytes=u32(tokens), request_id="r", **options)
    if tokens:  # in gRPC no list is an empty list
        answers += rpc(doors, **body)
    for answer in answers:
        assert expected == answer


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(HELD, st.integers(1, 5), OPTIONS)
def test_hashes(doors: Doors, held: list[tuple[int, int, str]], blocks: int, options: dict[str, Any]) -> None:
    """As hexadecimal digits, as numbers, and as they are in gRPC."""
    core = doors.node.core = core_that_holds(held)
    hashes = [int(value) for value in core.hashes(range(blocks * BLOCK))]
    common = {"block_size": BLOCK, "request_id": "r", **options}
    in_hex = rest(doors, {"block_hashes": [f"{value:016x}" for value in hashes], **common}, "json")

    assert in_hex == rest(doors, {"block_hashes": hashes, **common}, "msgpack")
    for answer in rpc(doors, block_hashes=hashes, **common):
        assert in_hex == answer
