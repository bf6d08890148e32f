"""Engines in places of their own (tests/support/netns) that say something at random, as engines do, and restart."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from indexer.model import Tier
from tests.support.core_service import DEADLINE_S
from tests.support.core_streams import DEPTH, TRUNKS, Chain, Contents, Removal, Store
from tests.support.speaking_engine import SpeakingEngine

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from tests.support.netns import Place
    from tests.support.speaking_engine import Operation

CLEARS: Final = 0.02
STORES: Final = 0.7
"""Up to it: shares of all events; what is left are removals."""
ODD: Final = 0.1
"""Share of batches that are not as usual: of blocks whose parents were never announced, or that are held already."""


def some_operation(chance: random.Random) -> Operation:
    """One event of an engine."""
    kind = chance.random()
    if kind < CLEARS:
        return "clear"
    flavour = chance.choice(["plain", "plain", "plain", "adapter", "salt", "image"])
    chain = Chain(flavour, chance.choice(TRUNKS)[: chance.randint(1, DEPTH)])
    tier = chance.choice([Tier.GPU, Tier.GPU, Tier.GPU, Tier.CPU])
    form, spelling = chance.choice(["map", "array"]), chance.choice(["int", "bytes", "signed"])
    group = chance.randint(0, 2)
    if kind < STORES:
        span = chance.randint(0, DEPTH - 1), chance.randint(1, DEPTH)
        return Store(chain, span, tier, group, hidden_salt=False, form=form, spelling=spelling, bare=False)
    blocks = [chance.randint(0, DEPTH - 1) for _ in range(chance.randint(1, 3))]
    return Removal(chain, blocks, tier, group, hidden_salt=False, form=form, spelling=spelling)


class Speaker:
    """An engine in a place, and who may make it speak: one thread at a time."""

    def __init__(self, pod: str, place: Place, layout: str, contents: Contents, *, replays: bool) -> None:
        self.pod, self.place, self.replays = pod, place, replays
        self.lock = threading.Lock()
        self.is_up = True
        self.clears = 0
        """Times that it said to be empty: a generation each."""
        with place.inside():
            self.engine = SpeakingEngine(layout, contents, replays=replays, host=place.address)

    @property
    def flag(self) -> str:
        """Value of `--source`."""
        simulator = self.engine.simulator
        replay = f",replay={simulator.replay_endpoint}" if simulator.replay_endpoint else ""
        return f"{self.pod}={simulator.endpoint}{replay}"

    def say(self, *operations: Operation) -> None:
        """One batch; nothing where its process is not there."""
        with self.lock:
            if self.is_up:
                self._say(operations)

    def say_something(self, chance: random.Random) -> None:
        """The same of some events. As a rule what it stores goes on behind what it holds, as engines do it."""
        with self.lock:
            if self.is_up:
                operations = [some_operation(chance) for _ in range(chance.randint(1, 4))]
                usual = operations if chance.random() < ODD else [*filter(None, map(self._as_usual, operations))]
                self._say(usual or ["nothing"])

    def _as_usual(self, operation: Operation) -> Operation | None:
        if not isinstance(operation, Store):
            return operation
        first = self.engine.missing_from(operation)
        return None if first is None else operation._replace(span=(first, operation.span[1]))

    def _say(self, operations: Sequence[Operation]) -> None:
        self.clears += operations.count("clear")
        self.engine.say(operations)

    def end(self) -> None:
        """Its process is killed."""
        with self.lock:
            self.is_up = False
            self.engine.end()

    def begin(self, subscribers: int = 0) -> None:
        """The next one begins, and says nothing before so many listen."""
        with self.lock:
            self.engine.restart()
            self.engine.simulator.wait_subscribers(subscribers, DEADLINE_S)
            self.is_up = True
