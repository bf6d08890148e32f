"""All subscribers of a process: join, leave, one tick for all, and the tasks of their replay conversations. I/O."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Final

import zmq

from indexer.collect.bound import BoundSocket
from indexer.collect.bound_stream import BoundCounts, Feeders
from indexer.collect.commands import Ask
from indexer.collect.lanes import LaneBudget
from indexer.collect.listener import Listener, ListenerViews
from indexer.collect.options import CollectOptions
from indexer.collect.pump import Pump
from indexer.collect.replay import Question, converse
from indexer.collect.ring import RingBudget
from indexer.collect.shared import Shared
from indexer.collect.sockets import allow_files, open_context
from indexer.collect.subscriber import Subscriber
from indexer.errors import SettingsError
from indexer.model import Descriptor, SourceId
from indexer.ports import Clock, EventSink, ListenerView, TopicRegistrar

log = logging.getLogger(__name__)

OPEN_RETRY_S: Final = 5.0
"""How often a subscriber whose socket could not be made is tried again."""


class Fleet:
    """Implements ports.Collector. Everything happens on the loop that runs `run`; `start` is allowed before.

    `registrar` is needed only where `options.bind_endpoints` names sockets on which sources appear by topic.
    """

    def __init__(self, options: CollectOptions, clock: Clock, registrar: TopicRegistrar | None) -> None:
        self._options = options
        self._clock = clock
        self._context = open_context(options)
        self._pump = Pump(clock, options.slice_s)
        self._shared = Shared(
            context=self._context,
            options=options,
            clock=clock,
            budget=LaneBudget(options.lanes_total_bytes),
            standby=RingBudget(options.standby_total_bytes),
            pump=self._pump,
            ask=self._ask,
        )
        self._subscribers: dict[SourceId, Subscriber] = {}
        self._listeners: dict[SourceId, Listener] = {}
        self._unopened: dict[SourceId, float] = {}  # source → when to try again
        feeders: Feeders = {}
        self._bound = [
            BoundSocket(endpoint, registrar, self._shared, feeders)
            for endpoint in options.bind_endpoints
            if registrar is not None
        ]
        self._turns = asyncio.Semaphore(options.replays_parallel)
        self._probe_turns = asyncio.Semaphore(options.probes_parallel)
        self._openings = asyncio.Lock()
        self._tasks: asyncio.TaskGroup | None = None

    # --- ports.Collector ---

    def start(self, sink: EventSink) -> None:
        """Begin to subscribe for that sink; replaces a subscriber of the same source id."""
        source = sink.descriptor.id
        listener = self._listeners.get(source)
        standby = None
        if listener is not None and listener.endpoint == sink.descriptor.endpoint:
            del self._listeners[source]
            standby = listener.hand_over()
        self.stop(source)
        self._subscribers[source] = Subscriber(sink, self._shared, standby)
        if self._tasks is not None:
            self._open(source)

    def other_life(self, source: SourceId) -> bool:
        """Another process of its engine lives now, whoever runs it says."""
        subscriber = self._subscribers.get(source)
        if subscriber is None:
            return False
        subscriber.other_life()
        return True

    def vouch(self, source: SourceId, at: float) -> None:
        """The same process of its engine lives, as was heard at that moment."""
        subscriber = self._subscribers.get(source)
        if subscriber is not None:
            subscriber.vouch(at)

    def step_down(self, source: SourceId) -> None:
        """Tell its sink nothing more, and listen from here on. Where that is so already what is kept stays."""
        subscriber = self._subscribers.pop(source, None)
        if subscriber is not None:
            self._listeners[source] = Listener(subscriber.descriptor.endpoint, self._shared, subscriber.step_down())
        elif source not in self._listeners:
            self.stop(source)  # it came by its topic

    def listen(self, descriptor: Descriptor) -> None:
        """Connect to that engine and keep what comes, unless that is done already."""
        source, listener = descriptor.id, self._listeners.get(descriptor.id)
        if source in self._subscribers or descriptor.endpoint is None:
            return
        if listener is not None and listener.endpoint == descriptor.endpoint:
            return
        self.unlisten(source)
        self._listeners[source] = Listener(descriptor.endpoint, self._shared)
        if self._tasks is not None:
            self._open(source)

    def unlisten(self, source: SourceId) -> None:
        """Stop listening; others are ignored."""
        listener = self._listeners.pop(source, None)
        if listener is not None:
            self._unopened.pop(source, None)
            listener.close()

    def note(self, source: SourceId, cursor: int | None, stamp: float | None, alive_at: float | None) -> None:
        """The owner has made that batch durable, and until `alive_at` saw the engine connected."""
        listener = self._listeners.get(source)
        if listener is not None:
            listener.ring.note(cursor, stamp, alive_at, self._clock.now())

    def listeners(self) -> Mapping[SourceId, ListenerView]:
        """Who is listened to, and what is kept of them."""
        return ListenerViews(self._listeners)

    def stop(self, source: SourceId) -> None:
        """Stop subscribing, or listening; unknown ids are ignored."""
        self.unlisten(source)
        subscriber = self._subscribers.pop(source, None)
        self._unopened.pop(source, None)
        if subscriber is not None:
            subscriber.close()
        for bound in self._bound:
            bound.stop(source)

    def sources(self) -> Sequence[SourceId]:
        """Whose subscribers run now, those on bound sockets included."""
        return [*self._subscribers, *(source for bound in self._bound for source in bound.sources())]

    # --- beyond the port ---

    @property
    def held_bytes(self) -> int:
        """In all receive lanes together."""
        return self._shared.budget.used_bytes

    @property
    def standby_bytes(self) -> int:
        """Kept of those who are listened to, all together."""
        return self._shared.standby.used_bytes

    @property
    def standby_dropped(self) -> int:
        """Batches of theirs that found no room since the start."""
        return self._shared.standby.dropped

    @property
    def bound_endpoints(self) -> list[str]:
        """Where engines can connect, with real ports, once `run` has begun."""
        return [bound.endpoint for bound in self._bound]

    @property
    def bound_counts(self) -> list[BoundCounts]:
        """Per bound socket: messages that could be given to no source."""
        return [bound.counts for bound in self._bound]

    def bind(self) -> None:
        """Bind the sockets on which sources appear by topic, before `run` does: for a caller that wants to know first.

        On the loop that runs `run`. Raises SettingsError where one cannot be bound; then all is closed.
        """
        try:
            for bound in self._bound:
                bound.open()
        except SettingsError:
            self._close()
            self._context.term()
            raise

    async def run(self, stop: asyncio.Event) -> None:
        """Subscribe until `stop` is set, then close everything at once. Once only.

        Raises SettingsError where a socket cannot be bound.
        """
        self.bind()
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                self._pump.start()
                await self._open_all()
                ticker = tasks.create_task(self._tick(), name="collect: tick")
                await stop.wait()
                ticker.cancel()
                self._close()
        finally:
            self._close()
            self._context.term()

    # --- inside ---

    async def _open_all(self) -> None:
        """Connect everyone who was there before the start, without holding the loop for it."""
        for source in [*self._subscribers, *self._listeners]:
            if source in self._subscribers or source in self._listeners:
                self._open(source)
                await asyncio.sleep(0)

    def _open(self, source: SourceId) -> None:
        subscriber = self._subscribers.get(source)
        reader = self._listeners[source] if subscriber is None else subscriber
        warning = None
        try:
            allow_files(len(self._subscribers) + len(self._listeners), self._options)
            reader.open()
        except zmq.ZMQError as error:
            warning = f"cannot subscribe to {reader.endpoint}: {error}"
        known = self._unopened.pop(source, None) is not None
        if warning is not None:
            self._unopened[source] = self._clock.now() + OPEN_RETRY_S
        if subscriber is not None and (known or warning is not None):
            subscriber.sink.warn(warning, key="endpoint")

    def _close(self) -> None:
        self._tasks = None
        self._pump.stop()
        readers: list[Subscriber | Listener] = [*self._subscribers.values(), *self._listeners.values()]
        for reader in readers:
            reader.close()
        self._subscribers.clear()
        self._listeners.clear()
        for bound in self._bound:
            bound.close()

    def _ask(self, subscriber: Subscriber, question: Ask) -> asyncio.Task[None] | None:
        if self._tasks is None:
            return None
        return self._tasks.create_task(self._converse(subscriber, question), name=f"replay: {subscriber.descriptor.id}")

    async def _converse(self, subscriber: Subscriber, ask: Ask) -> None:
        endpoint = subscriber.descriptor.replay_endpoint
        if endpoint is None:  # and then a session never asks
            return
        # A thousand idle sources may fall due at once: few are probed at a time, so that the loop never has to serve
        # all of them in one round, and one socket is made in a round, as that takes 0.1 ms.
        async with self._probe_turns if ask.probe else nullcontext():
            async with self._openings:
                await asyncio.sleep(0)
            end = await converse(
                self._context,
                Question(endpoint, ask.first, nullcontext() if ask.probe else self._turns),
                lambda batches, malformed: subscriber.deliver(ask.conversation, batches, malformed),
                self._options,
            )
        subscriber.conversation_ended(ask.conversation, end)

    async def _tick(self) -> None:
        """Look at every connection, in slices: a thousand of them take longer than the loop may be held."""
        while True:
            began = self._clock.now()
            readers: list[tuple[SourceId, Subscriber | Listener]] = [
                *self._subscribers.items(),
                *self._listeners.items(),
            ]
            for source, reader in readers:
                self._tick_one(source, reader, began)
                if self._clock.now() - began >= self._options.slice_s:
                    await asyncio.sleep(0)
                    began = self._clock.now()
            for bound in self._bound:
                bound.tick()
            await asyncio.sleep(self._options.tick_s)

    def _tick_one(self, source: SourceId, reader: Subscriber | Listener, now: float) -> None:
        if reader is not self._subscribers.get(source, self._listeners.get(source)):
            return  # left meanwhile
        if isinstance(reader, Subscriber) and not reader.sink.open:
            self.stop(source)
            return
        if now >= self._unopened.get(source, now + 1.0):
            self._open(source)
        reader.tick()
