"""[I/O] Spans that ended, sent to a collector in the background.

Promise: bounded, and in nobody's way. `KEPT` spans wait at most, what comes then is dropped and counted; a collector
that is away is asked again and again, ever more seldom, and the log says so once; at the stop there is a moment for
what is under way and what is left, and no more. No span and no answer ends this part: what cannot be written is
dropped and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, get_args

from opentelemetry.sdk.trace import SpanProcessor

from indexer.otlp.collector import TRACES, Troubles
from indexer.otlp.writing import not_taken, request_of
from indexer.ports import SpanResult
from indexer.slices import Slices

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan, Span

    from indexer.log_lines import Say
    from indexer.otlp.collector import Collector
    from indexer.ports import Clock

KEPT: Final = 2_048
BATCH: Final = 256
"""Spans in one request: under 100 kB."""
LIMIT: Final = "telemetry.spans"


class Times(NamedTuple):
    """In seconds."""

    every_s: float = 2.0
    """Between two requests, where little ends."""
    rest_s: float = 1.0
    """Before a collector in trouble is asked again; twice as long each time, up to `rest_max_s`."""
    rest_max_s: float = 30.0
    flush_s: float = 2.0
    """At the stop, for what is under way and what is left."""


_TIMES: Final = Times()


class Sending(SpanProcessor):
    """One a process, on one event loop. `counts` by result; `reached` is told the limit."""

    def __init__(
        self,
        collector: Collector,
        clock: Clock,
        counts: Counter[SpanResult],
        *,
        reached: Callable[[str], None],
        say: Say,
        times: Times = _TIMES,
    ) -> None:
        self._collector = collector
        self._times = times
        self._clock = clock
        self._counts = counts
        counts.update(dict.fromkeys(get_args(SpanResult), 0))  # a series that is not there is taken for none wanted
        self._reached = reached
        self._troubles = Troubles("traces", "traces_failing", "traces_taken", shown=collector.shown, say=say)
        self._waiting: deque[ReadableSpan] = deque()
        self._many = asyncio.Event()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing: what counts is its end."""

    def on_end(self, span: ReadableSpan) -> None:
        """Keep it, where there is room."""
        if len(self._waiting) >= KEPT:
            self._counts["dropped"] += 1
            self._reached(LIMIT)
            return
        self._waiting.append(span)
        if len(self._waiting) >= BATCH:
            self._many.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Send what comes, until `stop` is set; then what is left, for a while: nobody waits longer for a collector."""
        async with self._collector.client() as http, asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(self._keep_sending(http, stop), name="spans: send")
            await stop.wait()
            self._many.set()
            await asyncio.wait([sending], timeout=self._times.flush_s)  # a request under way is not begun anew
            sending.cancel()
        self._counts["dropped"] += len(self._waiting)
        self._waiting.clear()

    async def _keep_sending(self, http: httpx.AsyncClient, stop: asyncio.Event) -> None:
        """Until `stop` is set, and what is left then: how long that may take is bounded above."""
        rest_s = self._times.rest_s
        while not stop.is_set():
            await within(self._many, self._times.every_s)
            if await self._send_all(http):
                rest_s = self._times.rest_s
            else:
                await within(stop, rest_s)
                rest_s = min(2 * rest_s, self._times.rest_max_s)
        await self._send_all(http)

    async def _send_all(self, http: httpx.AsyncClient) -> bool:
        """What waits now, in as many requests as it takes; False where the collector is to be asked again later."""
        self._many.clear()
        while self._waiting:
            batch = list(islice(self._waiting, BATCH))
            trouble, again = await self._send(http, batch)
            self._troubles.tell(trouble)
            if again:
                return False
            for _ in batch:
                self._waiting.popleft()
        return True

    async def _send(self, http: httpx.AsyncClient, batch: list[ReadableSpan]) -> tuple[str | None, bool]:
        """What went wrong, if anything, and whether the same may be sent again."""
        try:
            content = await Slices(self._clock).run(request_of(batch))
        except Exception as error:  # noqa: BLE001  no span is worth the service
            self._counts["dropped"] += len(batch)
            return f"spans could not be written: {type(error).__name__}", False
        answer = await self._collector.post(http, TRACES, content)
        if answer.trouble is not None:
            self._counts["refused"] += 0 if answer.again else len(batch)
            return answer.trouble, answer.again
        refused = min(not_taken(answer.content), len(batch))
        self._counts["refused"] += refused
        self._counts["sent"] += len(batch) - refused
        return None, False


async def within(event: asyncio.Event, seconds: float) -> None:
    """Wait for it, or so long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
