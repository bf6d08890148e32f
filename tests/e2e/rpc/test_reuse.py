"""`ReportReuse` over real sockets: as `POST /v1/feedback`."""

from __future__ import annotations

from api.rpc.limits import RpcLimits
from schemas.receipts import REPORTS_MAX
from schemas.rpc.kvindexer.v1 import kvindexer_pb2 as pb
from tests.support.core_events import u32
from tests.support.fake_node import FakeNode
from tests.support.rpc import refused, rpc_client


async def test_reports_are_taken_or_refused_one_by_one() -> None:
    """With the codes that REST has."""
    node = FakeNode()
    items = [
        pb.ReuseReport(pod="a", request_id="r", prompt_tokens=20, cached_tokens=16, model="m"),
        pb.ReuseReport(pod="a", dp_rank=1, token_ids=[1, 2], cached_tokens=0, cache_salt="s"),
        pb.ReuseReport(pod="a", token_bytes=u32([1, 2]), cached_tokens=0),
        pb.ReuseReport(pod="a", block_hashes=[7, 2**64 - 1], block_size=16, cached_tokens=0),
        pb.ReuseReport(pod="a", request_id="r", ok=False),
        pb.ReuseReport(pod="a", request_id="unheard-of", cached_tokens=0),
        pb.ReuseReport(pod="a", request_id="r"),
        pb.ReuseReport(pod="unknown", request_id="r", cached_tokens=0),
        pb.ReuseReport(pod="a", token_ids=[1], token_bytes=u32([1]), cached_tokens=0),
        pb.ReuseReport(request_id="r", cached_tokens=0),
        pb.ReuseReport(pod="a", token_ids=range(9), cached_tokens=0),
    ]
    async with rpc_client(node, RpcLimits(tokens=12)) as stub:
        answer = await stub.ReportReuse(pb.ReportReuseRequest(items=items))

    assert (6, 4) == (answer.accepted, answer.joined)
    assert {"joined": 4, "unjoined": 1, "repeated": 0, "failed": 1} == dict(answer.results)
    assert [
        (6, "cached_tokens.missing"),
        (7, "source.unknown"),
        (8, "prompt.exactly_one"),
        (9, "source.unknown"),
        (10, "token_ids.too_many"),
    ] == [(each.index, each.problem.code) for each in answer.refused]
    first, second, third, fourth, *_ = node.fed
    assert ("r", 20, 16, "m", True) == (
        first.request_id,
        first.prompt_tokens,
        first.cached_tokens,
        first.query.model,
        first.ok,
    )
    assert (1, u32([1, 2]), "s") == (second.dp_rank, second.query.tokens, second.query.cache_salt)
    assert u32([1, 2]) == third.query.tokens
    assert [7, 2**64 - 1] == list(fourth.query.block_hashes or ())
    assert 5 == node.refused_feedback


async def test_too_many_are_refused_as_a_whole() -> None:
    """None of them is taken."""
    node = FakeNode()
    report = pb.ReuseReport(pod="a", request_id="r", cached_tokens=0)
    async with rpc_client(node) as stub:
        call = stub.ReportReuse(pb.ReportReuseRequest(items=[report] * (REPORTS_MAX + 1)))
        assert "reports.too_many" == (await refused(call))[1]

    assert [] == node.fed
