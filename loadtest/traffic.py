"""A fleet of engines under multi-turn traffic: what each holds, what it says, and what routers ask. Pure and seeded.

Conversations share system prompts; three in four are held by two engines (they moved once), the rest by one. A few are
grown to 128k tokens. Beside these hot documents, which prompts ask for, every engine holds a ring of cold ones: a
document comes, the oldest goes, and half of them are held by a second engine too. An engine is filled with other
documents first, which then give way, so that keys are churned and not fresh.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from loadtest.content import BLOCK, Document
from loadtest.wire import batches, removals, stores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

COLD_BLOCKS: Final = 64
FILL_EVENT_BLOCKS: Final = 32
LIVE_EVENT_BLOCKS: Final = 8
LONG_BLOCKS: Final = 8_192
LONG_SHARE: Final = 0.27
"""Of all pairs, on conversations of 128k tokens."""
HOT_SHARE: Final = 0.70
SECOND_HOLDER: Final = 0.75
SYSTEMS_MAX: Final = 200
SYSTEM_ZIPF: Final = 0.8
"""Popularity of the n-th system prompt: n to the power of minus this."""
CONVERSATION_PAIRS: Final = 750
CONVERSATIONS_A_SYSTEM: Final = 3
HOMES_MIN: Final = 2
HOMES_MAX: Final = 12
UNSEEN_EVERY: Final = 10
"""One prompt in so many matches nowhere."""

_SYSTEM, _CONVERSATION, _LONG, _TAIL, _UNSEEN = range(1, 6)
_COLD, _OLD = 1_024, 2_048


def document(kind: int, number: int, blocks: int, parent: Document | None = None) -> Document:
    """Keys of different kinds never meet."""
    return Document(kind << 32 | number, blocks, parent)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A question and its right answer: blocks that each engine holds from the start, by the engine's number."""

    tokens: NDArray[np.uint32]
    held: dict[int, int]


