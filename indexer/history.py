"""Histories of sources as this process wrote them: merged, numbered, and the latest of each source kept. No I/O.

With a store they are handed on to be written there (`post`), and what is kept here is the answer while it is away;
without one it is all there is. Bounded: `KEPT` entries a source, and one a second of a kind.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.happenings import Entry, Gathering, pack_entry, unpack_entry
from indexer.moments import utc_text
from schemas.history import HistoryItem, HistoryNumbers

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Generator, Iterable, Sequence

    from indexer.happenings import Happening
    from indexer.model import SourceId
    from indexer.ports import Clock

KEPT: Final = 256
"""Entries of a source."""
LATER_MAX: Final = 16_384
"""What waits to be noted, over all sources: some turns' work."""
NOTHING_YET: Final = -1
"""Sequence of a source of which it is known that it published nothing."""
TOLD_AT_ONCE: Final = 128
"""Of what was merged, in one turn: less than a millisecond."""


class Mark(NamedTuple):
    """Where an entry stands among those of a pod, the newest having the greatest: a page ends at one."""

    ms: int
    number: int
    rank: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.number}-{self.rank}"


class Told(NamedTuple):
    """An entry at its place."""

    mark: Mark
    entry: Entry


class Noted(NamedTuple):
    """An entry of this process. Its numbers only grow."""

    at_ms: int
    number: int
    packed: bytes


class History:
    """One a process. `replica` is its name, empty where there are no others."""

    def __init__(self, clock: Clock, *, replica: str = "") -> None:
        self._clock = clock
        self.replica = replica
        self.post: Callable[[SourceId, Noted], None] = _keep_here
        """Called with each entry, in order."""
        self._gathering: Gathering[SourceId] = Gathering()
        self._kept: dict[SourceId, deque[Noted]] = {}
        self._later: deque[tuple[SourceId, int, Happening]] = deque()
        """Of sources whose partition changed hands."""
        self.dropped = 0
        """Of these, what found no room: the oldest went."""
        self.number = 0
        """Of the entry told last."""

    def note(self, source: SourceId, happening: Happening) -> None:
        """It happened just now."""
        self._note(source, self._clock.wall_us() // 1000, happening)

    def note_all(self, happened: Iterable[tuple[SourceId, Happening]]) -> None:
        """The same, of as many sources as a partition has: noted in the next turns, with this moment's time."""
        at_ms = self._clock.wall_us() // 1000
        for source, happening in happened:
            if len(self._later) == LATER_MAX:
                self._later.popleft()
                self.dropped += 1
            self._later.append((source, at_ms, happening))

    @property
    def has_more(self) -> bool:
        """Whether something is not noted yet."""
        return bool(self._later)

    def turn(self) -> None:
        """What was merged and is due is told. Called often."""
        for _ in range(min(len(self._later), TOLD_AT_ONCE)):
            self._note(*self._later.popleft())
        for source, entry in self._gathering.due(self._clock.now(), TOLD_AT_ONCE):
            self._tell(source, entry)

    def close(self) -> None:
        """Nothing more will happen: what waits to be noted, or merged, is told."""
        while self._later:
            self.turn()
        for source, entry in self._gathering.rest():
            self._tell(source, entry)

    def tidy(self, known: Container[SourceId]) -> Generator[None, None, None]:
        """Give back what is kept of sources that are gone, a step a source."""
        for source in list(self._kept):
            yield
            if source not in known:
                self._kept.pop(source, None)

    def kept(self, source: SourceId) -> list[Told]:
        """All that this process knows of one source, in no order."""
        told = [of_process(source, noted) for noted in self._kept.get(source, ())]
        return told + self.waiting(source)

    def since(self, source: SourceId, number: int) -> list[Noted]:
        """Entries of a source that were told after that one."""
        return [noted for noted in self._kept.get(source, ()) if noted.number > number]

    def waiting(self, source: SourceId) -> list[Told]:
        """What is merged still: it has no number yet, and stands behind all that have."""
        return [
            Told(Mark(entry.at_ms, self.number + 1 + place, source.dp_rank), entry)
            for place, entry in enumerate(self._gathering.waiting(source))
        ]

    def _note(self, source: SourceId, at_ms: int, happening: Happening) -> None:
        entry = Entry(at_ms=at_ms, happening=happening, replica=self.replica or None)
        told = self._gathering.take(source, entry, self._clock.now())
        if told is not None:
            self._tell(source, told)

    def _tell(self, source: SourceId, entry: Entry) -> None:
        self.number += 1
        noted = Noted(entry.at_ms, self.number, pack_entry(entry))
        kept = self._kept.get(source)
        if kept is None:
            kept = self._kept[source] = deque(maxlen=KEPT)
        kept.append(noted)
        self.post(source, noted)


def of_process(source: SourceId, noted: Noted) -> Told:
    """An entry that this process wrote, where it stands while no store has given it its place."""
    return Told(Mark(noted.at_ms, noted.number, source.dp_rank), unpack_entry(noted.packed))


def page(told: Iterable[Told], before: Mark | None, limit: int) -> tuple[list[Told], Mark | None]:
    """The newest first, of those before a mark; and the mark from which the next page goes on, None at the end."""
    older = sorted((each for each in told if before is None or each.mark < before), reverse=True, key=_mark)
    shown = older[:limit]
    return shown, shown[-1].mark if len(older) > limit else None


def since_registered(told: Sequence[Told]) -> list[Told]:
    """Of each rank what happened since it was registered last; of before nobody knows whose it was."""
    begins: dict[int, Mark] = {}
    for mark, entry in told:
        if entry.happening.what in {"registered", "removed"}:
            begins[mark.rank] = max(mark, begins.get(mark.rank, mark))
    return [each for each in told if each.mark.rank not in begins or each.mark >= begins[each.mark.rank]]


def item_of(told: Told) -> HistoryItem:
    """As callers see it."""
    entry, happening = told.entry, told.entry.happening
    return HistoryItem(
        at=utc_text(entry.at_ms / 1000),
        dp_rank=told.mark.rank,
        what=happening.what,
        cause=happening.cause,
        count=entry.count,
        numbers=HistoryNumbers(
            first=happening.first,
            last=happening.last,
            lost=happening.lost,
            sequence=None if happening.sequence == NOTHING_YET else happening.sequence,
            generation=_hex(happening.generation),
            generation_before=_hex(happening.generation_before),
            epoch=happening.epoch,
        ),
        replica=entry.replica,
    )


def _hex(generation: int | None) -> str | None:
    return None if generation is None else f"{generation:x}"


def _mark(told: Told) -> Mark:
    return told.mark


def _keep_here(_source: SourceId, _noted: Noted) -> None:
    """Memory mode."""
