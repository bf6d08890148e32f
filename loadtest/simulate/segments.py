"""Prompts as paths through a tree of runs of blocks. Pure.

Sessions go on from what they said before, so nearly all blocks of a trace stand in long runs that no prompt ever parts.
A run is kept as one node, and a prompt as few nodes instead of thousands of blocks; what a cache does with the nodes is
what it would do with the blocks. For that prompts must be added in the order in which they are asked: a run is parted
where one prompt leaves another, and where a prompt ends inside what an earlier one has, and never else. So whoever asks
for a part of a run asks for all of it that anybody had by then, and all that a pod has of it was used at one time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from numpy.typing import NDArray

    Ids = NDArray[np.int64]

Path = tuple[tuple[int, int], ...]
"""Runs from the first block on, each with how many blocks of it: all of them, but for the last."""


class _Run:
    """Blocks `start` to `stop` of all prompts that go through it."""

    __slots__ = ("below", "ids", "number", "parent", "start")

    def __init__(self, number: int, parent: _Run | None, start: int, ids: Ids) -> None:
        self.number, self.parent, self.start, self.ids = number, parent, start, ids
        self.below: dict[int, _Run] = {}

    @property
    def stop(self) -> int:
        return self.start + len(self.ids)


class Prompt(NamedTuple):
    """One that was added: its last run as of then, and its length in blocks."""

    run: _Run
    blocks: int


class Segments:
    """All prompts of a trace. Those of different scopes share nothing, whatever their ids."""

    def __init__(self) -> None:
        self._roots: dict[Hashable, _Run] = {}
        self._count = 0

    def add(self, ids: Ids, scope: Hashable = None) -> Prompt:
        """The next prompt, by one id a block."""
        run = self._roots.get(scope)
        if run is None:
            run = self._roots[scope] = _Run(-1, None, 0, ids[:0])
        while run.stop < len(ids):
            following = run.below.get(int(ids[run.stop]))
            if following is None:
                return Prompt(self._go_on(run, ids[run.stop :]), len(ids))
            same = _same(following.ids, ids[run.stop :])
            run = following if same == len(following.ids) else self._part(following, same)
        return Prompt(run, len(ids))

    def path(self, prompt: Prompt) -> Path:
        """Once all prompts are added: later ones part runs."""
        return tuple(_upwards(prompt))[::-1]

    def _go_on(self, run: _Run, ids: Ids) -> _Run:
        """Longer than any before: the same run where no other prompt goes on from there."""
        if run.parent is not None and not run.below:
            run.ids = np.concatenate((run.ids, ids))
            return run
        return self._run(run, run.stop, ids)

    def _part(self, run: _Run, blocks: int) -> _Run:
        """Its first blocks as a run of their own, above the rest."""
        parent = run.parent
        assert parent is not None
        upper = self._run(parent, run.start, run.ids[:blocks])
        run.parent, run.start, run.ids = upper, upper.stop, run.ids[blocks:]
        upper.below[int(run.ids[0])] = run
        return upper

    def _run(self, parent: _Run, start: int, ids: Ids) -> _Run:
        run = _Run(self._count, parent, start, ids)
        self._count += 1
        parent.below[int(ids[0])] = run
        return run


def _upwards(prompt: Prompt) -> Iterator[tuple[int, int]]:
    run: _Run | None = prompt.run
    while run is not None and run.parent is not None:
        if run.start < prompt.blocks:
            yield run.number, min(run.stop, prompt.blocks) - run.start
        run = run.parent


def _same(first: Ids, second: Ids) -> int:
    """How many leading ids are equal."""
    length = min(len(first), len(second))
    unequal = first[:length] != second[:length]
    place = int(unequal.argmax()) if length else 0
    return place if length and unequal[place] else length
