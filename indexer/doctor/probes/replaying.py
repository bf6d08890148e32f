"""[I/O] Whether a replay endpoint answers, how far back, and whether it is the engine's that was heard.

Three questions. The first is for what is newer than everything and costs the engine nothing; the second is for all it
keeps, of which one batch is read: what a service asks when it starts, and the engine sends it as it would to that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import zmq

from indexer.collect.options import CollectOptions
from indexer.collect.replay import Malformed, parse_reply, request_frames
from indexer.collect.sockets import open_dealer
from indexer.decode.envelope import peek_ts, stamp
from indexer.doctor.facts import First, Replayed
from indexer.model import RawBatch

if TYPE_CHECKING:
    from threading import Event

    from indexer.collect.replay import EndMarker
    from indexer.ports import Clock

PATIENCE_S: Final = 3.0
"""For a connection, and for an answer: an idle engine looks at its replay socket ten times a second."""
LOOK_MS: Final = 100
NEWER_THAN_ALL: Final = 2**63
QUEUED_MAX: Final = 4
"""Replies that wait here unread."""


class Asking:
    """Questions to replay endpoints, within one context."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], clock: Clock, stop: Event) -> None:
        self._context = context
        self._clock = clock
        self._stop = stop
        self._options = CollectOptions(replay_rcvhwm_messages=QUEUED_MAX)

    def replayed(self, endpoint: str, live: First | None) -> Replayed:
        """What it answers; `live`: a batch that was heard."""
        seen = Replayed()
        seen.connected, answer = self._first_reply(endpoint, NEWER_THAN_ALL)
        seen.answers = answer is not None
        if not seen.answers:
            return seen
        _, oldest = self._first_reply(endpoint, 0)
        if isinstance(oldest, RawBatch):
            seen.oldest = _first(oldest)
        if live is not None:
            _, again = self._first_reply(endpoint, live.sequence)
            if isinstance(again, RawBatch):
                seen.same = _first(again) == live
            elif again is not None and seen.oldest is None:
                seen.same = False  # it has nothing at all, and yet something was heard
        return seen

    def _first_reply(self, endpoint: str, first: int) -> tuple[bool, RawBatch | EndMarker | None]:
        """Whether a connection stood, and the first reply to be read."""
        try:
            socket = open_dealer(self._context, endpoint, self._options)
        except zmq.ZMQError:
            return False, None
        try:
            if not self._ready(socket, zmq.POLLOUT):
                return False, None
            socket.send_multipart(request_frames(first), zmq.NOBLOCK)
            if not self._ready(socket, zmq.POLLIN):
                return True, None
            reply = parse_reply(socket.recv_multipart(zmq.NOBLOCK))
            return True, None if isinstance(reply, Malformed) else reply
        except zmq.Again:
            return True, None
        finally:
            socket.close()

    def _ready(self, socket: zmq.Socket[bytes], event: int) -> bool:
        ends_at = self._clock.now() + PATIENCE_S
        while not self._stop.is_set() and self._clock.now() < ends_at:
            if socket.poll(LOOK_MS, event):
                return True
        return False


def _first(batch: RawBatch) -> First:
    return First(batch.sequence, peek_ts(batch.payload), stamp(batch.payload))
