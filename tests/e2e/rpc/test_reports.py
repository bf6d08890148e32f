"""`ReportRouted` over a real connection, with a double in the node's place: what REST takes, as messages."""

from __future__ import annotations

import grpc
import numpy as np

from schemas.receipts import REPORTS_MAX
from schemas.rpc.kvindexer.v1 import kvindexer_pb2 as pb
from tests.support.core_events import u32
from tests.support.fake_node import FakeNode
from tests.support.rpc import refused, rpc_client


async def test_each_form_of_a_report_reaches_the_node() -> None:
    """As REST's do, field for field."""
    node, hashes = FakeNode(), [1, 2**64 - 1]
    async with rpc_client(node) as stub:
        item = pb.MmItem(hash="h", offset=0, length=1)
        answer = await stub.ReportRouted(
            pb.ReportRoutedRequest(
                items=[
                    pb.RoutedReport(pod="a", token_ids=[1, 2], request_id="r", model="m", mm_items=[item]),
                    pb.RoutedReport(pod="a", token_bytes=u32([1, 2]), dp_rank=0, cache_salt="s", lora_name="ad"),
                    pb.RoutedReport(pod="b", block_hashes=hashes, block_size=16, tenant="t"),
                    pb.RoutedReport(pod="b", of="r-1"),
                ]
            )
        )

    assert (4, []) == (answer.accepted, list(answer.refused))
    ids, packed, hashed, named = node.routed
    assert ("a", "r", "m", u32([1, 2]), 1) == (
        ids.pod,
        ids.request_id,
        ids.query.model,
        ids.query.tokens,
        len(ids.query.mm_items),
    )
    assert (0, "s", "ad", u32([1, 2])) == (
        packed.dp_rank,
        packed.query.cache_salt,
        packed.query.lora_name,
        packed.query.tokens,
    )
    assert (hashes, 16, "t") == (
        np.asarray(hashed.query.block_hashes, np.uint64).tolist(),
        hashed.query.block_size,
        hashed.query.tenant,
    )
    assert ("r-1", None, None) == (named.of, named.query.tokens, named.dp_rank)


async def test_what_is_wrong_with_one_fails_no_other() -> None:
    """Each is told by its place, as the problem that REST has for it."""
    node = FakeNode()
    items = [
        pb.RoutedReport(pod="a"),
        pb.RoutedReport(pod="a", of="r"),
        pb.RoutedReport(of="r"),
        pb.RoutedReport(pod="a", token_ids=[1], token_bytes=b"1234"),
        pb.RoutedReport(pod="a", token_bytes=b"12345"),
    ]
    async with rpc_client(node) as stub:
        answer = await stub.ReportRouted(pb.ReportRoutedRequest(items=items))

    assert (1, 1, 4) == (answer.accepted, len(node.routed), node.refused_routed)
    assert {"expected": 1, "held": 0, "repeated": 0, "not_placed": 0} == dict(answer.results)
    assert [
        (0, "prompt.exactly_one"),
        (2, "pod.missing"),
        (3, "prompt.exactly_one"),
        (4, "token_ids.bad_length"),
    ] == [(each.index, each.problem.code) for each in answer.refused]
    assert {422} == {each.problem.status for each in answer.refused}


async def test_too_many_and_what_is_no_message() -> None:
    """The call is refused as a whole."""
    node = FakeNode()
    many = pb.ReportRoutedRequest(items=[pb.RoutedReport(pod="a", of="r")] * (REPORTS_MAX + 1))
    async with rpc_client(node) as stub:
        status, code, _ = await refused(stub.ReportRouted(many))

    assert (grpc.StatusCode.INVALID_ARGUMENT, "reports.too_many", []) == (status, code, node.routed)
