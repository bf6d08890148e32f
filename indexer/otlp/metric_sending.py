"""[I/O] The metrics of this process, sent to a collector now and then.

Promise: one export is under way at most, and one that fails is dropped, counted, and told of once a change: the next
tells all anew. At the stop the last numbers go out, for a moment.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, get_args

from indexer.otlp.collector import METRICS, Troubles
from indexer.otlp.sending import within
from indexer.otlp.writing import not_taken
from indexer.ports import ExportResult
from indexer.slices import Slices

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator

    import httpx

    from indexer.log_lines import Say
    from indexer.otlp.collector import Collector
    from indexer.ports import Clock

FLUSH_S: Final = 2.0


class MetricSending:
    """One a process. `requests` is asked for each export (metric_writing.py); `counts` by result."""

    def __init__(
        self,
        collector: Collector,
        clock: Clock,
        requests: Callable[[], Iterator[bytes | None]],
        counts: Counter[ExportResult],
        *,
        every_s: float,
        say: Say,
    ) -> None:
        self._collector = collector
        self._clock = clock
        self._requests = requests
        self._counts = counts
        counts.update(dict.fromkeys(get_args(ExportResult), 0))
        self._every_s = every_s
        self._troubles = Troubles("metrics", "metrics_failing", "metrics_taken", shown=collector.shown, say=say)

    async def run(self, stop: asyncio.Event) -> None:
        """Send until `stop` is set; then once more, for a while: nobody waits longer for a collector."""
        async with self._collector.client() as http, asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(self._keep_sending(http, stop), name="metrics: send")
            await stop.wait()
            await asyncio.wait([sending], timeout=FLUSH_S)
            sending.cancel()

    async def _keep_sending(self, http: httpx.AsyncClient, stop: asyncio.Event) -> None:
        due = self._clock.now() + self._every_s
        last = False
        while not last:
            await within(stop, max(0.0, due - self._clock.now()))
            last = stop.is_set()
            due = self._clock.now() + self._every_s  # one that takes longer is not caught up with
            await self._export(http)

    async def _export(self, http: httpx.AsyncClient) -> None:
        """One that leaves no harm."""
        try:
            result = await self._send_all(http)
        except Exception as error:  # noqa: BLE001  no metric is worth the service
            self._troubles.tell(f"metrics could not be written: {type(error).__name__}")
            result = "failed"
        self._counts[result] += 1

    async def _send_all(self, http: httpx.AsyncClient) -> ExportResult:
        """All there is now, in as many requests as it takes; the first that is not taken is the last."""
        slices, refused = Slices(self._clock), 0
        for content in self._requests():
            await slices.turn()
            if content is None:
                continue
            answer = await self._collector.post(http, METRICS, content)
            self._troubles.tell(answer.trouble)
            if answer.trouble is not None:
                return "failed" if answer.again else "refused"
            refused += not_taken(answer.content)
        return "refused" if refused else "sent"
