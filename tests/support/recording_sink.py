"""An EventSink that writes down what it is told: the core's place in tests of collect."""

from __future__ import annotations

from collections import Counter

from indexer.model import Descriptor, RawBatch
from indexer.ports import CollectorCount, DoubtReason, Replayed, RestartReason, Resume, SuspectReason


class RecordingSink:
    """Keeps the story as tuples, newest last, and what a core would make of it: numbers applied in this life."""

    def __init__(self, descriptor: Descriptor, resume: Resume | None = None) -> None:
        """`resume`: its state is loaded, and the collector has to go on from there."""
        self._descriptor = descriptor
        self.resume = resume
        self._loaded = None if resume is None else resume.sequence
        self.open = True
        self.story: list[tuple[object, ...]] = []
        self.applied: list[int] = []
        """Sequence numbers of this life, in order of application."""
        self.payloads: list[bytes] = []
        self.counts: Counter[CollectorCount] = Counter()
        self.replays: list[Replayed] = []
        self.warnings: dict[str, str] = {}
        self.suspicions: set[SuspectReason] = set() if resume is None else set(resume.suspicions)
        self.is_syncing = False
        self.proofs = 0
        self.alive_calls: list[bool] = []
        self.seen_calls: list[float] = []
        self.silent_s = 0.0
        self.late: list[int] = []
        """Which of all that was applied was told to be of the past."""

    @property
    def descriptor(self) -> Descriptor:
        return self._descriptor

    @property
    def cursor(self) -> int | None:
        return self.applied[-1] if self.applied else self._loaded

    @property
    def connected(self) -> bool:
        return bool(self.alive_calls) and self.alive_calls[-1]

    def apply(self, batch: RawBatch) -> None:
        self.story.append(("apply", batch.sequence))
        self.applied.append(batch.sequence)
        self.payloads.append(batch.payload)
        if batch.late:
            self.late.append(batch.sequence)

    @property
    def busy(self) -> bool:
        return False

    def go_on(self) -> bool:
        return False

    def restart(self, reason: RestartReason) -> None:
        self.story.append(("restart", reason))
        self._loaded = None
        self.applied = []
        self.payloads = []

    def gap(self, first: int, last: int) -> None:
        self.story.append(("gap", first, last))

    def syncing(self, active: bool) -> None:
        self.story.append(("syncing", active))
        self.is_syncing = active

    def proved(self) -> None:
        self.proofs += 1

    def doubt(self, reason: DoubtReason) -> None:
        self.story.append(("doubt", reason))

    def suspect(self, reason: SuspectReason, active: bool) -> None:
        self.story.append(("suspect", reason, active))
        (self.suspicions.add if active else self.suspicions.remove)(reason)

    def alive(self, connected: bool, silent_s: float = 0.0) -> None:
        self.alive_calls.append(connected)
        self.silent_s = silent_s

    def seen(self, at: float) -> None:
        self.seen_calls.append(at)

    def count(self, what: CollectorCount, n: int = 1) -> None:
        self.counts[what] += n

    def replayed(self, told: Replayed) -> None:
        self.replays.append(told)

    def warn(self, warning: str | None, *, key: str) -> None:
        if warning is None:
            self.warnings.pop(key, None)
        else:
            self.warnings[key] = warning
