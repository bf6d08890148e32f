"""`Lookup`, `LookupBatch` and `LookupStream` over real sockets."""

from __future__ import annotations

import asyncio
import struct
from array import array

import grpc
import pytest

from api.rpc.limits import RpcLimits
from schemas.lookup import LookupQuery, MmItem
from schemas.rpc.kvindexer.v1 import kvindexer_pb2 as pb
from tests.support.fake_node import FakeNode
from tests.support.rpc import refused, rpc_client

IMAGE = struct.pack("<3I", 1, 2, 2**32 - 1)


async def test_a_question_and_its_answer() -> None:
    """Every option reaches the core, and every field comes back."""
    node = FakeNode()
    asked = pb.LookupRequest(
        model="m",
        token_ids=[1, 2, 2**32 - 1],
        lora_name="a",
        cache_salt="s",
        tenant="t",
        mm_items=[pb.MmItem(hash="h", offset=1, length=2)],
        pods=["p"],
        pod_roles=["prefill"],
        max_lag_ms=5,
        partial=True,
        limit=3,
        group="pod",
        request_id="r-1",
    )
    async with rpc_client(node) as stub:
        answer = await stub.Lookup(asked)

    query = node.queries[0]
    assert (IMAGE, "m", "a", "s", "t") == (query.tokens, query.model, query.lora_name, query.cache_salt, query.tenant)
    assert ((MmItem("h", 1, 2),), ("p",), ("prefill",)) == (query.mm_items, query.pods, query.pod_roles)
    assert (5, True, 3, "pod", "r-1") == (
        query.max_lag_ms,
        query.partial,
        query.limit,
        query.group,
        query.request_id,
    )
    assert ("r-1", "m", 3, "exact") == (answer.request_id, answer.model, answer.prompt_tokens, answer.state)
    entry = answer.pods[0]
    assert ("10.0.0.1:8000", 16, "5f3a9c0d12e4", 7) == (entry.pod, entry.block_size, entry.generation, entry.sequence)
    assert not answer.HasField("reason")
    assert [{"api": "grpc", "input": "ids", "code": 200, "state": "exact"}] == node.observed


async def test_every_form_of_a_prompt() -> None:
    """Bytes, hashes and text."""
    node = FakeNode()
    async with rpc_client(node) as stub:
        await stub.Lookup(pb.LookupRequest(token_bytes=IMAGE))
        await stub.Lookup(pb.LookupRequest(token_bytes=b""))
        await stub.Lookup(pb.LookupRequest(block_hashes=[1, 2**64 - 1], block_size=16, prompt_tokens=40))

    assert [IMAGE, b"", None] == [query.tokens for query in node.queries]
    assert (array("Q", [1, 2**64 - 1]), 16, 40) == (
        node.queries[2].block_hashes,
        node.queries[2].block_size,
        node.queries[2].prompt_tokens,
    )
    assert ["bytes", "bytes", "hashes"] == [each["input"] for each in node.observed]


async def test_options_that_were_read_before_are_read_right_again() -> None:
    """Salt and request id are each question's own."""
    node = FakeNode()
    async with rpc_client(node) as stub:
        for number in range(3):
            asked = pb.LookupRequest(model="m", token_ids=[number], cache_salt=f"s{number}", request_id=f"r{number}")
            await stub.Lookup(asked)
        await stub.Lookup(pb.LookupRequest(model="m", token_ids=[3]))

    assert ["s0", "s1", "s2", None] == [query.cache_salt for query in node.queries]
    assert ["r0", "r1", "r2"] == [query.request_id for query in node.queries][:3]
    assert [bytes([n, 0, 0, 0]) for n in range(4)] == [query.tokens for query in node.queries]


