"""A replica whose sources come out of a store, in its own process: when it has them, and when it sees what changed.

Lives in a `Child` on a uvloop, as `Service` does. Does I/O.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

from redis.asyncio import Redis

from indexer.model import SourceId
from loadtest.service import POLL_S, Service, _until, pod

if TYPE_CHECKING:
    from collections.abc import Sequence

    from indexer.index.source import SourceIndex
    from loadtest.content import Document


class Followed(Service):
    """In either role."""

    async def expect(self, engines: int) -> None:
        """Sources as `connect` registered them elsewhere. Returns when all are listed."""
        self._sources = [SourceId(pod(number), 0) for number in range(engines)]
        await _until(lambda: all(source in self.node.registry.sources for source in self._sources))

    async def loaded(self) -> None:
        """Return when all maps are here: every source is `live`, or in doubt because nobody listened for a while."""
        wanted = {(source.pod, source.dp_rank) for source in self._sources}
        while wanted - await self._those("live") - await self._those("suspect"):  # noqa: ASYNC110  as in `_until`
            await asyncio.sleep(POLL_S)

    async def _those(self, state: str) -> set[tuple[str, int]]:
        return {(view.pod, view.dp_rank) for view in await self.node.source_views(state=state)}

    def watch_followed(self, documents: Sequence[Document], url: str, stream: str) -> None:
        """The same where the source is followed through a store; the bare hop is an entry of a stream in it.

        A lookup is made whenever a followed source changed, and each millisecond.
        """
        changed = asyncio.Event()
        reported = self.node.ingest.touched

        def touched(which: SourceIndex) -> None:
            reported(which)
            changed.set()

        self.node.ingest.touched = touched
        self._tasks.create_task(self._see(documents, changed), name="see")
        self._tasks.create_task(self._watch_stream(url, stream), name="watch stream")

    async def _see(self, documents: Sequence[Document], changed: asyncio.Event) -> None:
        for each in documents:
            tokens = each.prompt().tobytes()
            while not any(entry.matched_tokens == len(tokens) // 4 for entry in self._ask(tokens)):
                if self._stop.is_set():
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_S / 2):
                        await changed.wait()
                changed.clear()
                await asyncio.sleep(0)
            self._seen.append((time.monotonic_ns(), 1))

    async def _watch_stream(self, url: str, stream: str) -> None:
        client = Redis(unix_socket_path=url.removeprefix("unix://"), protocol=2)
        after = b"0"
        try:
            while not self._stop.is_set():
                streams: Any = await client.xread({stream: after}, block=100)
                for _, entries in streams or ():
                    self._bare_seen += [time.monotonic_ns()] * len(entries)
                    after = entries[-1][0]
        finally:
            await client.aclose()