@dataclass(slots=True)
class Engine:
    """One engine: its hot documents (each after its parent) and the ring of cold ones."""

    number: int
    hot: dict[int, Document] = field(default_factory=dict)
    old: list[Document] = field(default_factory=list)
    cold: list[Document] = field(default_factory=list)
    ring: int = 0

    @property
    def hot_blocks(self) -> int:
        """Blocks that prompts ask for."""
        return sum(each.blocks for each in self.hot.values())

    def learn(self, each: Document) -> None:
        """Hold a document and what it stands on."""
        if each.parent is not None:
            self.learn(each.parent)
        self.hot[each.key] = each

    def add_cold(self, ring: int) -> None:
        """Fit the ring, and what is there before the hot documents come."""
        self.ring = ring
        shared_with = self.number & ~1
        self.cold = [
            document(_COLD + (shared_with if index % 2 == 0 else self.number), index, COLD_BLOCKS)
            for index in range(ring + ring // 2 + 4)
        ]
        old = -(-self.hot_blocks // COLD_BLOCKS)
        self.old = [document(_OLD + self.number, index, COLD_BLOCKS) for index in range(old)]

    def fill(self) -> Iterator[bytes]:
        """Batches after which it holds its hot documents and the first `ring` cold ones."""
        capacity = self.hot_blocks + self.ring * COLD_BLOCKS
        leaving: deque[Document] = deque()
        held = 0
        for each in [*self.old, *self.cold[: self.ring], *self.hot.values()]:
            held += each.blocks
            gone: list[Document] = []
            while held > capacity:
                gone.append(leaving.popleft())
                held -= gone[-1].blocks
            if each.key not in self.hot:
                leaving.append(each)
            going = (event for one in gone for event in removals(one))
            yield from batches(
                stores(each, FILL_EVENT_BLOCKS), going, stores_a_batch=1, removals_a_batch=FILL_EVENT_BLOCKS
            )

    def live(self) -> Iterator[bytes]:
        """One round of the ring, after which it holds what it held before: 8 blocks come and 8 go in each batch."""
        for index, leaving in enumerate(self.cold):
            coming = self.cold[(self.ring + index) % len(self.cold)]
            yield from batches(
                stores(coming, LIVE_EVENT_BLOCKS),
                removals(leaving),
                stores_a_batch=1,
                removals_a_batch=LIVE_EVENT_BLOCKS,
            )

    def holds(self, chain: Document, blocks: int) -> int:
        """How many of the first `blocks` blocks of that chain it holds from the start."""
        if chain.key in self.hot:
            return blocks
        if chain.parent is not None:
            return self.holds(chain.parent, min(blocks, chain.parent.depth))
        return 0


class Traffic:
    """The whole fleet, holding about `pairs` (engine, block) pairs."""

    def __init__(self, sources: int, pairs: int, seed: int = 1) -> None:
        self.engines = [Engine(number) for number in range(sources)]
        self._random = np.random.default_rng((seed, sources, pairs))
        self._conversations: list[Document] = []
        self._shared: list[Document] = []
        self._long: list[Document] = []
        self._place_long(max(1, round(pairs * LONG_SHARE / LONG_BLOCKS / 2)))
        self._place_conversations(int(pairs * HOT_SHARE))
        cold = (pairs - self.hot_pairs) // sources // COLD_BLOCKS
        for engine in self.engines:
            engine.add_cold(max(1, cold))

    @property
    def hot_pairs(self) -> int:
        """Pairs that prompts ask for."""
        return sum(engine.hot_blocks for engine in self.engines)

    @property
    def pairs(self) -> int:
        """Pairs held after `Engine.fill` of all."""
        return self.hot_pairs + sum(engine.ring * COLD_BLOCKS for engine in self.engines)

    def prompts(self, tokens: int, count: int) -> list[Prompt]:
        """So many different prompts of that length: known starts with unseen ends, and some wholly unseen."""
        return [self._prompt(number, tokens) for number in range(count)]

    def _place_long(self, count: int) -> None:
        pairs = len(self.engines) // 2
        for number in range(count):
            chain = document(_LONG, number, LONG_BLOCKS)
            first = number % pairs * 2
            self._long.append(chain)
            self.engines[first].learn(chain)
            self.engines[first + 1].learn(chain)

    def _place_conversations(self, pairs_max: int) -> None:
        pairs, number = self.hot_pairs, 0
        systems = min(SYSTEMS_MAX, max(4, (pairs_max - pairs) // (CONVERSATION_PAIRS * CONVERSATIONS_A_SYSTEM)))
        popularity = np.arange(1, systems + 1, dtype=float) ** -SYSTEM_ZIPF
        while pairs < pairs_max or len(self._shared) < 2:
            popular = int(self._random.choice(systems, p=popularity / popularity.sum()))
            system = document(_SYSTEM, popular, 48 + popular * 37 % 128)
            own = int(self._random.integers(400, 560)) - system.blocks
            chain = document(_CONVERSATION, number, own, system)
            holders = 2 if self._random.random() < SECOND_HOLDER else 1
            (self._shared if holders > 1 else self._conversations).append(chain)
            homes = self._homes(popular)
            for index in self._random.choice(homes, holders, replace=False).tolist():
                before = self.engines[index].hot_blocks
                self.engines[index].learn(chain)
                pairs += self.engines[index].hot_blocks - before
            number += 1

    def _homes(self, system: int) -> list[int]:
        """The engines that a prefix-aware router keeps a system prompt on: 2 to 12 of them."""
        size = min(len(self.engines), HOMES_MIN + system * 5 % (HOMES_MAX - HOMES_MIN + 1))
        generator = np.random.default_rng((system, len(self.engines)))
        homes: list[int] = generator.permutation(len(self.engines))[:size].tolist()
        return homes

    def _prompt(self, number: int, tokens: int) -> Prompt:
        blocks = tokens // BLOCK
        if number % UNSEEN_EVERY == 0:
            return Prompt(document(_UNSEEN + blocks, number, blocks).tokens(), {})
        chain = self._chain_for(blocks)
        reach = min(blocks, chain.depth)
        known = int(self._random.integers(reach * 4 // 5, reach))  # the last block is a new question
        tail = document(_TAIL, blocks << 20 | number, blocks - known + 1).tokens()
        prompt = np.concatenate((chain.prompt()[: known * BLOCK], tail))[:tokens]
        held = {engine.number: engine.holds(chain, known) for engine in self.engines}
        return Prompt(prompt, {number: count for number, count in held.items() if count})

    def _chain_for(self, blocks: int) -> Document:
        if blocks > self._shared[0].depth * 4:
            return self._pick(self._long)
        single = bool(self._conversations) and self._random.random() > 0.85
        return self._pick(self._conversations if single else self._shared)

    def _pick(self, chains: list[Document]) -> Document:
        return chains[int(self._random.integers(len(chains)))]


@dataclass(frozen=True, slots=True)
class Overlap:
    """How much a set of prompts matches: shares of all its blocks, and of its prompts."""

    blocks_on_two: float
    blocks_on_any: float
    prompts_nowhere: float


def overlap(prompts: list[Prompt]) -> Overlap:
    """Judges the prompts by their right answers."""
    total = two = any_ = nowhere = 0
    for prompt in prompts:
        counts = sorted(prompt.held.values(), reverse=True)
        total += len(prompt.tokens) // BLOCK
        any_ += counts[0] if counts else 0
        two += counts[1] if len(counts) > 1 else 0
        nowhere += not counts
    return Overlap(two / total, any_ / total, nowhere / len(prompts))
