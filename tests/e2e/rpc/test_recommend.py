"""`Recommend` over real sockets: REST's question and answer, field for field."""

from __future__ import annotations

import struct

import grpc
import pytest

from schemas.recommend import GivenLoad, GivenWeights, LoadsUsed, PickTerms, RecommendedPod
from schemas.rpc.kvindexer.v1 import kvindexer_pb2 as pb
from tests.support.fake_node import FakeNode
from tests.support.rpc import refused, rpc_client


async def test_a_question_and_its_answer() -> None:
    """Every option reaches the core, and every field comes back."""
    node = FakeNode()
    node.loads = LoadsUsed("receipts", 0)
    node.decode = [RecommendedPod("d", 1, 0.5, PickTerms(0.125, 0.25, 0.25, 0.125))]
    asked = pb.RecommendRequest(
        question=pb.LookupRequest(model="m", token_ids=[1, 2], request_id="r-1", limit=3),
        loads={"a": pb.PodLoad(running=3, waiting=0, kv_usage=0.5), "b": pb.PodLoad()},
        strategy="load",
        weights=pb.TermWeights(load=0),
        session="s",
        exclude=["c"],
    )
    async with rpc_client(node) as stub:
        answer = await stub.Recommend(asked)
        plain = await stub.Recommend(pb.RecommendRequest(question=pb.LookupRequest(prompt="abc")))

    question, text = node.recommended
    assert (struct.pack("<2I", 1, 2), "m", 3) == (question.query.tokens, question.query.model, question.query.limit)
    assert {"a": GivenLoad(running=3, waiting=0, kv_usage=0.5), "b": GivenLoad()} == question.loads
    assert ("load", GivenWeights(load=0), "s", ("c",)) == (
        question.strategy,
        question.weights,
        question.session,
        question.exclude,
    )
    assert (None, None, None, None, ()) == (text.loads, text.strategy, text.weights, text.session, text.exclude)
    assert 12 == len(text.query.tokens or b"")
    assert ("r-1", "exact", "receipts", 0) == (
        answer.request_id,
        answer.state,
        answer.load.source,
        answer.load.age_ms,
    )
    (pick,) = answer.picks
    assert ("10.0.0.1:8000", 0, 0.25, 0.25) == (pick.pod, pick.dp_rank, pick.total, pick.terms.load)
    (decode,) = answer.decode.picks
    assert ("d", 1, 0.5) == (decode.pod, decode.dp_rank, decode.total)
    assert (0.125, 0.25, 0.25, 0.125) == (
        decode.terms.prefix,
        decode.terms.load,
        decode.terms.speculative,
        decode.terms.penalty,
    )
    assert plain.load.HasField("age_ms")
    assert [
        {"api": "recommend", "input": form, "code": 200, "state": "exact"} for form in ("ids", "text")
    ] == node.observed


async def test_no_decode_list_is_no_empty_one() -> None:
    """Absent: the pick does all of it."""
    node = FakeNode()
    question = pb.RecommendRequest(question=pb.LookupRequest(token_ids=[1]))
    async with rpc_client(node) as stub:
        alone = await stub.Recommend(question)
        node.decode = []
        nobody = await stub.Recommend(question)

    assert [False, True] == [each.HasField("decode") for each in (alone, nobody)]
    assert not alone.load.HasField("age_ms")


@pytest.mark.parametrize(
    ("asked", "code", "field"),
    [
        (pb.RecommendRequest(), "prompt.exactly_one", "token_ids"),
        (pb.RecommendRequest(strategy="best"), "strategy.not_allowed", "strategy"),
        (pb.RecommendRequest(loads={"a": pb.PodLoad(running=-1)}), "loads.running.not_allowed", 'loads["a"].running'),
        (pb.RecommendRequest(weights=pb.TermWeights(load=-1)), "weights.load.not_allowed", "weights.load"),
    ],
)
async def test_what_is_wrong_is_named(asked: pb.RecommendRequest, code: str, field: str) -> None:
    """In REST's words."""
    node = FakeNode()
    async with rpc_client(node) as stub:
        status, told, problem = await refused(stub.Recommend(asked))

    assert (grpc.StatusCode.INVALID_ARGUMENT, code) == (status, told)
    assert field == problem.errors[0].field
    assert 422 == node.observed[-1]["code"]
