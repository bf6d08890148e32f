"""One of several replicas that share the sources between them: what it owns, what it has applied, what it saw when.

Lives in a `Child` on a uvloop, as `Service` does. Its node starts when told, so that all of them can start together.
Does I/O.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Final, Self

import msgspec

from api.demo.sharing import PartitionFacts, Sharing
from indexer.model import Descriptor
from indexer.settings import Redis
from loadtest.followed import Followed
from loadtest.pauses import longest_pause_s
from loadtest.service import MODEL, POLL_S, _applied, pod
from schemas.lookup import LookupQuery

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from indexer.index.source import SourceIndex

MIN_HOLD_S: Final = 1.0
"""In a deployment partitions move seldom; here every run waits until they lie even."""
ASK_MAX_S: Final = 60.0
LOOK_S: Final = 0.05
SETTLE_MAX_S: Final = 15.0
"""After a fault. What is not there by then was lost, and will not come."""


class Shared(Followed):
    """The replica of that name. All have the same sources, one an endpoint."""

    def __init__(
        self, name: str, store_url: str, endpoints: Sequence[str], *, lease_s: float = 10.0, standby: int = 1
    ) -> None:
        redis = Redis(url=store_url, replica=name, lease_s=lease_s, standby=standby, min_hold_s=MIN_HOLD_S)
        sources = [
            Descriptor(pod=pod(number), endpoint=endpoint, model=MODEL, origin="flag")
            for number, endpoint in enumerate(endpoints)
        ]
        super().__init__(redis=redis, sources=sources)
        self._own_name = name
        self._count = len(sources)
        self._moments: dict[str, list[int]] = {}
        self._watched_from = 0

    async def __aenter__(self) -> Self:
        """Nothing runs before `begin`."""
        await self._running.enter_async_context(self._tasks)
        return self

    async def begin(self) -> None:
        """Run. Returns when all sources are listed."""
        self._tasks.create_task(self.node.run(self._stop), name="node")
        await self.expect(self._count)

    def name(self) -> str:
        """What it is called."""
        return self._own_name

    # -- who owns what -------------------------------------------------------------------------------------------------

    async def sharing(self) -> Sharing:
        """As this one sees it."""
        return Sharing(
            msgspec.convert((await self.node.partitions()).partitions, list[PartitionFacts], from_attributes=True)
        )

    async def shared_out(self, names: Sequence[str], *, stood_by: bool) -> None:
        """Return when each owns its share, as this one sees it."""
        while not (await self.sharing()).is_even(names, stood_by=stood_by):  # noqa: ASYNC110  as in `_until`
            await asyncio.sleep(LOOK_S)

    async def all_live(self) -> None:
        """Return when every source is, here."""
        while len(await self._those("live")) < self._count:  # noqa: ASYNC110  as in `_until`
            await asyncio.sleep(LOOK_S)

    async def owners(self) -> dict[str, str | None]:
        """Of every source, as this one sees it."""
        return {view.pod: view.owner for view in await self.node.source_views()}

    async def owned(self) -> list[str]:
        """Sources whose events this one applies."""
        return [name for name, owner in (await self.owners()).items() if owner == self._own_name]

    async def drain(self, name: str) -> None:
        """Have a replica give up what it owns. Returns when it owns nothing."""
        while (await self.node.drain_replica(name)).effect != "done":
            pass

    async def sure(self) -> int:
        """Sources that are live and of which nothing is missing."""
        return sum(view.state == "live" and view.bound == "exact" for view in await self.node.source_views())

    async def generations(self) -> dict[str, str]:
        """Of every source."""
        return {view.pod: view.generation for view in await self.node.source_views()}

    # -- what it has ---------------------------------------------------------------------------------------------------

    async def absorbed(self, last: Sequence[int]) -> float:
        """Seconds until every source has applied its sequence here, and nothing waits here to be written."""
        started = time.perf_counter()
        await self.applied(last)
        while await self._is_writing():  # noqa: ASYNC110  as in `_until`
            await asyncio.sleep(POLL_S)
        return time.perf_counter() - started

    async def behind(self, last: Sequence[int]) -> list[str]:
        """Sources that have not applied their sequence here, or are not live, after `SETTLE_MAX_S`; none: at once."""
        ends_at = time.monotonic() + SETTLE_MAX_S
        wanted = {source.pod: sequence for source, sequence in zip(self._sources, last, strict=True)}
        while True:
            views = await self.node.source_views()
            missing = [view.pod for view in views if view.state != "live" or (view.sequence or 0) < wanted[view.pod]]
            if not missing or time.monotonic() > ends_at:
                return missing
            await asyncio.sleep(LOOK_S)

    async def _is_writing(self) -> bool:
        views = (await self.node.partitions()).partitions
        return any(view.pending_bytes for view in views if view.owner == self._own_name)

    async def seen(self, after: Mapping[str, int]) -> dict[str, int]:
        """When a lookup that asks for these sequences was answered, by source; all are asked at once."""
        at: dict[str, int] = {}

        async def ask(name: str, sequence: int) -> None:
            query = LookupQuery(tokens=b"\0" * 128, model=MODEL, min_sequence={name: sequence})
            await self.node.wait_applied(query, ASK_MAX_S)
            entry = next(entry for entry in self._entries(query) if entry.pod == name)
            assert entry.reason != "deadline", f"{name}: {sequence} was not applied within {ASK_MAX_S:g} s"
            at[name] = time.monotonic_ns()

        async with asyncio.TaskGroup() as asking:
            for name, sequence in after.items():
                asking.create_task(ask(name, sequence), name=f"ask {name}")
        return at

    # -- pauses of a source --------------------------------------------------------------------------------------------

    def watch_sequences(self) -> None:
        """From now on note when each source's sequence grows here."""
        sequences = {name: _applied(source) for name, source in self._by_name().items()}
        moments = self._moments = {name: [] for name in sequences}
        self._watched_from = time.monotonic_ns()
        reported = self.node.ingest.touched

        def touched(which: SourceIndex) -> None:
            reported(which)
            name = which.descriptor.pod
            if _applied(which) != sequences.get(name):
                sequences[name] = _applied(which)
                moments[name].append(time.monotonic_ns())

        self.node.ingest.touched = touched

    def longest_pauses(self) -> dict[str, float]:
        """Seconds, by source, since `watch_sequences`; begins anew."""
        now = time.monotonic_ns()
        pauses = {name: longest_pause_s(each, self._watched_from, now) for name, each in self._moments.items()}
        for each in self._moments.values():
            each.clear()
        self._watched_from = now
        return pauses

    def _by_name(self) -> dict[str, SourceIndex]:
        return {source.pod: self._index(source) for source in self._sources}

    # -- what it takes -------------------------------------------------------------------------------------------------

    def files(self) -> int:
        """Open file descriptors of this process."""
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208  as many as it gets
