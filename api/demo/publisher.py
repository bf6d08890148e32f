"""The sockets of an engine's event publisher, as vLLM's behave on the wire. One thread at a time.

PUB: three frames (topic, 8-byte big-endian sequence, payload). ROUTER: a request is an empty delimiter and the first
number wanted; the answer is every batch still kept from there on and an end marker, and nothing tells that older ones
are gone. Source: vLLM's `distributed/kv_events.py`, and recordings of 0.10 to 0.33. Does socket I/O.
"""

from __future__ import annotations

import errno
import struct
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import zmq

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BUFFER_STEPS: Final = 10_000
"""vLLM's default for `buffer_steps`: batches kept for replay."""

SEND_HWM: Final = 100_000
"""vLLM's default for `hwm`: messages waiting for one subscriber. Beyond, the newest are dropped for it."""

REBIND_MAX_S: Final = 5.0
"""A socket that is closed gives its port back a moment later; so long a bind on it is tried again."""

END_OF_REPLAY: Final = struct.pack(">q", -1)

_REBIND_PAUSE_S: Final = 0.005
_SEQUENCE: Final = struct.Struct(">Q")
_REQUEST_FRAMES: Final = 3  # identity, empty delimiter, first number wanted


@dataclass(frozen=True, slots=True)
class Wire:
    """How this publisher speaks, where vLLM's versions differ, and its limits.

    `replay_topic_frame`: replies carry the topic (since 0.26) or not. `replay_sndhwm`: None for enough (since 0.33),
    1000 for the older engines, which lose the middle of a long replay to a slow reader without a word.
    """

    replay_topic_frame: bool = True
    replay_sndhwm: int | None = None
    buffer_steps: int = BUFFER_STEPS
    send_hwm: int = SEND_HWM


VLLM_NOW: Final = Wire()


@dataclass(frozen=True, slots=True)
class ReplayFault:
    """What goes wrong in the answer to one replay request.

    `silent`: no answer at all. `omit`: batches lost on the way, as engines up to 0.32 lose them to a slow reader.
    `end_marker` False: the answer stops without its end.
    """

    silent: bool = False
    omit: frozenset[int] = frozenset()
    end_marker: bool = True


class Publisher:
    """Both sockets of one engine process, its replay buffer, and who has subscribed.

    The publishing socket is an XPUB: on the wire the same as a PUB, but it hears of subscriptions.
    """

    def __init__(self, endpoint: str, replay_endpoint: str | None, wire: Wire) -> None:
        """Nothing is bound before `open`. A port 0 is replaced by the port that was given, for good."""
        self.endpoint, self.replay_endpoint = endpoint, replay_endpoint
        self.subscribers = 0
        self._wire = wire
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._buffer: deque[tuple[int, bytes, bytes]] = deque(maxlen=wire.buffer_steps)
        self._publisher: zmq.Socket[bytes] | None = None
        self._router: zmq.Socket[bytes] | None = None

    def open(self) -> None:
        """Bind. Raises `zmq.ZMQError` where that is not possible; both sockets are closed then."""
        if self._publisher is not None:
            return
        patience_s = 0.0 if self._context is None else REBIND_MAX_S  # only what we had ourselves comes free again
        try:
            context = self._context = self._context or zmq.Context()
            self._open_publisher(context, patience_s)
            self._open_router(context, patience_s)
        except zmq.ZMQError:
            self.shut()
            raise

    def shut(self, linger_ms: int = 0) -> None:
        """Close both sockets; what they still hold has `linger_ms` to leave."""
        for each in self.sockets():
            each.close(linger=linger_ms)
        self._publisher = self._router = None
        self.subscribers = 0

    def end(self) -> None:
        """Close what is open, and wait until the last messages have left or their time is over."""
        self.shut()
        if self._context is not None:
            self._context.term()
            self._context = None

    def sockets(self) -> Iterator[zmq.Socket[bytes]]:
        """What to poll for reading."""
        yield from (each for each in (self._publisher, self._router) if each is not None)

    def forget(self) -> None:
        """Nothing left to replay: a new process."""
        self._buffer.clear()

    def send_batch(self, sequence: int, topic: bytes, payload: bytes, *, lost: bool) -> None:
        """Send, then keep for replay; in this order, as the engine does. `lost` keeps only."""
        if not lost:
            self.send((topic, _SEQUENCE.pack(sequence), payload))
        self._buffer.append((sequence, topic, payload))

    def send(self, frames: Sequence[bytes]) -> None:
        """Send frames as they are; into the void while the sockets are closed."""
        if self._publisher is not None:
            self._publisher.send_multipart(frames)

    def note_subscriptions(self) -> bool:
        """Count subscriptions that came or went. True when there were any."""
        changed = False
        while self._publisher is not None and _readable(self._publisher):
            self.subscribers += 1 if self._publisher.recv()[:1] == b"\x01" else -1
            changed = True
        return changed

    def next_replay_request(self) -> tuple[bytes, int] | None:
        """Who asks, and the first number wanted. None where nobody asks, or not in the way the engine understands."""
        if self._router is None or not _readable(self._router):
            return None
        request = self._router.recv_multipart()
        if len(request) != _REQUEST_FRAMES or request[1]:
            return None  # vLLM writes a log line and never answers
        return request[0], int.from_bytes(request[2], "big")

    def answer_replay(self, identity: bytes, start: int, fault: ReplayFault) -> None:
        """Send all that is kept from `start` on, oldest first, and the end marker."""
        if fault.silent:
            return
        for sequence, topic, payload in self._buffer:
            if sequence >= start and sequence not in fault.omit:
                self._reply(identity, topic, _SEQUENCE.pack(sequence), payload)
        if fault.end_marker:
            self._reply(identity, b"", END_OF_REPLAY, b"")

    def _reply(self, identity: bytes, topic: bytes, sequence: bytes, payload: bytes) -> None:
        if self._router is None:
            return
        topic_frame = (topic,) if self._wire.replay_topic_frame else ()
        self._router.send_multipart((identity, b"", *topic_frame, sequence, payload))

    def _open_publisher(self, context: zmq.Context[zmq.Socket[bytes]], patience_s: float) -> None:
        publisher = self._publisher = context.socket(zmq.XPUB)
        publisher.set(zmq.XPUB_VERBOSER, 1)  # every subscription and its end, not only the first and the last
        publisher.set(zmq.SNDHWM, self._wire.send_hwm)
        self.endpoint = _bind(publisher, self.endpoint, patience_s)

    def _open_router(self, context: zmq.Context[zmq.Socket[bytes]], patience_s: float) -> None:
        if self.replay_endpoint is None:
            return
        router = self._router = context.socket(zmq.ROUTER)
        hwm = self._wire.replay_sndhwm
        router.set(zmq.SNDHWM, 2 * (self._wire.buffer_steps + 1) if hwm is None else hwm)
        self.replay_endpoint = _bind(router, self.replay_endpoint, patience_s)


def _readable(socket: zmq.Socket[bytes]) -> bool:
    return bool(int(socket.get(zmq.EVENTS)) & zmq.POLLIN)


def _bind(socket: zmq.Socket[bytes], endpoint: str, patience_s: float) -> str:
    """Bind and return the endpoint with its real port."""
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.IPV6, 1 if "[" in endpoint else 0)
    give_up_at = time.monotonic() + patience_s
    while True:
        try:
            socket.bind(endpoint)
            return socket.get_string(zmq.LAST_ENDPOINT)
        except zmq.ZMQError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > give_up_at:
                raise
            time.sleep(_REBIND_PAUSE_S)
