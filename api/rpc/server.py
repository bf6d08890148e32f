"""[I/O] The gRPC server: sockets up, sockets down, and what is served on them.

Messages are handed to the methods as bytes, and taken from them as bytes: what is said often is encoded once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else every broken connection writes to stderr; read at the import

import grpc
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from api.access.access import Access, OpenAccess
from api.ports import NodePort
from api.rest.limits import RestLimits
from api.rest.lookup_request import LookupRequests
from api.rest.readying import Readying
from api.rest.request_ids import RequestIds
from api.rpc.arrivals import Arrivals
from api.rpc.calls import Calls
from api.rpc.draining import drained
from api.rpc.foreign import Foreign
from api.rpc.gone import tell_no_more_of_callers_gone
from api.rpc.health import Health
from api.rpc.limits import RpcLimits
from api.rpc.listening import ListeningPlace
from api.rpc.lookups import Lookups
from api.rpc.pod_scores import PodScores
from api.rpc.questions import Questions
from api.rpc.recommending import Recommending
from api.rpc.reports import Reports
from api.rpc.sources import SourceLists
from api.rpc.watching import Watching
from schemas.rpc.indexer.v1 import indexer_pb2
from schemas.rpc.kvindexer.v1 import kvindexer_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.rpc.foreign import Handlers

SERVICE: Final = kvindexer_pb2.DESCRIPTOR.services_by_name["KvIndexer"].full_name
POD_SCORES_SERVICE: Final = indexer_pb2.DESCRIPTOR.services_by_name["IndexerService"].full_name
UNREAD_BYTES: Final = 256 * 2**10
"""Of one call. Messages up to that come without a further round trip."""
PENDING_TIMES: Final = 4
"""As many calls of one method as may be here at once may come while the loop is at something else: refused by us, they
are told why."""


class RpcSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where to listen, and how to end. `port` 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = 50_051
    drain_s: float = 5.0
    lame_duck_s: float = 0.0
    pod_scores: bool = True
    """Whether the other project's interface is served, which asks no caller who it is."""
    limits: RpcLimits = RpcLimits()


