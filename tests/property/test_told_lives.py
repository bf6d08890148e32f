"""A stream and an orchestrator tell of an engine's restarts, each in its own time: whatever comes first.

A naive world knows which process announced which block. Once both have told of the present process, nothing of a former
one is scored; and a word that comes behind what the stream has shown costs nothing of what was announced since. But
where a word began the generation before, and that was not heard from its beginning, what the stream shows next may be
of that word (decisions/0045): then the next word may cost something.
"""

from __future__ import annotations

import random

import pytest

from indexer.collect.commands import BeginLife, Command
from indexer.collect.lanes import Lane, LaneBudget
from indexer.collect.options import CollectOptions
from indexer.collect.session import Session
from indexer.collect.telling import tell_core
from indexer.model import RawBatch
from tests.support.core import Core
from tests.support.core_events import BLOCK, payload, prompt, stored

OPTIONS = CollectOptions()
SEEDS = 400
STEPS = 60


class World:
    """One engine without replay, its sockets and its orchestrator. Words are numbers of processes."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.core = Core()
        self.sink = self.core.engine("pod").sink
        self.sink.source.life = "0"
        self.session = Session(OPTIONS, Lane(1 << 20, LaneBudget(1 << 20)), self.core.clock.at, replay=False)
        self.process = self.told = 0
        self.sequence = 0
        self.connected = False
        self.queue: list[tuple[int, RawBatch]] = []
        """In the socket: by which process each was sent."""
        self.blocks: list[tuple[int, int]] = []
        """Process and first token of each."""
        self.shown = True
        """A first batch of the present process was read."""
        self.showed_restart = True
        """By the stream itself, when it was read, and every word before was told by then."""
        self.began_since = self.skipped = False
        """Whether the stream showed a restart since the last word, and whether a word was left out, or mistaken."""
        self.is_whole = True
        """The generation was heard from its beginning, or the stream showed that it began."""

    def perform(self, commands: list[Command]) -> None:
        """Tell the core."""
        for command in commands:
            tell_core(command, self.sink)  # type: ignore[arg-type]  # nothing is asked without an endpoint

    # -- what happens --------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        start = 1_000 * len(self.blocks)
        self.blocks.append((self.process, start))
        event = stored([len(self.blocks)], prompt(1, start))
        batch = RawBatch(b"", self.sequence, payload(event, ts=1_000.0 * self.process + self.sequence))
        self.sequence += 1
        if self.connected:
            self.queue.append((self.process, batch))

    def read(self) -> None:
        count = self.chance.randrange(1, 4)
        taken, self.queue = self.queue[:count], self.queue[count:]
        for process, batch in taken:
            commands = self.session.messages([batch], self.core.clock.at)
            self.perform(commands)
            self.skipped |= batch.sequence == 0 and process < self.told  # as if the word had been of the one before
            self.began_since |= any(isinstance(each, BeginLife) for each in commands)
            if process == self.process and not self.shown:
                self.shown = batch.sequence == 0
                began = any(isinstance(each, BeginLife) for each in commands)
                self.showed_restart = self.shown and began and self.is_whole and self.told == self.process - 1
                self.is_whole |= self.shown
        if not self.queue:
            self.perform(self.session.socket_empty(self.core.clock.at))

    def die(self) -> None:
        """The socket may hold something of it yet; the next one is there after five seconds at least."""
        if self.connected:
            self.perform(self.session.connection_down(self.core.clock.at))
        self.connected = False
        self.core.clock.at += self.chance.uniform(5.0, 30.0)
        self.process, self.sequence = self.process + 1, 0
        self.shown = self.showed_restart = False

    def connect(self) -> None:
        if not self.connected:
            self.perform(self.session.connection_up(self.core.clock.at))
            self.connected = True

    def blink(self) -> None:
        """The network is away for a moment."""
        if self.connected:
            self.perform(self.session.connection_down(self.core.clock.at))
            self.core.clock.at += 0.1
            self.connected = False
            self.connect()

    def tell(self) -> None:
        """The next word, or the newest at once."""
        if self.told < self.process:
            before, said = self.held(), self.told
            self.told = self.told + 1 if self.chance.random() < 0.8 else self.process
            self.skipped |= self.told > said + 1
            if self.core.ingest.learn_life(self.sink.source, str(self.told)):
                self.perform(self.session.other_life(self.core.clock.at))
                self.is_whole = False
            held = self.held()
            if self.told == self.process and self.showed_restart:
                assert before == held, "a word behind the stream forgets nothing"
            if not self.began_since:
                assert not held, "a word before the stream ends what was before"
            if self.told == self.process and not self.shown and not self.skipped:
                assert {self.process} >= {process for process, _ in held}, "told one by one, each ends the one before"
            self.began_since = False

    # -- what must hold ------------------------------------------------------------------------------------------------

    def held(self) -> set[tuple[int, int]]:
        """What a lookup would score."""
        self.sink.alive(connected=True)
        found = set()
        for each in self.blocks:
            (entry,) = self.core.ask(prompt(1, each[1])).pods
            if entry.matched_tokens == BLOCK:
                found.add(each)
        return found

    def check(self) -> None:
        """Both have told of the present process."""
        if self.told == self.process and self.shown:
            assert {self.process} >= {process for process, _ in self.held()}, "of a former process"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_words_and_numbers_in_any_order(seed: int) -> None:
    """Restarts, blinks of the network, words that are late or left out, and what is left in sockets."""
    world = World(seed)
    steps = [world.publish, world.publish, world.read, world.read, world.connect, world.tell, world.die, world.blink]
    weights = [6, 4, 6, 4, 5, 2, 1, 1]
    world.connect()
    for _ in range(STEPS):
        (step,) = world.chance.choices(steps, weights)
        step()
        world.check()
    while world.told < world.process:
        world.tell()
    world.connect()
    world.publish()
    while world.queue:
        world.read()
    world.check()
