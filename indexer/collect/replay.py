"""The conversation with an engine's replay socket: one question, many replies, an end marker perhaps. I/O.

A fresh DEALER for each question, so that a late reply to an older one is never mistaken for this one's. A REQ socket
would receive the first reply only; a request without the empty delimiter gets none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Final, TypeAlias

import zmq

from indexer.collect.commands import ReplayEnd
from indexer.collect.options import CollectOptions
from indexer.collect.sockets import descriptor_of, open_dealer, state_of
from indexer.model import RawBatch

SEQUENCE_BYTES: Final = 8
_FRAMES_WITH_TOPIC: Final = 3
_FRAMES_BEFORE_026: Final = 2
_END: Final = b"\xff" * SEQUENCE_BYTES


@dataclass(frozen=True, slots=True)
class EndMarker:
    """The engine sent all it has."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """No reply of a replay socket."""


END_MARKER: Final = EndMarker()
MALFORMED: Final = Malformed()


def request_frames(first: int) -> list[bytes]:
    """What a DEALER sends to get all batches from number `first` on."""
    return [b"", first.to_bytes(SEQUENCE_BYTES, "big")]


def parse_reply(frames: Sequence[bytes]) -> RawBatch | EndMarker | Malformed:
    """One reply as a DEALER receives it.

    After the delimiter come `seq, payload` (vLLM up to 0.25) or `topic, seq, payload`; the end marker has the same form
    with all ones as its number.
    """
    if not frames or frames[0] != b"":
        return MALFORMED
    body = frames[1:]
    if len(body) not in {_FRAMES_BEFORE_026, _FRAMES_WITH_TOPIC} or len(body[-2]) != SEQUENCE_BYTES:
        return MALFORMED
    if body[-2] == _END:
        return END_MARKER
    topic = body[0] if len(body) == _FRAMES_WITH_TOPIC else b""
    return RawBatch(topic, int.from_bytes(body[-2], "big"), body[-1], late=True)


@dataclass(frozen=True, slots=True)
class Question:
    """All batches from number `first` on, asked within a `turn`, which bounds what engines send us at once."""

    endpoint: str
    first: int
    turn: AbstractAsyncContextManager[object]


Deliver: TypeAlias = Callable[[list[RawBatch], int], Awaitable[None]]
"""Takes replies, in order, and how many messages were none; waits while there is no room for more."""


async def converse(
    context: zmq.Context[zmq.Socket[bytes]], question: Question, deliver: Deliver, options: CollectOptions
) -> ReplayEnd:
    """Ask, and pass the replies on until the end marker or `replay_timeout_s` without any.

    Connecting takes no turn, and an endpoint that stays silent gives its turn back: the dead do not hold up others.
    """
    try:
        socket = open_dealer(context, question.endpoint, options)
    except zmq.ZMQError:
        return ReplayEnd.FAILED
    try:
        await _ready(socket, zmq.POLLOUT, options.replay_timeout_s)
        async with AsyncExitStack() as turn:
            await turn.enter_async_context(question.turn)
            await _ready(socket, zmq.POLLOUT, options.replay_turn_s)  # it may have gone while the turn was waited for
            socket.send_multipart(request_frames(question.first), zmq.NOBLOCK)
            try:
                await _ready(socket, zmq.POLLIN, options.replay_turn_s)
            except TimeoutError:
                await turn.aclose()
                await _ready(socket, zmq.POLLIN, options.replay_timeout_s - options.replay_turn_s)
            return await _listen(socket, deliver, options)
    except (TimeoutError, zmq.Again):
        return ReplayEnd.TIMEOUT
    finally:
        socket.close()


async def _listen(socket: zmq.Socket[bytes], deliver: Deliver, options: CollectOptions) -> ReplayEnd:
    """Pass the replies on. Raises TimeoutError when they stop coming."""
    while True:
        batches, malformed, ended = _read(socket, options)
        if batches or malformed:
            await deliver(batches, malformed)
        if ended:
            return ReplayEnd.COMPLETE
        await asyncio.sleep(0)  # the loop is not ours alone, and there may be seconds' worth of replies
        await _ready(socket, zmq.POLLIN, options.replay_timeout_s)


def _read(socket: zmq.Socket[bytes], options: CollectOptions) -> tuple[list[RawBatch], int, bool]:
    """Take a quantum of replies: batches, how many were malformed, whether the end marker came."""
    batches: list[RawBatch] = []
    malformed = 0
    size_bytes = options.quantum_bytes
    for _ in range(options.quantum_messages):
        if size_bytes <= 0:
            break
        try:
            reply = parse_reply(socket.recv_multipart(zmq.NOBLOCK))
        except zmq.Again:
            break
        if isinstance(reply, EndMarker):
            return batches, malformed, True
        if isinstance(reply, Malformed):
            malformed += 1
        else:
            batches.append(reply)
            size_bytes -= len(reply.payload)
    return batches, malformed, False


async def _ready(socket: zmq.Socket[bytes], event: int, limit_s: float) -> None:
    """Wait until the socket is readable or writable; TimeoutError after `limit_s`.

    Its descriptor only tells that something changed, and only once: so the state is looked at after the watch is set up
    and after each sign.
    """
    if state_of(socket) & event:
        return
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    descriptor = descriptor_of(socket)
    loop.add_reader(descriptor, changed.set)
    try:
        async with asyncio.timeout(limit_s):
            while not state_of(socket) & event:
                await changed.wait()
                changed.clear()
    finally:
        loop.remove_reader(descriptor)
