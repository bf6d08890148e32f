"""Whole nodes in the test's process, each on a loop and a thread of its own, so that one can stand still alone."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar

from indexer.clock import SystemClock
from indexer.node import Node

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from indexer.settings import Settings

DEADLINE_S: Final = 30.0
KILL_AGAIN_S: Final = 0.1
T = TypeVar("T")


class NodeThread:
    """A node that runs from now on. All methods are for the thread of the test.

    While it is held its loop does nothing, as in a process that is stopped; the sockets' own threads go on.
    """

    def __init__(self, settings: Settings) -> None:
        self.node: Node
        self.is_held = False
        self._kills = False
        self._gate = threading.Event()
        self._begun = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop: asyncio.Event
        self._main: asyncio.Task[None]
        self._whole: asyncio.Task[None] | None
        self._thread = threading.Thread(target=self._run, args=(settings,), name=f"node {settings.redis.replica}")
        self._thread.start()
        assert self._begun.wait(DEADLINE_S), "a node does not begin"

    # -- asking --------------------------------------------------------------------------------------------------------

    def call(self, function: Callable[[], T]) -> T:
        """What `function` says on the node's loop, with nothing in between."""

        async def ask() -> T:
            return function()

        return self.run(ask())

    def run(self, question: Coroutine[Any, Any, T]) -> T:
        """The same of a coroutine, which may wait there."""
        assert not self.is_held
        return asyncio.run_coroutine_threadsafe(question, self._loop).result(DEADLINE_S)

    @property
    def is_running(self) -> bool:
        """False where something ended it."""
        return self._thread.is_alive()

    # -- what happens to it --------------------------------------------------------------------------------------------

    def hold(self, at_waking: Callable[[], None]) -> None:
        """Its loop stands still from now on. `at_waking` is called before anything else goes on."""
        assert not self.is_held
        held = threading.Event()
        self.is_held = True

        def stand() -> None:
            held.set()
            self._gate.wait()
            self._gate.clear()
            if self._kills:
                self._kill_again()
            else:
                at_waking()

        self._loop.call_soon_threadsafe(stand)
        assert held.wait(DEADLINE_S), "a loop does not come to a stop"

    def wake(self) -> None:
        """Its loop goes on."""
        assert self.is_held
        self.is_held = False
        self._gate.set()

    def kill(self) -> None:
        """Nothing is flushed and nothing given up. Where it must not say a last word, cut its link before."""
        self._kills = True
        if self.is_held:
            self.wake()
        else:
            self._loop.call_soon_threadsafe(self._kill_again)
        self._join()

    def end(self) -> None:
        """As on SIGTERM."""
        assert not self.is_held
        self._loop.call_soon_threadsafe(self._stop.set)
        self._join()

    def _join(self) -> None:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "a node does not end"

    # -- in its thread -------------------------------------------------------------------------------------------------

    def _run(self, settings: Settings) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._live(settings))

    def _kill_again(self) -> None:
        """Each task, until none is left: one that catches a failure while it is cancelled would go on."""
        if not self._main.done():
            for task in asyncio.all_tasks(self._loop) - {self._whole}:
                task.cancel()
            self._loop.call_later(KILL_AGAIN_S, self._kill_again)

    async def _live(self, settings: Settings) -> None:
        self._whole = asyncio.current_task()
        self.node = Node(settings, SystemClock())
        self._stop = asyncio.Event()
        self._main = asyncio.get_running_loop().create_task(self.node.run(self._stop), name="node")
        self._begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await self._main
        if self._main.cancelled() and self.node.replica is not None:
            await self.node.replica._parts.client.close()
