"""Engines that die while a question to them waits for its turn: the loop goes on, the question times out."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from threading import Event, Thread

import pytest
import zmq

from indexer.collect.commands import ReplayEnd
from indexer.collect.options import CollectOptions
from indexer.collect.replay import Question, converse
from indexer.collect.sockets import open_context, open_dealer, state_of
from indexer.model import RawBatch
from tests.support.collecting import LOOPS, run_on, until

pytestmark = pytest.mark.parametrize("loop", LOOPS)

OPTIONS = replace(CollectOptions(), replay_timeout_s=0.5, replay_turn_s=0.1)
RESCUE_AFTER_S = 20.0


class TakenTurn(asyncio.Semaphore):
    """Somebody else has the turn; it is known when one is waited for."""

    def __init__(self) -> None:
        super().__init__(0)
        self.wanted = False

    async def acquire(self) -> bool:
        self.wanted = True
        return await super().acquire()


class Rescue:
    """Listens on the port after a while, unless told in time that nobody hangs: a test that fails must also end."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._done, self.needed = Event(), False
        self._thread = Thread(target=self._wait)
        self._thread.start()

    def _wait(self) -> None:
        if self._done.wait(RESCUE_AFTER_S):
            return
        self.needed = True
        with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
            socket.bind(f"tcp://127.0.0.1:{self._port}")
            socket.poll(int(RESCUE_AFTER_S * 1_000))

    def over(self) -> None:
        self._done.set()
        self._thread.join()


async def _nothing(_batches: list[RawBatch], _malformed: int) -> None:
    """Nothing is delivered here."""


def test_an_engine_that_dies_while_its_question_waits(loop: str) -> None:
    """The send must not wait for a connection that is gone: that would hold up every source."""

    async def main() -> None:
        engine: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        router = engine.socket(zmq.ROUTER)
        router.set(zmq.LINGER, 0)
        port = router.bind_to_random_port("tcp://127.0.0.1")
        endpoint = f"tcp://127.0.0.1:{port}"
        context = open_context(OPTIONS)
        twin = open_dealer(context, endpoint, OPTIONS)  # sees what the question's own socket sees
        turn = TakenTurn()
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(converse(context, Question(endpoint, 0, turn), _nothing, OPTIONS), name="asked")
            await until(lambda: turn.wanted and bool(state_of(twin) & zmq.POLLOUT), "both are connected")
            router.close()
            engine.term()
            await until(lambda: not state_of(twin) & zmq.POLLOUT, "the loss is known")
            rescue = Rescue(port)
            turn.release()
            end = await asked
        rescue.over()
        twin.close()
        context.term()
        assert ReplayEnd.TIMEOUT == end
        assert not rescue.needed
        assert not turn.locked(), "given back"

    run_on(loop, main())