class RpcServer:
    """One server. `run` after `start`."""

    def __init__(
        self,
        node: NodePort,
        settings: RpcSettings,
        *,
        access: Access | None = None,
        readying: Readying | None = None,
    ) -> None:
        limits = settings.limits
        request_ids = RequestIds()
        self._settings = settings
        self._place = ListeningPlace(
            settings.host, settings.port, setting="server.grpc_port", schemes=("grpc", "grpcs")
        )
        self._stopping = stopping = asyncio.Event()
        self._calls = Calls(node, access or OpenAccess(), request_ids, limits)
        requests = LookupRequests(limits.tokens, node.texts)
        questions = Questions(requests, request_ids, limits.tokens)
        readying = readying or Readying(node, _shared(limits), stopping)
        self._lookups = Lookups(node, self._calls, questions, readying, limits, stopping)
        self._watching = Watching(node, self._calls, limits, stopping)
        recommending = Recommending(node, self._calls, questions, readying)
        lists = SourceLists(node, self._calls, limits)
        reports = Reports(node, self._calls, requests, limits)
        arrivals = Arrivals(node, self._calls, limits, readying.pending)
        methods: Handlers = {
            SERVICE: {
                "Lookup": arrivals.answered(self._lookups.lookup, "lookup"),
                "LookupStream": grpc.stream_stream_rpc_method_handler(self._lookups.lookup_stream),
                "LookupBatch": arrivals.answered(self._lookups.lookup_batch, "lookup"),
                "Recommend": arrivals.answered(recommending.recommend, "lookup"),
                "ReportRouted": arrivals.answered(reports.report_routed, "report"),
                "ReportReuse": arrivals.answered(reports.report_reuse, "report"),
                "ListSources": arrivals.answered(lists.list_sources, "lookup"),
                "WatchSources": arrivals.streamed(self._watching.watch_sources, "lookup"),
            }
        }
        if settings.pod_scores:
            methods[POD_SCORES_SERVICE] = {
                "GetPodScores": arrivals.answered(PodScores(node, self._calls, readying).get_pod_scores, None)
            }
        self._health = Health(node, tuple(methods))
        self._server = grpc.aio.server(options=options_of(limits))  # who is let in is for `bounded` to say
        foreign = Foreign(self._calls, arrivals)
        methods |= foreign.handlers(partial(health_pb2_grpc.add_HealthServicer_to_server, self._health.servicer))
        servicer = reflection.aio.ReflectionServicer((*methods, reflection.SERVICE_NAME))
        methods |= foreign.handlers(partial(reflection_pb2_grpc.add_ServerReflectionServicer_to_server, servicer))
        for service, handlers in methods.items():
            bounded = {name: self._calls.bounded(handler) for name, handler in handlers.items()}
            self._server.add_registered_method_handlers(service, bounded)
        tell_no_more_of_callers_gone()

    async def start(self, credentials: grpc.ServerCredentials | None = None) -> list[str]:
        """Listen, and say where. Raises `SettingsError` where the port cannot be had."""
        addresses = self._place.listen(self._server, credentials)
        self._health.tell(ready=False)
        await self._server.start()
        return addresses

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then end: at once for who only listens, behind the answer for who asked."""
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self._health.follow(), name="rpc-health")
            watching = tasks.create_task(self._watching.run(), name="rpc-watching")
            await stop.wait()
            following.cancel()
            self._health.tell(ready=False)
            await asyncio.sleep(self._settings.lame_duck_s)
            self._stopping.set()
            watching.cancel()
            self._watching.end()
            self._lookups.end_idle_streams()
            await drained(self._server, self._calls, self._settings.drain_s)

    async def close(self) -> None:
        """Cut what is left."""
        await self._server.stop(None)


@contextlib.asynccontextmanager
async def rpc_server(
    node: NodePort,
    settings: RpcSettings,
    *,
    access: Access | None = None,
    credentials: grpc.ServerCredentials | None = None,
    readying: Readying | None = None,
) -> AsyncIterator[tuple[RpcServer, list[str]]]:
    """A server that listens, and where; nothing of it is left afterwards. `readying`: where other faces share it."""
    server = RpcServer(node, settings, access=access, readying=readying)
    try:
        yield server, await server.start(credentials)
    finally:
        await server.close()


def _shared(limits: RpcLimits) -> RestLimits:
    """What this server alone gives to share."""
    return RestLimits(
        texts_waiting=limits.texts_waiting,
        sequence_waits=limits.sequence_waits,
        sequence_wait_bytes=limits.sequence_wait_bytes,
        pending_bytes=limits.pending_bytes,
    )


def options_of(limits: RpcLimits) -> list[tuple[str, int]]:
    """What gRPC keeps of these limits by itself."""
    return [
        ("grpc.so_reuseport", 0),  # else a second process would take half of the calls without a word
        ("grpc.max_receive_message_length", limits.body_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", limits.connection_streams),
        # Of calls that the loop has not come to yet. gRPC drops what is beyond by chance, whoever it comes from.
        ("grpc.server.max_pending_requests", PENDING_TIMES * limits.calls),
        ("grpc.server.max_pending_requests_hard_limit", PENDING_TIMES * limits.calls),
        # Of messages that nobody reads yet so much is taken: else up to 256 MiB each, once a caller is quick.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", UNREAD_BYTES),
        ("grpc.max_metadata_size", limits.metadata_bytes),
        ("grpc.absolute_max_metadata_size", 2 * limits.metadata_bytes),
        ("grpc.keepalive_time_ms", int(limits.keepalive_s * 1_000)),
        ("grpc.keepalive_timeout_ms", int(limits.keepalive_wait_s * 1_000)),
        ("grpc.http2.min_ping_interval_without_data_ms", int(limits.ping_min_s * 1_000)),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.server_handshake_timeout_ms", int(limits.handshake_s * 1_000)),
    ]
