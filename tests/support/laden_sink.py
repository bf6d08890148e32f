"""A RecordingSink some of whose batches are large: it takes them in steps, as the core does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from indexer.model import Descriptor, RawBatch
from indexer.ports import RestartReason
from tests.support.recording_sink import RecordingSink

STEPS = 20


class LadenSink(RecordingSink):
    """Every batch whose number is in `large` takes so many steps. `most_waiting`: told while one was under way."""

    def __init__(self, descriptor: Descriptor, large: set[int], steps: int = STEPS) -> None:
        super().__init__(descriptor)
        self._steps = steps
        self._large = large
        self._left = 0
        self._later: list[Callable[[], None]] = []
        self.steps = 0
        self.most_waiting = 0

    @property
    def busy(self) -> bool:
        return self._left > 0

    def apply(self, batch: RawBatch) -> None:
        if self.busy:
            self._wait(partial(self.apply, batch))
            return
        super().apply(batch)
        if batch.sequence in self._large:
            self._left = self._steps

    def gap(self, first: int, last: int) -> None:
        if self.busy:
            self._wait(partial(self.gap, first, last))
        else:
            super().gap(first, last)

    def restart(self, reason: RestartReason) -> None:
        self._left, self._later = 0, []
        super().restart(reason)

    def go_on(self) -> bool:
        if not self.busy:
            return False
        self.steps += 1
        self._left -= 1
        if not self.busy:
            later, self._later = self._later, []
            for step in later:
                step()
        return self.busy

    def _wait(self, step: Callable[[], None]) -> None:
        self._later.append(step)
        self.most_waiting = max(self.most_waiting, len(self._later))