@pytest.mark.parametrize(
    ("asked", "code", "field"),
    [
        (pb.LookupRequest(model="m"), "prompt.exactly_one", "token_ids"),
        (pb.LookupRequest(token_ids=[1], token_bytes=b""), "prompt.exactly_one", "token_ids"),
        (pb.LookupRequest(token_ids=[1], block_hashes=[1], block_size=16), "prompt.exactly_one", None),
        (pb.LookupRequest(token_bytes=b"123"), "token_ids.bad_length", "token_ids"),
        (pb.LookupRequest(token_ids=[1] * 101), "token_ids.too_many", "token_ids"),
        (pb.LookupRequest(token_ids=[1], model=""), "model.not_allowed", "model"),
        (pb.LookupRequest(token_ids=[1], group="x"), "group.not_allowed", "group"),
        (pb.LookupRequest(token_ids=[1], cache_salt=""), "cache_salt.not_allowed", "cache_salt"),
        (pb.LookupRequest(token_ids=[1], request_id="a b"), "request_id.not_allowed", "request_id"),
        (pb.LookupRequest(block_hashes=[1]), "block_size.missing", "block_size"),
        (pb.LookupRequest(messages_json="{"), "messages_json.not_json", "messages_json"),
    ],
)
async def test_what_is_wrong_is_told(asked: pb.LookupRequest, code: str, field: str | None) -> None:
    """Status, code for programs, and the field."""
    async with rpc_client(FakeNode(), RpcLimits(tokens=100)) as stub:
        status, told, problem = await refused(stub.Lookup(asked))

    assert (grpc.StatusCode.INVALID_ARGUMENT, code, code, 422) == (status, told, problem.code, problem.status)
    assert problem.request_id
    if field is not None:
        assert field == problem.errors[0].field


async def test_a_fault_is_told_as_one_and_shows_nothing() -> None:
    """No message of an exception leaves."""
    node = FakeNode()
    node.fault = ValueError("secret")
    async with rpc_client(node) as stub:
        status, code, problem = await refused(stub.Lookup(pb.LookupRequest(token_ids=[1])))

    assert (grpc.StatusCode.INTERNAL, "internal") == (status, code)
    assert "secret" not in str(problem)
    assert [500] == [each["code"] for each in node.observed]


async def test_a_batch_is_answered_in_order_and_one_bad_item_fails_alone() -> None:
    """Too many items are no batch."""
    node = FakeNode()
    good, bad = pb.LookupRequest(token_ids=[1], request_id="r"), pb.LookupRequest()
    async with rpc_client(node, RpcLimits(batch=3)) as stub:
        answer = await stub.LookupBatch(pb.LookupBatchRequest(items=[good, bad, good]))
        status, code, _ = await refused(stub.LookupBatch(pb.LookupBatchRequest(items=[good] * 4)))
        empty = await stub.LookupBatch(pb.LookupBatchRequest())

    assert ["answer", "problem", "answer"] == [item.WhichOneof("result") for item in answer.items]
    assert ("r", "prompt.exactly_one") == (answer.items[0].answer.request_id, answer.items[1].problem.code)
    assert (grpc.StatusCode.INVALID_ARGUMENT, "batch.too_many", 0) == (status, code, len(empty.items))


async def test_the_prompts_of_a_batch_share_the_limit_of_tokens() -> None:
    """Who takes more than is left is refused alone. Texts count, too."""
    items = [
        pb.LookupRequest(token_ids=[1] * 60),
        pb.LookupRequest(token_bytes=b"1234" * 60),
        pb.LookupRequest(prompt="x" * 20),
        pb.LookupRequest(token_ids=[1] * 30),
        pb.LookupRequest(prompt="x" * 10),
    ]
    async with rpc_client(FakeNode(), RpcLimits(tokens=100)) as stub:
        answer = await stub.LookupBatch(pb.LookupBatchRequest(items=items))

    many = "batch.too_many_tokens"
    assert ["", many, many, "", ""] == [item.problem.code for item in answer.items]


async def test_a_prompt_beyond_its_limit_is_counted() -> None:
    """Alone and in a batch, under the setting's name."""
    node = FakeNode()
    async with rpc_client(node, RpcLimits(tokens=2)) as stub:
        asked = pb.LookupRequest(token_ids=[1, 2, 3])
        assert "token_ids.too_many" == (await refused(stub.Lookup(asked)))[1]
        (item,) = (await stub.LookupBatch(pb.LookupBatchRequest(items=[asked]))).items
        assert "token_ids.too_many" == item.problem.code
    assert {"limits.tokens": 2} == node.limits_reached


class TogetherNode(FakeNode):
    """Texts and sequences take until four of them wait."""

    def __init__(self) -> None:
        super().__init__()
        self._together = asyncio.Barrier(4)

    async def tokenized(self, query: LookupQuery) -> LookupQuery:
        await self._together.wait()
        return await super().tokenized(query)

    async def wait_applied(self, query: LookupQuery, timeout_s: float) -> None:
        await self._together.wait()
        await super().wait_applied(query, timeout_s)


