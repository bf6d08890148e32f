"""An engine on real sockets that remembers what it held after each of its batches, as a naive model says it."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Final, NamedTuple

from api.demo.engine import EngineSimulator
from indexer.model import Tier
from tests.support.core_events import BLOCK, CLEARED, payload, stored
from tests.support.core_model import Expected, ModelSource, as_summed
from tests.support.core_streams import LAYOUTS, TRUNKS, Chain, Contents, Removal, Store, removal_event, store_event
from tests.support.told_at import told_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from schemas.lookup import PodEntry

TAIL: Final = 3
"""Tokens of a question after its whole blocks."""
QUESTIONS: Final = [Chain(flavour, trunk) for flavour in ("plain", "adapter", "salt", "image") for trunk in TRUNKS]
STAMP: Final = 1_700_000_000.0
LIFE_S: Final = 100_000.0
"""Between the time stamps of one life and the next: a stamp tells both the life and the batch."""
Operation = Store | Removal | str
"""A string is "clear" or "nothing"."""


class Batch(NamedTuple):
    """Which one: `sequence` of that `life`, both from 0."""

    life: int
    sequence: int

    @property
    def stamp(self) -> float:
        """The engine's time stamp on it."""
        return STAMP + LIFE_S * self.life + self.sequence


def batch_of(stamp: float) -> Batch:
    """The one with that time stamp."""
    life, sequence = divmod(stamp - STAMP, LIFE_S)
    return Batch(int(life), int(sequence))


def said(entry: PodEntry) -> Expected:
    """What an entry says of blocks."""
    tiers, prefix = entry.tiers, entry.prefix
    return Expected(
        entry.matched_tokens,
        entry.reusable_tokens,
        (tiers.gpu, tiers.cpu, tiers.storage, tiers.remote, tiers.unknown),
        (prefix.gpu, prefix.cpu, prefix.storage, prefix.remote),
        as_summed(entry.score),
    )


class SpeakingEngine:
    """`contents` are shared by all engines that are asked the same.

    `truth` is what the engine holds; `known` what an index holds that was cleared by callers on the way.
    """

    def __init__(self, layout: str, contents: Contents, *, replays: bool, host: str = "127.0.0.1") -> None:
        at = f"tcp://{host}:0"
        self.simulator = EngineSimulator(at, at if replays else None)
        self.simulator.start()
        self.groups = LAYOUTS[layout]
        self.life = 0
        self.held: dict[Batch, list[Expected]] = {}
        """After each batch, for each question."""
        self.told: list[object] = []
        """Every batch and when it was said, for whoever reads why a test failed."""
        self.truth: ModelSource
        self.known: ModelSource
        self._contents = contents
        self._numbers = [contents.numbers(question) for question in QUESTIONS]
        self._ever: list[set[int]] = []
        """By life, contents that were announced in it."""
        self._begin()

    def _begin(self) -> None:
        self.truth, self.known = (
            ModelSource(self.groups, self._contents.of_hash, count_copies=True, ttls={}) for _ in range(2)
        )
        self._ever.append(set())

    # -- what it does --------------------------------------------------------------------------------------------------

    def say(self, operations: Sequence[Operation]) -> None:
        """One batch. It names all groups: of whom the first of a life passes by knows as much as who heard all."""
        batch = Batch(self.life, self.simulator.sequence + 1)
        for model in (self.truth, self.known):
            model.batch(batch.sequence)
        events = [*self._name_groups(), *(self._event(operation) for operation in operations)]
        held = [lane for entries in self.truth.lanes.values() for lane in entries if lane in self.truth.placed]
        self._ever[self.life] |= {self._contents.of_hash[engine_hash] for engine_hash in held}
        self.told.append((told_at(), *batch, operations))
        self.held[batch] = [self._expected(self.truth, number) for number in range(len(QUESTIONS))]
        self.simulator.publish(payload(*events, ts=batch.stamp))

    def _name_groups(self) -> Iterator[object]:
        for number, group in enumerate(self.groups):
            for model in (self.truth, self.known):
                model.learn(number, sized=True)
            yield stored(
                [],
                range(group.size),
                block_size=group.size,
                group_idx=number,
                kv_cache_spec_kind=group.kind,
                kv_cache_spec_sliding_window=group.window,
            )

    def _event(self, operation: Operation) -> object:
        if operation == "clear":
            self.truth.cleared()
            self.known.cleared()
            return CLEARED
        if isinstance(operation, str):
            return stored([], [1, 2, 3, 4], group_idx=0)
        if isinstance(operation, Removal):
            told = removal_event(operation, self._contents, "seed", self.groups)
            for model in (self.truth, self.known):
                model.removed(told.lane, told.hashes)
        else:
            told = store_event(operation, self._contents, "seed", self.groups, self.truth.lacks_parent)
            for model in (self.truth, self.known):
                model.stored(told.lane, told.hashes, told.parent, 0.0, dense=told.dense)
        return told.event

    def end(self) -> None:
        """Its process is killed: connections end, and what is on its way is lost. `restart` brings the next one."""
        self.simulator.stop(linger_ms=0)

    def restart(self) -> None:
        """Another process, which has said nothing."""
        self.life += 1
        self._begin()
        self.simulator.restart()

    def missing_from(self, store: Store) -> int | None:
        """The first block of that store's chain that is not held where it would store it; None where all are."""
        number = store.group % len(self.groups)
        step = self.groups[number].size // BLOCK
        ends = self._contents.hashes(store.chain, store.engine("seed"))[step - 1 :: step]
        held = self.truth.lanes.get((number, store.tier), {})
        return next((place * step for place, engine_hash in enumerate(ends) if engine_hash not in held), None)

    # -- what must be answered -----------------------------------------------------------------------------------------

    @property
    def last(self) -> Batch:
        """The one said last; of sequence -1 before the first of a life."""
        return Batch(self.life, self.simulator.sequence)

    def cleared_by_caller(self) -> None:
        """What was said before counts no more."""
        self.known.cleared_by_operator()

    def heard_anew(self) -> None:
        """Whoever listens heard it from its first batch on."""
        self.known = copy.deepcopy(self.truth)
        self.known.content = self.truth.content

    def expected(self, number: int) -> set[tuple[str, Expected]]:
        """Now, of a question: bound and answer of an index that heard all.

        A clear is forgotten where everything that knew of it is, and the engine then replays all from its first batch.
        """
        return {self._told(model, number) for model in (self.known, self.truth)}

    def _told(self, model: ModelSource, number: int) -> tuple[str, Expected]:
        expected = self._expected(model, number)
        return model.bound_of(bool(expected.tiers[Tier.STORAGE])), expected  # whose ends need not be announced

    def _expected(self, model: ModelSource, number: int) -> Expected:
        tokens = len(QUESTIONS[number].tokens()) + TAIL
        return model.expected(self._numbers[number], tokens, partial=False)

    def ever_matched(self, number: int, lives: Sequence[int]) -> int:
        """Tokens of a question at its start of which each block was announced at some time in one of these lives."""
        ever = set[int]().union(*(self._ever[life] for life in lives))
        contents = self._numbers[number]
        blocks = next((block for block, content in enumerate(contents) if content not in ever), len(contents))
        return blocks * len(QUESTIONS[number].tokens()) // len(contents)

    def close(self) -> None:
        """Its sockets and its thread end."""
        self.simulator.close()
