"""One bound socket for many engines that connect to us (`--source-bind`). I/O around one session per publisher.

Publishers are told apart by (topic, rank) and never by connection alone: numbers of different publishers are never
mixed. Where two topics name the same pod and rank the newer one counts: an engine that serves another model now. There
is no replay here: nobody knows where a connecting engine's replay socket is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import zmq

from indexer.collect.commands import Ask, Command, HangUp
from indexer.collect.lanes import Lane
from indexer.collect.messages import parse_message
from indexer.collect.remarks import SHOWN_MAX
from indexer.collect.session import Session
from indexer.collect.sockets import Link, Monitor, attach, descriptor_of, open_subscriber
from indexer.collect.subscriber import Shared, tell_core
from indexer.decode.envelope import peek_rank
from indexer.decode.topic import parse_topic
from indexer.errors import SettingsError
from indexer.model import RawBatch, SourceId
from indexer.ports import EventSink, TopicRegistrar

log = logging.getLogger(__name__)

_NO_CONNECTION: Final = -1

Publisher = tuple[bytes, int]
"""(topic, rank)."""


@dataclass(slots=True)
class BoundCounts:
    """What could be given to no source."""

    malformed: int = 0
    unnamed: int = 0
    """The topic is empty: it names nobody."""
    refused: int = 0
    """The registrar takes no more sources, the name is another's, the source has a subscriber of its own, or another
    topic took its place just now."""


@dataclass(slots=True)
class _Stream:
    """One publisher: its source, its session and the connection its last message came by."""

    sink: EventSink
    session: Session
    connection: int = _NO_CONNECTION
    lost: int = _NO_CONNECTION
    """The connection it had last: what is still read of it tells nothing new."""
    waiting: list[RawBatch] = field(default_factory=list)
    proven: bool = True
    """Its connection is known to be answered: False after a pause of this process, until it is again."""


class BoundSocket:
    """A bound SUB socket and the streams on it. Streams begin with a publisher's first message."""

    def __init__(self, endpoint: str, registrar: TopicRegistrar, shared: Shared) -> None:
        self._wanted_endpoint = endpoint
        self._registrar = registrar
        self._shared = shared
        self._streams: dict[Publisher, _Stream] = {}
        self._feeders: dict[SourceId, Publisher] = {}  # whose stream is a source's
        self._refused: dict[Publisher, float] = {}  # publisher → when, oldest first
        self._connections: set[int] = set()  # descriptors of those that stand
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: Monitor | None = None
        self._descriptors: tuple[int, ...] = ()
        self._looked_at = self._ticked_at = shared.clock.now()
        self._proven_at = self._looked_at
        self._from_before = False  # what is read may have come in before the pause
        self.counts = BoundCounts()

    # --- life ---

    def open(self) -> None:
        """Bind. Raises SettingsError where that cannot be done."""
        socket = open_subscriber(self._shared.context, self._shared.options, bound=True)
        self._monitor = Monitor(socket, bound=True)
        self._socket = socket
        try:
            attach(socket, self._wanted_endpoint, bind=True)
        except zmq.ZMQError as error:
            self.close()
            raise SettingsError("source-bind", f"cannot bind {self._wanted_endpoint}: {error.strerror}") from error
        self._descriptors = (descriptor_of(socket), self._monitor.descriptor)
        loop = asyncio.get_running_loop()
        for descriptor in self._descriptors:
            loop.add_reader(descriptor, self._shared.pump.wake, self)
        self._shared.pump.wake(self)

    def close(self) -> None:
        """Stop at once."""
        loop = asyncio.get_running_loop()
        for descriptor in self._descriptors:
            loop.remove_reader(descriptor)
        self._descriptors = ()
        if self._monitor is not None:
            self._monitor.close()
            self._monitor = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._streams.clear()
        self._feeders.clear()

    @property
    def endpoint(self) -> str:
        """Where engines can connect: the real port where 0 was asked for."""
        if self._socket is None:
            return self._wanted_endpoint
        return self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def sources(self) -> Iterator[SourceId]:
        """Whose streams run here."""
        return (stream.sink.descriptor.id for stream in self._streams.values())

    def stop(self, source: SourceId) -> None:
        """Forget that source's stream. Its next message proposes it anew."""
        publisher = self._feeders.pop(source, None)
        if publisher is not None:
            self._streams.pop(publisher, None)

    # --- reading ---

    def drain(self) -> bool:
        """One quantum; True when there is more."""
        if self._socket is None or self._monitor is None:
            return False
        now = self._shared.clock.now()
        arrived, emptied = self._read(self._socket)
        changes = self._monitor.drain()  # after the messages, as in Subscriber
        for link, connection in changes:
            self._on_change(link, connection, now)
        self._looked_at = now
        self._take(arrived, now)
        self._from_before = self._from_before and not emptied
        if emptied and not changes:
            for stream in self._streams.values():
                if stream.session.unsettled:
                    self._perform(stream, stream.session.socket_empty(now))
        return not emptied or bool(changes)

    def _take(self, arrived: list[tuple[RawBatch, int]], now: float) -> None:
        """Give each stream the messages that are its own, in one go."""
        busy: list[_Stream] = []
        for batch, connection in arrived:
            self._sort_in(batch, connection, busy, now)
        for stream in busy:
            batches, stream.waiting = stream.waiting, []
            stream.proven = stream.proven or not self._from_before
            if batches:  # none where another topic took its place
                self._perform(stream, stream.session.messages(batches, now))

    def tick(self) -> None:
        """Look at the connections and let the sessions know that time passes."""
        if self._monitor is not None and self._monitor.pending:
            self._shared.pump.wake(self)
            self.drain()
        now = self._looked_at = self._shared.clock.now()
        self._note_pause(now)
        for stream in list(self._streams.values()):
            if not stream.sink.open:
                self.stop(stream.sink.descriptor.id)
                continue
            self._perform(stream, stream.session.tick(now))
            stream.proven = stream.proven or now >= self._proven_at
            if stream.proven or not stream.session.connected:
                stream.sink.alive(stream.session.connected)

    def _note_pause(self, now: float) -> None:
        """After a pause of this process a standing connection proves nothing until a whole round of heartbeats."""
        options = self._shared.options
        if now - self._ticked_at >= options.pause_s:
            self._proven_at = now + options.heartbeat_interval_s + options.heartbeat_timeout_s + options.tick_s
            self._from_before = True
            for stream in self._streams.values():
                stream.proven = False
        self._ticked_at = now

    def _read(self, socket: zmq.Socket[bytes]) -> tuple[list[tuple[RawBatch, int]], bool]:
        """A quantum of batches, each with the descriptor of its connection; and whether the socket was found empty."""
        options = self._shared.options
        arrived: list[tuple[RawBatch, int]] = []
        size_bytes = options.quantum_bytes
        for _ in range(options.quantum_messages):
            if size_bytes <= 0:
                return arrived, False
            try:
                parts = socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return arrived, True
            batch = parse_message([part.bytes for part in parts])
            if batch is None or len(batch.topic) > options.topic_max_bytes:
                self.counts.malformed += 1
            else:
                arrived.append((batch, parts[0].get(zmq.SRCFD)))
                size_bytes -= len(batch.payload)
        return arrived, False

    def _on_change(self, link: Link, connection: int, now: float) -> None:
        if link is Link.UP:
            self._connections.add(connection)
            return
        self._connections.discard(connection)
        since = now if now - self._looked_at <= 2 * self._shared.options.tick_s else self._looked_at
        for stream in self._streams.values():
            if stream.connection == connection:
                stream.connection, stream.lost = _NO_CONNECTION, connection
                self._perform(stream, stream.session.connection_down(since))
                stream.sink.alive(connected=False)

    def _sort_in(self, batch: RawBatch, connection: int, busy: list[_Stream], now: float) -> None:
        """Find the stream of a message; note by which connection it came, even where that is gone already."""
        publisher = (batch.topic, peek_rank(batch.payload) or 0)
        stream = self._streams.get(publisher)
        if stream is None or not stream.sink.open:
            stream = self._begin(publisher, now)
            if stream is None:
                return
        if connection in self._connections and connection != stream.connection:
            stream.connection = connection
            self._perform(stream, stream.session.connection_up(now))
            stream.sink.alive(connected=True)
        elif stream.connection == _NO_CONNECTION and connection != stream.lost:
            stream.lost = connection
            self._perform(stream, [*stream.session.connection_up(now), *stream.session.connection_down(now)])
            stream.sink.alive(connected=False)
        if not stream.waiting:
            busy.append(stream)
        stream.waiting.append(batch)

    def _begin(self, publisher: Publisher, now: float) -> _Stream | None:
        """A publisher seen for the first time, or again after its source was removed."""
        refused_at = self._refused.get(publisher)
        options = self._shared.options
        if refused_at is not None and now - refused_at < options.refused_retry_s:
            self.counts.refused += 1
            return None
        raw_topic, rank = publisher
        topic = parse_topic(raw_topic)
        if topic.pod is None:
            self.counts.unnamed += 1
            return None
        before = self._displace(SourceId(topic.pod, rank), publisher, now)
        sink = self._registrar.source_for_topic(topic.pod, topic.model, rank)
        if sink is None or sink.descriptor.endpoint is not None:
            self._refuse(publisher, sink, now)
            return None
        self._refused.pop(publisher, None)
        lane = Lane(options.lane_bytes, self._shared.budget)
        self._feeders[sink.descriptor.id] = publisher
        stream = self._streams[publisher] = _Stream(sink, Session(options, lane, now, replay=False))
        self._perform(stream, stream.session.begin())
        if before is not None:
            sink.warn(f"its topic changed from {before[:SHOWN_MAX]!r} to {raw_topic[:SHOWN_MAX]!r}", key="topic")
        return stream

    def _displace(self, source: SourceId, newer: Publisher, now: float) -> bytes | None:
        """End the stream that another topic feeds into this source; the topic it had, if there was one.

        Its publisher is heard again after a while only: two that live side by side must not take turns message by
        message, and what is still on its way from the older one must not end the newer.
        """
        publisher = self._feeders.pop(source, None)
        stream = None if publisher is None else self._streams.pop(publisher, None)
        if publisher is None or stream is None:
            return None
        if publisher == newer or not stream.sink.open:
            return None
        stream.waiting = []
        self._remember(publisher, now)
        stream.sink.count("restarts")
        stream.sink.restart("registration_differs")
        return publisher[0]

    def _refuse(self, publisher: Publisher, sink: EventSink | None, now: float) -> None:
        if sink is not None:
            sink.warn("an engine of that name also sends to the bound socket: ignored", key="bound")
        elif not self._refused:  # the first says it; the rest is counted
            topic, rank = publisher
            log.warning(
                "no room, or the name is another's: events of new topics are dropped, first %r rank %d",
                topic[:SHOWN_MAX],
                rank,
            )
        self.counts.refused += 1
        self._remember(publisher, now)

    def _remember(self, publisher: Publisher, now: float) -> None:
        self._refused.pop(publisher, None)
        self._refused[publisher] = now
        if len(self._refused) > self._shared.options.refused_topics_max:
            del self._refused[next(iter(self._refused))]

    def _perform(self, stream: _Stream, commands: Iterable[Command]) -> None:
        for command in commands:
            if not isinstance(command, Ask | HangUp):  # which a session without a replay endpoint never decides
                tell_core(command, stream.sink)