async def test_what_a_batch_waits_for_it_waits_for_at_once() -> None:
    """One after the other would never end here."""
    items = [
        *[pb.LookupRequest(prompt="ab"), pb.LookupRequest(token_ids=[1], min_sequence={"p": 1})] * 2,
        pb.LookupRequest(token_ids=[1, 2, 3]),
    ]
    async with rpc_client(TogetherNode()) as stub:
        answer = await stub.LookupBatch(pb.LookupBatchRequest(items=items), timeout=20)

    assert [2, 1, 2, 1, 3] == [item.answer.prompt_tokens for item in answer.items]


async def test_a_stream_is_answered_in_order_and_goes_on_behind_a_bad_question() -> None:
    """As many answers as questions."""
    async with rpc_client(FakeNode()) as stub:
        call = stub.LookupStream()
        asked = [pb.LookupRequest(token_ids=[n], request_id=f"r{n}") if n % 3 else pb.LookupRequest() for n in range(9)]
        for each in asked:
            await call.write(each)
        await call.done_writing()
        results = [result async for result in call]

    assert ["problem", "answer", "answer"] * 3 == [result.WhichOneof("result") for result in results]
    assert ["r1", "r2", "r4", "r5", "r7", "r8"] == [r.answer.request_id for r in results if r.HasField("answer")]


async def test_an_idle_stream_ends() -> None:
    """Its place is for somebody else."""
    async with rpc_client(FakeNode(), RpcLimits(stream_idle_s=0.05)) as stub:
        call = stub.LookupStream()
        await call.write(pb.LookupRequest(token_ids=[1]))
        assert (await call.read()).HasField("answer")
        status, code, _ = await refused(call.read())

    assert (grpc.StatusCode.ABORTED, "stream.idle") == (status, code)


async def test_a_stream_that_its_caller_leaves_leaves_nothing() -> None:
    """Cancelled in the middle; the place is free again, and others are answered."""
    async with rpc_client(FakeNode(), RpcLimits(streams=1)) as stub:
        for _ in range(5):
            call = stub.LookupStream()
            await call.write(pb.LookupRequest(token_ids=[1]))
            assert (await call.read()).HasField("answer")
            second = stub.LookupStream()
            assert "streams.too_many" == (await refused(second.read()))[1]
            call.cancel()
            async with asyncio.timeout(20):
                while True:  # until the server has noticed
                    probe = stub.LookupStream()
                    await probe.done_writing()
                    try:
                        assert grpc.aio.EOF is await probe.read()
                        break
                    except grpc.aio.AioRpcError:
                        continue


async def test_the_deadline_is_the_callers_own() -> None:
    """Whoever waits for a sequence is answered before the deadline."""
    node = FakeNode()
    asked = pb.LookupRequest(token_ids=[1], min_sequence={"p": 5}, timeout_ms=60_000)
    async with rpc_client(node) as stub:
        await stub.Lookup(asked, timeout=30)
        await stub.Lookup(asked)
        await stub.Lookup(pb.LookupRequest(token_ids=[1], min_sequence={"p": 5}))

    assert 20 < node.waited[0] < 30
    assert [60.0, 1.0] == node.waited[1:]


async def test_text_is_tokenized() -> None:
    """And the answer says by what."""
    node = FakeNode()
    async with rpc_client(node) as stub:
        answer = await stub.Lookup(pb.LookupRequest(prompt="hello"))

    assert (5, "bytes") == (answer.tokenizer.tokens, answer.tokenizer.name)
    assert b"h\x00\x00\x00" == (node.queries[0].tokens or b"")[:4]


async def test_what_only_the_core_can_judge() -> None:
    """Its refusals come through the same table."""
    async with rpc_client(FakeNode()) as stub:
        asked = pb.LookupRequest(block_hashes=[1], block_size=13, scheme="dynamo")
        assert "block_size.unusable" == (await refused(stub.Lookup(asked)))[1]


async def test_too_large_a_message_is_refused() -> None:
    """By the limit of bodies, on the wire."""
    async with rpc_client(FakeNode(), RpcLimits(body_bytes=10_000)) as stub:
        status, _, _ = await refused(stub.Lookup(pb.LookupRequest(token_bytes=b"1234" * 5_000)))
        await stub.Lookup(pb.LookupRequest(token_bytes=b"1234" * 1_000))

    assert grpc.StatusCode.RESOURCE_EXHAUSTED == status
