"""The engines' side: one PUB socket an engine, prepared batches sent as fast as they go or at a rate.

Runs in a process of its own. Sequences count from 0 over the life of the object, as those of one engine process do.
Nothing is dropped here: the sockets queue without limit, since a test that loses messages measures something else.
Does I/O.
"""

from __future__ import annotations

import struct
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import zmq
from redis import Redis

from loadtest.content import Document
from loadtest.shapes import ring_documents, stream
from loadtest.traffic import LIVE_EVENT_BLOCKS, Traffic
from loadtest.wire import payload, stores

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loadtest.shapes import Shape

TICK_S: Final = 0.005
"""How often what is due is sent."""
SUBSCRIBE_WAIT_S: Final = 10.0
PIECE_BATCHES: Final = 64
"""Of each engine. A piece or two under way stay far below the receivers' limit, 2,000 messages a socket."""
SOCKETS_BESIDE: Final = 1_023
"""What a context allows by itself."""
_SEQUENCE: Final = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Sent:
    """What was sent at a rate."""

    blocks: int
    seconds: float


class Publisher:
    """All engines of a run."""

    def __init__(self, engines: int) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, engines + SOCKETS_BESIDE)
        self._sockets = [self._open() for _ in range(engines + 1)]
        self._bare = self._sockets.pop()
        self._listeners = [0] * engines
        self._next = [0] * engines
        self._prepared: list[list[bytes]] = [[] for _ in range(engines)]
        self._live: list[list[bytes]] = []
        self._position = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._sent: Sent | None = None

    def endpoints(self) -> list[str]:
        """Where to subscribe, engine by engine."""
        return [socket.get_string(zmq.LAST_ENDPOINT) for socket in self._sockets]

    def bare_endpoint(self) -> str:
        """A socket beside the engines', for a hop that nobody indexes."""
        return self._bare.get_string(zmq.LAST_ENDPOINT)

    def wait_subscribed(self, listeners: int = 1) -> None:
        """Return when every engine's socket has so many subscribers. Raises TimeoutError."""
        for engine, socket in enumerate(self._sockets):
            while self._listeners[engine] < listeners:
                if not socket.poll(int(SUBSCRIBE_WAIT_S * 1_000)):
                    raise TimeoutError(f"an engine has {self._listeners[engine]} of {listeners} subscribers")
                self._listeners[engine] += 1 if socket.recv()[:1] == b"\x01" else -1

    def wait_bare_subscribed(self) -> None:
        """The same for the bare socket."""
        if not self._bare.poll(int(SUBSCRIBE_WAIT_S * 1_000)):
            raise TimeoutError("the bare socket has no subscriber")
        self._bare.recv()

    # -- as fast as it goes --------------------------------------------------------------------------------------------

    def prepare_fleet(self, sources: int, pairs: int) -> None:
        """Make ready what brings a fleet to what `Traffic` says it holds, and its rings for `start_live`."""
        traffic = Traffic(sources, pairs)
        self._prepared = [list(engine.fill()) for engine in traffic.engines]
        self._live = [list(engine.live()) for engine in traffic.engines]

    def prepare(self, shape: Shape, first: int, blocks: int, *, leaving: int | None = None) -> int:
        """Make ready what stores documents from number `first` on, at least so many blocks an engine.

        `leaving`: the first document that goes meanwhile; None removes nothing. Returns the blocks of all engines.
        """
        total = 0
        for engine, batches in enumerate(self._prepared):
            coming = ring_documents(shape, engine, first, blocks)
            going: list[Document] = []
            if leaving is not None:
                there = shape.document_blocks * (first - leaving)
                going = [*ring_documents(shape, engine, leaving, there), *coming]
            batches[:] = stream(shape, coming, going)
            total += sum(each.blocks for each in coming)
        return total

    def prepared_last(self) -> list[int]:
        """The last sequences after all that is prepared was published."""
        return [count + len(batches) - 1 for count, batches in zip(self._next, self._prepared, strict=True)]

    def publish_piece(self) -> bool:
        """Send the next `PIECE_BATCHES` of each engine; True while there is more."""
        return self.publish_prepared(PIECE_BATCHES)

    def publish_prepared(self, batches_max: int | None = None) -> bool:
        """Send what was prepared, or so many batches of each engine, engines in turns; True while there is more."""
        for turn in batches_in_turns([batches[:batches_max] for batches in self._prepared]):
            for engine, batch in turn:
                self._send(engine, batch)
        for batches in self._prepared:
            del batches[:batches_max]
        return any(self._prepared)

    def grow(self, documents: Sequence[Sequence[Document]], blocks_per_event: Sequence[int]) -> list[int]:
        """Store these documents of each engine, made while they are sent; event sizes take turns."""
        for turn in range(max(map(len, documents))):
            for engine, own in enumerate(documents):
                if turn < len(own):
                    for event in stores(own[turn], blocks_per_event[turn % len(blocks_per_event)]):
                        self._send(engine, payload([event]))
        return self.last()

    def last(self) -> list[int]:
        """The last sequence of each engine."""
        return [count - 1 for count in self._next]

    # -- at a rate -----------------------------------------------------------------------------------------------------

    def start_live(self, blocks_per_s: float) -> None:
        """From now on, in the background, the rings of all engines turn, at this rate over all of them."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run_live, args=(blocks_per_s,), name="live", daemon=True)
        self._thread.start()

    def stop_live(self) -> Sent:
        """End it; nothing is sent any more when this returns."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        sent, self._sent = self._sent, None
        if sent is None:
            raise RuntimeError("nothing was sent in the background")
        return sent

    # -- one at a time -------------------------------------------------------------------------------------------------

    def announce(self, documents: Sequence[Document], pause_s: float) -> tuple[list[int], list[int]]:
        """For each document: a bare message, then its first batch from engine 0, each after a pause.

        Returns the moments of sending in ns on the monotonic clock: of the bare ones, and of the batches.
        """
        bare: list[int] = []
        stored: list[int] = []
        for document in documents:
            batch = payload(list(stores(document, document.blocks)))
            time.sleep(pause_s)
            bare.append(time.monotonic_ns())
            self._bare.send_multipart((b"", _SEQUENCE.pack(len(bare)), batch))
            time.sleep(pause_s)
            stored.append(time.monotonic_ns())
            self._send(0, batch)
        return bare, stored

    def announce_beside(
        self, documents: Sequence[Document], pause_s: float, url: str, stream: str
    ) -> tuple[list[int], list[int]]:
        """The same with an entry of a stream in a store in the place of the bare message."""
        bare: list[int] = []
        stored: list[int] = []
        with Redis(unix_socket_path=url.removeprefix("unix://"), protocol=2) as client:
            client.ping()
            for document in documents:
                batch = payload(list(stores(document, document.blocks)))
                time.sleep(pause_s)
                bare.append(time.monotonic_ns())
                client.xadd(stream, {"e": batch})
                time.sleep(pause_s)
                stored.append(time.monotonic_ns())
                self._send(0, batch)
        return bare, stored

    def _run_live(self, blocks_per_s: float) -> None:
        started = time.monotonic()
        sent = 0
        while not self._stop.wait(TICK_S):
            due = (time.monotonic() - started) * blocks_per_s
            while sent < due:
                engine = self._position % len(self._live)
                batches = self._live[engine]
                self._send(engine, batches[self._position // len(self._live) % len(batches)])
                self._position += 1
                sent += LIVE_EVENT_BLOCKS
        self._sent = Sent(sent, time.monotonic() - started)

    def _send(self, engine: int, batch: bytes) -> None:
        self._sockets[engine].send_multipart((b"", _SEQUENCE.pack(self._next[engine]), batch))
        self._next[engine] += 1

    def _open(self) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.XPUB)  # on the wire a PUB; it hears of subscriptions
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.SNDHWM, 0)
        socket.set(zmq.XPUB_VERBOSER, 1)  # it hears of each of them, not of the first and the last only
        socket.bind("tcp://127.0.0.1:*")
        return socket


def batches_in_turns(prepared: Sequence[Sequence[bytes]]) -> Iterable[list[tuple[int, bytes]]]:
    """The first batch of every engine, then the second of every engine that has one, and so on."""
    for turn in range(max(map(len, prepared), default=0)):
        yield [(engine, batches[turn]) for engine, batches in enumerate(prepared) if turn < len(batches)]
