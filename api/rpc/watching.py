"""`WatchSources`: the sources there are, then what changes of them.

One look at all sources every `LOOK_S`, shared by all watchers, and only while there are any. A watcher keeps what it
was told last, so it needs no queue: whoever reads slowly finds each source as it is by then, and the steps between are
left out. What it holds is bounded by the number of sources; who reads nothing at all for `watch_stall_s` ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from api.admission import Shares
from api.problems import RequestRefused, log_fault
from api.rpc.questions import parsed
from indexer.errors import BadRequestError, FieldIssue
from schemas.rpc.kvindexer.v1.kvindexer_pb2 import SourceStatus as StatusMessage
from schemas.rpc.kvindexer.v1.kvindexer_pb2 import WatchSourcesRequest, WatchSourcesResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from api.access.caller import Caller
    from api.ports import NodePort
    from api.rpc.calls import Calls
    from api.rpc.limits import RpcLimits
    from api.rpc.statuses import Context
    from schemas.watch import SourceStatus

LOOK_S: Final = 0.25
HEARTBEAT_MS: Final = 10_000
HEARTBEAT_MS_MIN: Final = 1_000
HEARTBEAT_MS_MAX: Final = 3_600_000
STEPS_KEPT: Final = 64
"""Looks that brought changes; a watcher further behind compares all sources."""

Key = tuple[str, int]
Told = tuple[str, "SourceStatus | None"]
"""Event, and the source it is about."""


class Scenery:
    """All sources as they were at the last look."""

    def __init__(self, node: NodePort) -> None:
        self._node = node
        self.seen: dict[Key, SourceStatus] = {}
        self.version = 0
        self._steps: deque[frozenset[Key]] = deque(maxlen=STEPS_KEPT)
        self._moved = asyncio.Event()

    async def look(self) -> None:
        """Look again; tells the watchers where something is different."""
        now = {(status.pod, status.dp_rank): status for status in await self._node.source_statuses()}
        before, self.seen = self.seen, now
        changed = frozenset(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
        if changed:
            self._steps.append(changed)
            self.version += 1
            moved, self._moved = self._moved, asyncio.Event()
            moved.set()

    def touched_since(self, version: int) -> Iterable[Key] | None:
        """What changed after that version; None: too long ago to tell."""
        behind = self.version - version
        if behind > len(self._steps):
            return None
        return frozenset().union(*list(self._steps)[len(self._steps) - behind :])

    async def moved(self) -> None:
        """Wait for the next change."""
        await self._moved.wait()


class Watching:
    """Handler, and the look that all watchers share."""

    def __init__(self, node: NodePort, calls: Calls, limits: RpcLimits, stopping: asyncio.Event) -> None:
        self._scenery = Scenery(node)
        self._calls = calls
        self._stall_s = limits.watch_stall_s
        self._stopping = stopping
        self._reached = node.limit_reached
        self._places = Shares("rpc.watchers", limits.watchers, reached=node.limit_reached)
        self._watchers = 0
        self._wanted = asyncio.Event()
        self._open: set[asyncio.Timeout] = set()

    async def run(self) -> None:
        """Look again and again while somebody watches."""
        while True:
            await self._wanted.wait()
            try:
                await self._scenery.look()
            except Exception as error:  # noqa: BLE001 - a fault of ours: watchers learn later, and all else goes on
                log_fault(error)
            await asyncio.sleep(LOOK_S)

    def end(self) -> None:
        """The server stops: all watchers end now."""
        now = asyncio.get_running_loop().time()
        for patience in self._open:
            patience.reschedule(now)

    async def watch_sources(self, data: bytes, context: Context) -> None:
        """`WatchSources`."""
        try:
            with self._calls.place(self._places, context, "watchers.too_many", "watchers"), self._watcher():
                caller = self._calls.caller(context, "lookup")
                request = parsed(WatchSourcesRequest, data)
                model = request.model if request.HasField("model") else None
                await self._watch(context, caller, View(caller.tenant, model), _heartbeat_s(request))
        except TimeoutError:
            await self._calls.refuse(context, self._ended())
        except Exception as error:  # noqa: BLE001 - answers for a fault of ours, too
            await self._calls.refuse(context, error)

    async def _watch(self, context: Context, caller: Caller, view: View, heartbeat_s: float) -> None:
        scenery, loop = self._scenery, asyncio.get_running_loop()
        await scenery.look()
        async with asyncio.timeout(None) as patience:
            self._open.add(patience)
            try:
                told = view.begin(scenery)
                await context.send_initial_metadata(())  # else a write that is given up leaves no way to say why
                while not self._stopping.is_set():
                    for event, status in told:
                        patience.reschedule(loop.time() + self._stall_s)
                        await context.write(_message(event, status))
                    patience.reschedule(None)
                    told = await _news(view, scenery, heartbeat_s)
                    if self._calls.caller(context, "lookup") != caller:
                        detail = "this token may do something else now; watch again"
                        raise RequestRefused(HTTPStatus.UNAUTHORIZED, "token.changed", detail)
            finally:
                self._open.discard(patience)
        raise self._ended()

    def _ended(self) -> RequestRefused:
        if self._stopping.is_set():
            return RequestRefused(
                HTTPStatus.SERVICE_UNAVAILABLE, "server.stopping", "this replica stops; watch another"
            )
        self._reached("rpc.watch_stall_s")
        detail = f"nothing was read for {self._stall_s:g} s"
        return RequestRefused(HTTPStatus.REQUEST_TIMEOUT, "watch.stalled", detail)

    @contextlib.contextmanager
    def _watcher(self) -> Iterator[None]:
        self._watchers += 1
        self._wanted.set()
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._wanted.clear()


class View:
    """What one watcher was told last, of the sources that it may see and asked for."""

    def __init__(self, tenant: str | None, model: str | None) -> None:
        self._tenant = tenant
        self._model = model
        self._told: dict[Key, SourceStatus] = {}
        self._version = 0

    def begin(self, scenery: Scenery) -> list[Told]:
        """Those there are."""
        self._version = scenery.version
        self._told = {key: status for key, status in sorted(scenery.seen.items()) if self._matches(status)}
        return [("present", status) for status in self._told.values()] + [("complete", None)]

    def changes(self, scenery: Scenery) -> list[Told]:
        """What is different now from what was told; each source once, as it is now."""
        touched = scenery.touched_since(self._version)
        self._version = scenery.version
        keys = self._told.keys() | scenery.seen.keys() if touched is None else touched
        return [told for key in sorted(keys) if (told := self._change(key, scenery.seen.get(key))) is not None]

    def _change(self, key: Key, now: SourceStatus | None) -> Told | None:
        before = self._told.get(key)
        if now is None or not self._matches(now):
            return None if before is None else ("removed", self._told.pop(key))
        self._told[key] = now
        if before is None:
            return "added", now
        return None if before == now else ("changed", now)

    def _matches(self, status: SourceStatus) -> bool:
        return self._tenant in {None, status.tenant} and self._model in {None, status.model}


async def _news(view: View, scenery: Scenery, heartbeat_s: float) -> list[Told]:
    """The next changes; a heartbeat where there are none for so long."""
    try:
        async with asyncio.timeout(heartbeat_s):
            while not (told := view.changes(scenery)):
                await scenery.moved()
    except TimeoutError:
        return [("heartbeat", None)]
    return told


def _message(event: str, status: SourceStatus | None) -> bytes:
    source = None if status is None else StatusMessage(**status._asdict())
    return WatchSourcesResponse(event=event, source=source).SerializeToString()


def _heartbeat_s(request: WatchSourcesRequest) -> float:
    wanted = request.heartbeat_ms if request.HasField("heartbeat_ms") else HEARTBEAT_MS
    if not HEARTBEAT_MS_MIN <= wanted <= HEARTBEAT_MS_MAX:
        issue = FieldIssue("heartbeat_ms", f"{HEARTBEAT_MS_MIN}..{HEARTBEAT_MS_MAX}", str(wanted))
        raise BadRequestError("heartbeat_ms.not_allowed", [issue])
    return wanted / 1_000
