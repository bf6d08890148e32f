"""Live messages off a SUB socket. I/O, without waiting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import zmq

from indexer.collect.options import CollectOptions
from indexer.collect.replay import SEQUENCE_BYTES
from indexer.model import RawBatch

FRAMES: Final = 3
"""Topic, sequence number, payload."""
_SEQUENCE_MAX: Final = 2**64 - 2
"""The number above it marks the end of a replay; no batch has it."""
_NOBLOCK: Final = int(zmq.NOBLOCK)
"""As a plain number: an enum costs half a microsecond each time."""


def parse_message(frames: Sequence[bytes]) -> RawBatch | None:
    """A live message, or None where it is no event batch's."""
    if len(frames) != FRAMES or len(frames[1]) != SEQUENCE_BYTES:
        return None
    sequence = int.from_bytes(frames[1], "big")
    return RawBatch(frames[0], sequence, frames[2]) if sequence <= _SEQUENCE_MAX else None


def read_messages(
    socket: zmq.Socket[bytes], options: CollectOptions, *, ahead: bool = False
) -> tuple[list[RawBatch], int, bool]:
    """Take a quantum: the batches in order, how many messages were malformed, whether the socket was found empty.

    `ahead`: take all that ZMQ may have queued.

    The descriptor signals edges, so whoever is told "not empty" has to come again by himself.
    """
    batches: list[RawBatch] = []
    malformed = 0
    size_bytes = options.quantum_bytes
    for _ in range(options.rcvhwm_messages if ahead else options.quantum_messages):
        if size_bytes <= 0 and not ahead:
            break
        frames = _receive(socket)
        if not frames:
            return batches, malformed, True
        batch = parse_message(frames)
        if batch is None or len(batch.topic) > options.topic_max_bytes:
            malformed += 1
        else:
            batches.append(batch)
            size_bytes -= len(batch.payload)
    return batches, malformed, False


def _receive(socket: zmq.Socket[bytes]) -> list[bytes]:
    """The frames of one message; none where there is no message.

    Frame by frame, because a frame knows whether another follows: `recv_multipart` asks the socket for that, which is
    two thirds of its cost.
    """
    frames: list[bytes] = []
    try:
        frame = socket.recv(_NOBLOCK, copy=False)
    except zmq.Again:
        return frames
    frames.append(frame.bytes)
    while frame.more:
        frame = socket.recv(_NOBLOCK, copy=False)  # frames of one message come together
        if len(frames) <= FRAMES:
            frames.append(frame.bytes)
    return frames
