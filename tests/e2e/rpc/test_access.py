"""Who may call, and whose sources a caller sees."""

from __future__ import annotations

from pathlib import Path

import grpc

from api.rpc.limits import RpcLimits
from api.rpc.server import SERVICE
from indexer.model import Descriptor
from schemas.rpc.kvindexer.v1 import kvindexer_pb2 as pb
from tests.support.callers import bearer, gates
from tests.support.fake_node import FakeNode
from tests.support.rpc import refused, rpc_client, rpc_served

QUESTION = pb.LookupRequest(token_ids=[1])


def _of(name: str) -> dict[str, object]:
    return {"metadata": (("authorization", bearer(name)),)}


def _methods(stub: object, names: set[str], **shown: object) -> dict[str, object]:
    """A call of each of these methods."""
    asked = {
        "Lookup": QUESTION,
        "LookupBatch": pb.LookupBatchRequest(items=[QUESTION]),
        "Recommend": pb.RecommendRequest(question=QUESTION),
        "ReportRouted": pb.ReportRoutedRequest(items=[pb.RoutedReport(pod="a", of="r")]),
        "ListSources": pb.ListSourcesRequest(),
        "ReportReuse": pb.ReportReuseRequest(),
        "WatchSources": pb.WatchSourcesRequest(),
    }
    calls = {name: getattr(stub, name)(message, **shown) for name, message in asked.items() if name in names}
    if "WatchSources" in names:
        calls["WatchSources"] = calls["WatchSources"].read()
        calls["LookupStream"] = stub.LookupStream(**shown).read()  # type: ignore[attr-defined]
    return calls


async def test_every_method_asks_who_calls(tmp_path: Path) -> None:
    """Without a token, with a wrong one, and with one for something else."""
    known = gates(tmp_path, ("asks", ("lookup",), None), ("reports", ("report",), None))
    node = FakeNode()
    async with rpc_client(node, access=known.access) as stub:
        names = {method.name for method in pb.DESCRIPTOR.services_by_name[SERVICE.rpartition(".")[2]].methods}
        reporting = {name for name in names if name.startswith("Report")}
        for shown, status, of in (
            ({}, grpc.StatusCode.UNAUTHENTICATED, names),
            ({"metadata": (("authorization", "Bearer nobodys"),)}, grpc.StatusCode.UNAUTHENTICATED, names),
            (_of("reports"), grpc.StatusCode.PERMISSION_DENIED, names - reporting),
            (_of("asks"), grpc.StatusCode.PERMISSION_DENIED, reporting),
        ):
            calls = _methods(stub, of, **shown)
            assert of == set(calls)
            assert {status} == {(await refused(call))[0] for call in calls.values()}  # type: ignore[arg-type]
            assert {len(of)} == set(node.refused.values()), "each is counted once, for the log"
            node.refused.clear()
        assert [] == node.queries
        assert (await stub.Lookup(QUESTION, **_of("asks"))).pods


async def test_who_may_not_call_is_refused_before_its_message(tmp_path: Path) -> None:
    """It takes no place among those that arrive, and nobody waits for it."""
    known = gates(tmp_path, ("asks", ("lookup",), None))
    node = FakeNode()
    limits = RpcLimits(body_wait_s=0.2, arriving=1)
    async with rpc_served(node, limits, access=known.access) as address, grpc.aio.insecure_channel(address) as channel:
        for method in ("Lookup", "LookupBatch", "ListSources", "WatchSources", "ReportRouted"):
            silent = [channel.stream_unary(f"/{SERVICE}/{method}")() for _ in range(3)]
            assert {grpc.StatusCode.UNAUTHENTICATED} == {(await refused(call))[0] for call in silent}
    assert not node.limits_reached


async def test_a_caller_of_a_tenant_sees_that_tenant_alone(tmp_path: Path) -> None:
    """In questions, lists and changes."""
    known = gates(tmp_path, ("mine", ("lookup",), "mine"))
    node = FakeNode()
    for pod, tenant in (("a", "mine"), ("b", "other"), ("c", "mine")):
        await node.add_source(Descriptor(pod=pod, endpoint="tcp://10.0.0.1:1", origin="api", tenant=tenant))
    async with rpc_client(node, access=known.access) as stub:
        await stub.Lookup(QUESTION, **_of("mine"))
        assert "mine" == node.queries[0].tenant
        other = pb.LookupRequest(token_ids=[1], tenant="other")
        status, code, _ = await refused(stub.Lookup(other, **_of("mine")))
        assert (grpc.StatusCode.PERMISSION_DENIED, "tenant.forbidden") == (status, code)
        (item,) = (await stub.LookupBatch(pb.LookupBatchRequest(items=[other]), **_of("mine"))).items
        assert "tenant.forbidden" == item.problem.code
        page = await stub.ListSources(pb.ListSourcesRequest(limit=1), **_of("mine"))
        assert ["a"] == [source.pod for source in page.sources]
        rest = await stub.ListSources(pb.ListSourcesRequest(after=page.next), **_of("mine"))
        assert ["c"] == [source.pod for source in rest.sources]
        watch = stub.WatchSources(pb.WatchSourcesRequest(), **_of("mine"))
        assert ["a", "c", ""] == [(await watch.read()).source.pod for _ in range(3)]
