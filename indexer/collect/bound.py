"""One bound socket for many engines that connect to us (`--source-bind`). I/O around one session per publisher.

Publishers are told apart by (topic, rank) and never by connection alone: numbers of different publishers are never
mixed. Where two topics, or two bound sockets, name the same pod and rank, the newer one counts if the engine of the
older one is gone or is the same (it serves another model now); while it stands, the newer one is another engine and is
refused. There is no replay here: nobody knows where a connecting engine's replay socket is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

import zmq

from indexer.collect.bound_stream import NO_CONNECTION, BoundCounts, BoundStream, Feeders, Publisher, Refused
from indexer.collect.commands import Command, SocketCommand
from indexer.collect.lanes import Lane
from indexer.collect.messages import parse_message
from indexer.collect.remarks import SHOWN_MAX
from indexer.collect.session import Session
from indexer.collect.shared import Shared
from indexer.collect.sockets import Link, Monitor, attach, descriptor_of, open_subscriber
from indexer.collect.telling import left_off, tell_core
from indexer.decode.envelope import peek_rank
from indexer.decode.topic import parse_topic
from indexer.errors import SettingsError
from indexer.log_lines import about
from indexer.model import RawBatch, SourceId
from indexer.ports import EventSink, TopicRegistrar

log = logging.getLogger(__name__)


class BoundSocket:
    """A bound SUB socket and the streams on it. Streams begin with a publisher's first message."""

    def __init__(self, endpoint: str, registrar: TopicRegistrar, shared: Shared, feeders: Feeders) -> None:
        """`feeders` is common to all bound sockets of the process."""
        self._wanted_endpoint = endpoint
        self._registrar = registrar
        self._shared = shared
        self._streams: dict[Publisher, BoundStream] = {}
        self._laden: deque[BoundStream] = deque()
        """Those that have something to work off. Few: a large batch is rare."""
        self._feeders = feeders
        self._refused = Refused(shared.options.refused_retry_s, shared.options.refused_topics_max)
        self._connections: dict[int, float] = {}  # descriptors of those that stand, and when they were seen to come
        self._socket: zmq.Socket[bytes] | None = None
        self._monitor: Monitor | None = None
        self._descriptors: tuple[int, ...] = ()
        self._looked_at = self._ticked_at = self._made_at = shared.clock.now()
        self._proven_at = self._looked_at
        self._from_before = False  # what is read may have come in before the pause
        self.counts = BoundCounts()

    # --- life ---

    def open(self) -> None:
        """Bind, once. Raises SettingsError where that cannot be done."""
        if self._socket is not None:
            return
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
        for source in list(self.sources()):
            self.stop(source)
        for publisher in list(self._streams):
            self.drop(publisher)

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
        stream = self._feeders.get(source)
        if stream is not None and stream.socket is self:
            del self._feeders[source]
            self.drop(stream.publisher)

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
        self._work_off(now)
        self._take(arrived, now)
        self._from_before = self._from_before and not emptied
        if emptied and not changes:
            for stream in self._streams.values():
                if stream.session.unsettled:
                    self._perform(stream, stream.session.socket_empty(now))
        return not emptied or bool(changes) or bool(self._laden)

    def _work_off(self, now: float) -> None:
        """A slice of one large batch under way, or of what was held behind it; the streams take turns."""
        if not self._laden:
            return
        stream = self._laden.popleft()
        if not stream.sink.open:
            return
        if not stream.sink.go_on() and stream.session.drains_lane:
            self._perform(stream, stream.session.drain_lane(now))
        if (stream.sink.busy or stream.session.drains_lane) and stream not in self._laden:
            self._laden.append(stream)

    def _take(self, arrived: list[tuple[RawBatch, int]], now: float) -> None:
        """Give each stream the messages that are its own, in one go."""
        busy: list[BoundStream] = []
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
            connection = _connection_of(parts[0])
            if batch is None or len(batch.topic) > options.topic_max_bytes or connection == NO_CONNECTION:
                self.counts.malformed += 1
            else:
                arrived.append((batch, connection))
                size_bytes -= len(batch.payload)
        return arrived, False

    def _on_change(self, link: Link, connection: int, now: float) -> None:
        if link is Link.UP:
            self._connections[connection] = now
            return
        self._connections.pop(connection, None)
        since = now if now - self._looked_at <= 2 * self._shared.options.tick_s else self._looked_at
        for stream in self._streams.values():
            if stream.connection == connection:
                stream.connection, stream.lost = NO_CONNECTION, connection
                self._perform(stream, stream.session.connection_down(since))
                stream.sink.alive(connected=False)

    def _sort_in(self, batch: RawBatch, connection: int, busy: list[BoundStream], now: float) -> None:
        """Find the stream of a message; note by which connection it came, even where that is gone already."""
        publisher = (batch.topic, peek_rank(batch.payload) or 0)
        stream = self._streams.get(publisher)
        if stream is None or not stream.sink.open:
            stream = self._begin(publisher, connection, now)
            if stream is None:
                return
        elif stream.stands_against(connection):
            self._refuse_beside(stream, publisher)
            return
        if connection in self._connections and connection != stream.connection:
            # Of a source that begins it may have stood long before this message: its absence ended then.
            up_at = self._connections[connection] if stream.had_none else now
            stream.connection = connection
            self._perform(stream, stream.session.connection_up(up_at))
            stream.sink.alive(connected=True)
        elif stream.connection == NO_CONNECTION and connection != stream.lost:
            stream.lost = connection
            self._perform(stream, [*stream.session.connection_up(now), *stream.session.connection_down(now)])
            stream.sink.alive(connected=False)
        if not stream.waiting:
            busy.append(stream)
        stream.waiting.append(batch)

    def _begin(self, publisher: Publisher, connection: int, now: float) -> BoundStream | None:
        """A publisher seen for the first time, or again after its source was removed."""
        if self._refused.lately(publisher, now):
            self.counts.refused += 1
            return None
        raw_topic, rank = publisher
        topic = parse_topic(raw_topic)
        if topic.pod is None:
            self.counts.unnamed += 1
            return None
        before = self._feeders.get(SourceId(topic.pod, rank))
        if before is not None and before.stands_against(connection):
            self._refuse_beside(before, publisher)
            self._refused.add(publisher, now)
            return None
        changed = before is not None and self._displace(before, publisher, now)
        sink = self._registrar.source_for_topic(topic.pod, topic.model, rank)
        if sink is None or sink.descriptor.endpoint is not None:
            self._refuse(publisher, sink, now)
            return None
        self._refused.forget(publisher)
        stream = BoundStream(publisher, self, sink, self._session(sink, now))
        self._streams[publisher] = self._feeders[sink.descriptor.id] = stream
        self._perform(stream, stream.session.begin())
        if before is not None and changed:
            sink.warn(f"its topic changed from {_shown(before.publisher)} to {_shown(publisher)}", key="topic")
        return stream

    def _session(self, sink: EventSink, now: float) -> Session:
        options = self._shared.options
        resume = left_off(sink)
        if resume is not None and resume.as_of is None:
            resume = replace(resume, as_of=self._made_at)  # not later than its state was loaded
        return Session(options, Lane(options.lane_bytes, self._shared.budget), now, replay=False, resume=resume)

    def _refuse_beside(self, standing: BoundStream, newer: Publisher) -> None:
        """Another engine of that name is connected: it is not the same one anew, and two are never mixed."""
        standing.sink.count("topic_mismatch")
        standing.sink.warn(f"another engine sends under its name, topic {_shown(newer)}: ignored", key="bound")
        self.counts.refused += 1

    def _displace(self, older: BoundStream, newer: Publisher, now: float) -> bool:
        """End the stream that feeds this source; True where it had another topic or came by another socket.

        Its publisher is heard again after a while only: two that live side by side must not take turns message by
        message, and what is still on its way from the older one must not end the newer.
        """
        del self._feeders[older.sink.descriptor.id]
        if isinstance(older.socket, BoundSocket):
            older.socket.drop(older.publisher)
        if not older.sink.open or (older.publisher, older.socket) == (newer, self):
            return False
        if older.socket is self:
            self._refused.add(older.publisher, now)
        older.sink.count("restarts")
        older.sink.restart("registration_differs")
        return True

    def drop(self, publisher: Publisher) -> None:
        """Its stream ends here: nothing of it that waits is applied any more, and its lane's bytes are others'."""
        stream = self._streams.pop(publisher, None)
        if stream is not None:
            for command in stream.end():
                tell_core(command, stream.sink)
            if stream in self._laden:
                self._laden.remove(stream)

    def _refuse(self, publisher: Publisher, sink: EventSink | None, now: float) -> None:
        if sink is not None:
            sink.warn("an engine of that name also sends to the bound socket: ignored", key="bound")
        elif not self._refused:  # the first says it; the rest is counted
            log.warning(
                "no room, or the name is another's: events of new topics are dropped, first %s rank %d",
                _shown(publisher),
                publisher[1],
                extra=about("topics_refused"),
            )
        self.counts.refused += 1
        self._refused.add(publisher, now)

    def _perform(self, stream: BoundStream, commands: Iterable[Command]) -> None:
        for command in commands:
            if not isinstance(command, SocketCommand):  # of which there is none without a replay endpoint
                tell_core(command, stream.sink)
        if stream.sink.busy and stream not in self._laden:
            self._laden.append(stream)
            self._perform(stream, stream.session.backlogged())  # its messages wait in its lane from here on


def _shown(publisher: Publisher) -> str:
    return repr(publisher[0][:SHOWN_MAX])


def _connection_of(part: zmq.Frame) -> int:
    """The descriptor of the connection by which it came.

    None stands behind protocols from before ZMTP 3, which no engine speaks, and which noise is taken for.
    """
    try:
        return int(part.get(zmq.SRCFD))
    except zmq.ZMQError:
        return NO_CONNECTION
