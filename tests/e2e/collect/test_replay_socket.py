"""The conversation with a replay socket, against a ROUTER that answers as each test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Thread

import pytest
import zmq

from indexer.collect.commands import ReplayEnd
from indexer.collect.options import CollectOptions
from indexer.collect.replay import Question, converse
from indexer.collect.sockets import open_context
from indexer.model import RawBatch
from tests.support.collect_batches import batch, batches, late
from tests.support.collecting import LOOPS, run_on, until

pytestmark = pytest.mark.parametrize("loop", LOOPS)

OPTIONS = replace(CollectOptions(), replay_timeout_s=0.5, replay_turn_s=0.1)
Answer = Callable[[list[bytes]], list[list[bytes]]]
END = [b"", b"", b"\xff" * 8, b""]


def frames(message: RawBatch) -> list[bytes]:
    """A reply as of vLLM 0.26, from its delimiter on."""
    return [b"", message.topic, message.sequence.to_bytes(8, "big"), message.payload]


@contextmanager
def router(answer: Answer) -> Iterator[tuple[str, list[list[bytes]]]]:
    """A replay socket; the list grows with each request, as it came behind the identity."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket, stop = context.socket(zmq.ROUTER), context.socket(zmq.PAIR)
    socket.set(zmq.LINGER, 0)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    stop.bind("inproc://stop")
    requests: list[list[bytes]] = []

    def serve() -> None:
        ended = context.socket(zmq.PAIR)
        ended.connect("inproc://stop")
        while True:
            ready, _, _ = zmq.select([socket, ended], [], [])
            if ended in ready:
                break
            identity, *request = socket.recv_multipart()
            requests.append(request)
            for reply in answer(request):
                socket.send_multipart([identity, *reply])
        ended.close()

    thread = Thread(target=serve)
    thread.start()
    try:
        yield f"tcp://127.0.0.1:{port}", requests
    finally:
        stop.send(b"")
        thread.join()
        socket.close()
        stop.close()
        context.term()


class Conversation:
    """One question and what came of it."""

    def __init__(self, options: CollectOptions = OPTIONS) -> None:
        self.options = options
        self.got: list[RawBatch] = []
        self.malformed = 0
        self.chunks: list[int] = []

    async def deliver(self, got: list[RawBatch], malformed: int) -> None:
        self.got += got
        self.malformed += malformed
        self.chunks.append(len(got))

    async def ask(self, endpoint: str, first: int, turn: asyncio.Semaphore | None = None) -> ReplayEnd:
        context = open_context(self.options)
        try:
            question = Question(endpoint, first, turn or asyncio.Semaphore(1))
            return await converse(context, question, self.deliver, self.options)
        finally:
            context.term()  # would hang here if the conversation had left its socket open


def test_replies_and_end_marker(loop: str) -> None:
    """One request with the empty delimiter; all replies in order, then the end."""

    async def main() -> None:
        talk = Conversation()
        with router(lambda _: [*map(frames, batches(5, 99)), END]) as (endpoint, requests):
            assert ReplayEnd.COMPLETE == await talk.ask(endpoint, 5)
        assert late(batches(5, 99)) == talk.got
        assert [[b"", (5).to_bytes(8, "big")]] == requests
        assert max(talk.chunks) <= OPTIONS.quantum_messages

    run_on(loop, main())


def test_large_replies_are_taken_in_small_bites(loop: str) -> None:
    """A quantum is bounded in bytes too."""
    large = [batch(number, size_bytes=OPTIONS.quantum_bytes) for number in range(4)]

    async def main() -> None:
        talk = Conversation()
        with router(lambda _: [*map(frames, large), END]) as (endpoint, _):
            assert ReplayEnd.COMPLETE == await talk.ask(endpoint, 0)
        assert late(large) == talk.got
        assert {0, 1} >= set(talk.chunks)

    run_on(loop, main())


def test_what_is_no_reply_is_counted_and_skipped(loop: str) -> None:
    """Frames of something else between the replies."""

    async def main() -> None:
        talk = Conversation()
        odd = [[b""], [b"", b"short", b"p"], [b"no delimiter", bytes(8), b"p"]]
        with router(lambda _: [frames(batch(0)), *odd, frames(batch(1)), END]) as (endpoint, _):
            assert ReplayEnd.COMPLETE == await talk.ask(endpoint, 0)
        assert late(batches(0, 1)) == talk.got
        assert 3 == talk.malformed

    run_on(loop, main())


@pytest.mark.parametrize("replies", [[], batches(0, 2)], ids=["at once", "after some replies"])
def test_silence_ends_it(loop: str, replies: list[RawBatch]) -> None:
    """No end marker: what came is delivered, the time limit ends the rest."""

    async def main() -> None:
        talk = Conversation()
        with router(lambda _: [*map(frames, replies)]) as (endpoint, _):
            assert ReplayEnd.TIMEOUT == await talk.ask(endpoint, 0)
        assert late(replies) == talk.got

    run_on(loop, main())


def test_nobody_there(loop: str) -> None:
    """A port where nobody listens times out without having taken a turn; an address that is none fails at once."""

    async def main() -> None:
        turn = asyncio.Semaphore(0)
        assert ReplayEnd.TIMEOUT == await Conversation().ask("tcp://127.0.0.1:9", 0, turn)
        assert ReplayEnd.FAILED == await Conversation().ask("nowhere", 0, turn)

    run_on(loop, main())


def test_a_silent_endpoint_gives_its_turn_back(loop: str) -> None:
    """While it is still waited for, another conversation gets the only turn."""

    async def main() -> None:
        turn = asyncio.Semaphore(1)
        silent, good = Conversation(replace(OPTIONS, replay_timeout_s=300.0, replay_overall_s=300.0)), Conversation()
        with router(lambda _: []) as (silent_endpoint, asked), router(lambda _: [END]) as (good_endpoint, _):
            async with asyncio.TaskGroup() as tasks:
                waiting = tasks.create_task(silent.ask(silent_endpoint, 0, turn), name="silent")
                await until(lambda: bool(asked), "the silent one was asked")
                assert ReplayEnd.COMPLETE == await good.ask(good_endpoint, 0, turn)
                assert not waiting.done()
                waiting.cancel()
        assert not turn.locked()

    run_on(loop, main())


def test_cancelled_anywhere_it_leaves_nothing(loop: str) -> None:
    """Hung up while connecting, while waiting for its turn, and while waiting for replies."""

    async def main() -> None:
        with router(lambda _: []) as (endpoint, asked):
            for target, turn, ready in (
                ("tcp://127.0.0.1:9", asyncio.Semaphore(1), lambda: True),
                (endpoint, asyncio.Semaphore(0), lambda: True),
                (endpoint, asyncio.Semaphore(1), lambda: bool(asked)),
            ):
                async with asyncio.TaskGroup() as tasks:
                    task = tasks.create_task(Conversation().ask(target, 0, turn), name="conversation")
                    await asyncio.sleep(0)
                    await until(ready, "on its way")
                    task.cancel()
                assert task.cancelled()

    run_on(loop, main())
