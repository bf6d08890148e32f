"""[I/O] What many event endpoints say while they are listened to, all at once, in the thread that calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import zmq
from zmq.utils.monitor import recv_monitor_message

from indexer.collect.messages import parse_message
from indexer.collect.options import CollectOptions
from indexer.collect.replay import Malformed, parse_reply, request_frames
from indexer.collect.sockets import attach, open_dealer, open_subscriber
from indexer.decode.envelope import peek_ts, stamp
from indexer.decode.vllm import decode
from indexer.doctor.facts import First, Heard
from indexer.doctor.probes.replaying import NEWER_THAN_ALL
from indexer.model import BlocksStored, Tier

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from threading import Event

    from indexer.model import RawBatch
    from indexer.ports import Clock

SHAKE_S: Final = 3.0
"""For ZMQ's handshake, before listening begins."""
LOOK_MS: Final = 50
DECODED_MAX: Final = 32
"""Batches of one endpoint that are read; the rest is counted."""
TURN_MAX: Final = 256
"""Messages of one endpoint before the next has its turn."""
TOPICS_MAX: Final = 16
_REPLAY_SHAKE_MS: Final = 1_000
_DONE: Final = zmq.EVENT_HANDSHAKE_SUCCEEDED
_FAILED: Final = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_DISCONNECTED  # the other side may be the one that finds out
)


class _Ear:
    """One endpoint's sockets, and what came."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, options: CollectOptions) -> None:
        self.heard = Heard()
        self.endpoint = endpoint
        self._last: dict[bytes, int] = {}
        self.socket = open_subscriber(context, options)
        self.monitor = self.socket.get_monitor_socket(_DONE | _FAILED)
        self.monitor.set(zmq.LINGER, 0)
        try:
            attach(self.socket, endpoint)
        except zmq.ZMQError:
            self.close()
            raise

    def close(self) -> None:
        self.socket.disable_monitor()
        self.monitor.close()
        self.socket.close()

    @property
    def settled(self) -> bool:
        return self.heard.connected or self.heard.refused

    def note_handshake(self) -> None:
        while self.monitor.poll(0):
            event = recv_monitor_message(self.monitor)["event"]
            self.heard.connected |= bool(event & _DONE)
            self.heard.refused |= bool(event & _FAILED) and not self.heard.connected

    def take(self, clock: Clock) -> None:
        for _ in range(TURN_MAX):
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            batch = parse_message(frames)
            if batch is None:
                self.heard.malformed += 1
            else:
                self._note(batch, clock)

    def _note(self, batch: RawBatch, clock: Clock) -> None:
        heard = self.heard
        heard.batches += 1
        topic = batch.topic[:512]
        if topic in heard.topics or len(heard.topics) < TOPICS_MAX:
            heard.topics[topic] += 1
            last = self._last.get(topic)
            if last is not None and batch.sequence > last + 1:
                heard.missing += batch.sequence - last - 1
            self._last[topic] = batch.sequence
        ts = peek_ts(batch.payload)
        heard.last = First(batch.sequence, ts, stamp(batch.payload))
        if heard.first is None:
            heard.first = heard.last
        if ts is not None:
            heard.skew_s = clock.wall_us() / 1e6 - ts
        if heard.batches <= DECODED_MAX:
            self._read(batch.payload)

    def _read(self, payload: bytes) -> None:
        decoded = decode(payload)
        if decoded is None:
            self.heard.undecodable += 1
            return
        if decoded.dp_rank is not None:
            self.heard.ranks.add(decoded.dp_rank)
        for event in decoded.events:
            if isinstance(event, BlocksStored) and event.is_dense and event.tier is Tier.GPU:
                self.heard.block_sizes[event.block_size] += 1


def listen(
    context: zmq.Context[zmq.Socket[bytes]],
    endpoints: Sequence[str],
    seconds: float,
    clock: Clock,
    stop: Event,
    progress: Callable[[float, int], None] = lambda _left, _batches: None,
) -> dict[str, Heard]:
    """By endpoint. Where a handshake failed, whether a replay socket is there.

    `progress` is told how many seconds are left and how many batches came.
    """
    options = CollectOptions(handshake_timeout_s=SHAKE_S)
    ears: list[_Ear] = []
    out: dict[str, Heard] = {}
    try:
        for endpoint in dict.fromkeys(endpoints):
            try:
                ears.append(_Ear(context, endpoint, options))
            except zmq.ZMQError:
                out[endpoint] = Heard(refused=True)
        _run(ears, SHAKE_S, clock, stop, lambda _left: all(ear.settled for ear in ears))
        began = clock.now()
        _run(ears, seconds, clock, stop, lambda left: _told(ears, left, progress))
        for ear in ears:
            ear.heard.listened_s = clock.now() - began
            out[ear.endpoint] = ear.heard
    finally:
        for ear in ears:
            ear.close()
    for endpoint, heard in out.items():
        if not heard.connected and not stop.is_set():
            heard.is_replay = _speaks_replay(context, endpoint, options)
    return out


def _told(ears: Sequence[_Ear], left_s: float, progress: Callable[[float, int], None]) -> bool:
    """Enough was heard: never."""
    progress(left_s, sum(ear.heard.batches for ear in ears))
    return False


def _run(ears: Sequence[_Ear], seconds: float, clock: Clock, stop: Event, done: Callable[[float], bool]) -> None:
    poller = zmq.Poller()
    for ear in ears:
        poller.register(ear.socket, zmq.POLLIN)
        poller.register(ear.monitor, zmq.POLLIN)
    ends_at = clock.now() + seconds
    while ears and (left := ends_at - clock.now()) > 0 and not stop.is_set() and not done(left):
        ready = dict(poller.poll(int(min(LOOK_MS, left * 1_000))))
        for ear in ears:
            if ear.monitor in ready:
                ear.note_handshake()
            if ear.socket in ready:
                ear.take(clock)


def _speaks_replay(context: zmq.Context[zmq.Socket[bytes]], endpoint: str, options: CollectOptions) -> bool:
    """It answers a question as one: that a connection stands says little, as any server looks like an old ZMQ's."""
    try:
        socket = open_dealer(context, endpoint, options)
    except zmq.ZMQError:
        return False
    try:
        if not socket.poll(_REPLAY_SHAKE_MS, zmq.POLLOUT):
            return False
        socket.send_multipart(request_frames(NEWER_THAN_ALL), zmq.NOBLOCK)
        if not socket.poll(_REPLAY_SHAKE_MS, zmq.POLLIN):
            return False
        return not isinstance(parse_reply(socket.recv_multipart(zmq.NOBLOCK)), Malformed)
    except zmq.Again:
        return False
    finally:
        socket.close()
