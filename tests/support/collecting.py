"""A running fleet for tests with real sockets, on either event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace

import uvloop

from indexer.clock import SystemClock
from indexer.collect.fleet import Fleet
from indexer.collect.options import CollectOptions
from indexer.ports import Clock, TopicRegistrar
from tests.support.recording_sink import RecordingSink

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}

QUICK = replace(
    CollectOptions(),
    probe_interval_s=0.2,
    tick_s=0.05,
    replay_timeout_s=0.3,
    replay_turn_s=0.1,
    replay_backoff_min_s=0.2,
)
"""Defaults, except that nobody has to wait for seconds."""


def run_on(loop: str, main: Coroutine[None, None, None]) -> None:
    """Run a test's body, with asyncio's own checks switched on."""
    with asyncio.Runner(debug=True, loop_factory=LOOPS[loop]) as runner:
        runner.get_loop().slow_callback_duration = 60.0  # how long things take is nothing to warn of here
        runner.run(main)


async def until(condition: Callable[[], bool], what: str, limit_s: float = 30.0) -> None:
    """Wait for a condition; says which where it does not come."""
    try:
        async with asyncio.timeout(limit_s):
            while not condition():  # noqa: ASYNC110  what is waited for is in the hands of other threads
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"waited {limit_s:g} s in vain: {what}") from None


@asynccontextmanager
async def collecting(
    *sinks: RecordingSink,
    options: CollectOptions = QUICK,
    registrar: TopicRegistrar | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Fleet]:
    """A fleet that subscribes for these sinks until the block ends, and then is closed within a limit."""
    fleet = Fleet(options, SystemClock() if clock is None else clock, registrar)
    for sink in sinks:
        fleet.start(sink)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(fleet.run(stop), name="fleet")
        try:
            yield fleet
        finally:
            stop.set()
