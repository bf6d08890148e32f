"""Where the blocks that prompts ask for lie in the table. Pure.

Finding the slots of 450 keys costs more than reading them: a third lies behind its home. But prompts share their
beginnings, and the same blocks are asked for with each turn of a conversation. So the slots of 32 blocks in a row are
remembered under the hash of the last, which stands for all of them, since hashes are chained (decisions/0029).

Hints, not facts: a removal moves the keys behind it, and a caller may ask by hashes that are not of one chain. Whoever
takes one compares the keys. They are of one generation of the table's arrays, and forgotten with it. Bounded
(recent.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from indexer.recent import Recent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

RUN: Final = 32
"""Blocks in a row that are remembered together: as many as a chunk of a prompt has (hashing/memo.py)."""
RUNS_MAX: Final = 8_192
"""In each of the two halves, which together take 7 MB."""
_NONE: Final = np.empty(0, np.int64)


class SlotHints:
    """Of one table."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: Recent[int, bytes] = Recent(RUNS_MAX)

    def leading(self, wanted: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Slots of the first keys, in whole runs; not to be written to."""
        young = self._runs.young
        lasts: list[int] = wanted[RUN - 1 :: RUN].tolist()
        images = [young.get(last) or self._runs.get(last) for last in lasts]
        if None in images:
            images = images[: images.index(None)]
        return np.frombuffer(b"".join(images), np.int64) if images else _NONE  # type: ignore[arg-type]  # no None left

    def learn(self, wanted: NDArray[np.uint64], slots: NDArray[np.int64], runs: Iterable[int] | None = None) -> None:
        """Where these keys were found, in whole runs from the first key on; or only the runs of these numbers."""
        for run in range(len(slots) // RUN) if runs is None else runs:
            begin, end = run * RUN, (run + 1) * RUN
            self._runs.keep(wanted.item(end - 1), slots[begin:end].tobytes())

    def forget(self) -> None:
        """Remember nothing any more."""
        self._runs.forget()
