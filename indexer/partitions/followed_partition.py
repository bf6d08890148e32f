"""One followed partition: the journal's entries, commands and readings of maps, in their order. Does no I/O.

Steps of the generators are short, and others may run between them. Whoever runs one holds `turn`, so that one ends
before the next begins.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

from indexer.log_lines import about
from indexer.partitions.followed_sources import AT_ONCE, FollowedSources
from indexer.partitions.options import PartitionProgress
from indexer.partitions.reading import Place
from indexer.store.entries import START, Changed, Moved, Position, Reasserted, Ticked, Turned
from indexer.store.failures import DamagedValue
from indexer.store.following import Follower, Next, Reload

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from indexer.index.mirror import Mirror
    from indexer.partitions.followed import FollowedSource
    from indexer.partitions.options import PartitionState
    from indexer.partitions.reading import Reading
    from indexer.partitions.shelves import Shelves
    from indexer.store.client import StreamEntry
    from indexer.store.entries import SourceChange, SourceTick
    from indexer.store.layout import PartitionKeys
    from indexer.store.loading import SourceState
    from indexer.store.rebuild import Survey

log = logging.getLogger("kvindexer.followers")


class FollowedPartition:
    """Told by whoever does the I/O, who also does what `sources.wanted` and `registry_due` ask for.

    `models`: those whose sources are followed; None: all.
    """

    def __init__(
        self,
        number: int,
        keys: PartitionKeys,
        shelves: Shelves,
        mirror: Mirror,
        models: AbstractSet[str] | None = None,
    ) -> None:
        self.number = number
        self.keys = keys
        self.turn = asyncio.Lock()
        self.sources = FollowedSources(shelves, mirror, models)
        self.follower: Follower | None = None
        """None: where its journal ends and what its registry is, is to be found out (anew)."""
        self.control = START
        """Of the command obeyed last: an id of the server's own, which has the same form."""
        self.owner_control = START
        """Of the last command that its owner has obeyed, as far as its ticks tell."""
        self.registry_due = False
        """Commands were missed, or the store went back: the registry is to be read again."""
        self.is_reached = False
        self.is_left = False
        self.due_at = 0.0
        """When to try again to find out, where that came to nothing."""
        self.tries = 0
        self.lost_in_a_row = 0
        """How often it began anew and came to no entry: what it meets again and again will not be gone at once."""
        self.end_seen_at = 0.0
        """A moment at which nothing lay in the journal that is not entered here."""
        self.entry_at: float | None = None
        self.reloads: Counter[str] = Counter()
        self._catching_up: dict[FollowedSource, None] = {}

    @property
    def position(self) -> Position:
        """Of the entry entered last."""
        return START if self.follower is None else self.follower.position

    # -- where it begins, and ends -------------------------------------------------------------------------------------

    def begin(self, found: Survey, now: float) -> Generator[None, None, None]:
        """Follow from there on. All maps are to be read; what is known stands, and answers as stale until then."""
        if self.is_left:
            return
        self.follower, self.control = Follower(found.position), Position.parse(found.control)
        self.owner_control = START
        self.end_seen_at, self.is_reached, self.registry_due = now, True, False
        yield from self.sources.want_all()
        yield from self.sources.register_all(found.registry, now)

    def lose(self, why: str) -> None:
        """The journal does not go on from here."""
        if self.follower is not None:
            self.reloads[why] += 1
            self.lost_in_a_row += 1
            self.follower = None
            log.info(
                "partition %d is read anew: %s",
                self.number,
                why,
                extra=about("partition_reread", partition=self.number),
            )

    def look(self, head: bytes | None, asked_at: Position, *, is_missing: bool) -> None:
        """Did the store lose something?

        `head`: the id of the journal's last entry; `asked_at`: the position when that was asked for; `is_missing`:
        nothing lies behind that position, though the head does.
        """
        if self.follower is not None:
            reload = self.follower.observe_head(head, asked_at)
            if reload is not None:
                self.lose(reload.why)
            elif is_missing and self.position == asked_at:
                self.lose("hole")

    def leave(self) -> None:
        """Nobody follows it any more. Its sources stay as they are."""
        self.is_left, self.follower = True, None
        self.sources.leave()

    def has_obeyed(self, command: Position) -> bool:
        """Whether a command is in force here and at the owner. Positions here are ids of the control stream."""
        is_read = self.follower is not None and not self.registry_due and self.control >= command
        return is_read and self.owner_control >= command

    # -- commands and entries ------------------------------------------------------------------------------------------

    def obey(self, commands: Iterable[StreamEntry]) -> Generator[None, None, None]:
        """Commands, in their order."""
        for entry_id, fields in commands:
            if self.is_left:
                return
            try:
                self.control = Position.parse(entry_id)
                self.registry_due = not self.sources.obey(fields) or self.registry_due
            except DamagedValue as damage:
                self.sources.refuse(damage.what)
                self.registry_due = True
            yield

    def hear(self, entries: Sequence[StreamEntry], heard_at: float) -> Generator[None, None, None]:
        """Entries of the journal, in their order. `heard_at`: none of them was written long before."""
        for entry_id, fields in entries:
            if self.follower is None:
                return
            step = self.follower.observe(entry_id, fields)
            if isinstance(step, Reload):
                self.lose(step.why)
                return
            self.lost_in_a_row = 0
            if isinstance(step, Next):
                match step.entry:
                    case Changed(changes):
                        yield from self._change(changes)
                    case Ticked(_, ticks, control):
                        yield from self._tick(ticks, heard_at)
                        self.owner_control = Position.parse(control) if control else START
                    case entry:
                        self._renew(entry)
            self.entry_at = heard_at
            self._stand()
            yield

    def _change(self, changes: Iterable[SourceChange]) -> Generator[None, None, None]:
        for change in changes:
            source = self.sources.by_name.get(change.source)
            if source is None:
                continue  # passed over, in flight when it was removed, or the registry is lost and will be put back
            try:
                is_wanted = yield from source.change(change)
            except DamagedValue as damage:
                self.sources.refuse(damage.what)
                is_wanted = True
            if is_wanted and not source.gone:
                self.sources.want(source)

    def _tick(self, ticks: Iterable[SourceTick], heard_at: float) -> Generator[None, None, None]:
        for nth, tick in enumerate(ticks):
            source = self.sources.by_name.get(tick.source)
            try:
                if source is not None and source.tick(tick, heard_at):
                    self.sources.want(source)
            except DamagedValue as damage:
                self.sources.refuse(damage.what)
            if nth % AT_ONCE == AT_ONCE - 1:
                yield

    def _renew(self, entry: Turned | Reasserted | Moved) -> None:
        source = self.sources.by_name.get(entry.source)
        if source is None:
            return
        match entry:
            case Turned(_, generation):
                source.turned(generation)
            case Reasserted(_, generation, copy):
                place = Place(generation, copy)
                if source.reasserted(place):
                    self.sources.want(source, place)
            case Moved():
                pass  # nothing that was told differs

    # -- readings of maps ----------------------------------------------------------------------------------------------

    def has_read(
        self, source: FollowedSource, reading: Reading, until: Position, due_at: float
    ) -> Generator[None, None, None]:
        """A map was read whole; the journal ended at `until` by then. `due_at`: when to try again, if it is no use."""
        if source.reading is not reading:
            return
        if source.refuses(reading):
            self._again(source, reading, due_at)
            return
        try:
            is_of_use = yield from source.catch_up(reading, until)
        except DamagedValue as damage:
            self.sources.refuse(damage.what)
            if source.reading is reading:
                source.give_up(due_at)
            return
        if source.reading is not reading:
            return
        if is_of_use:
            self._catching_up[source] = None
            self._stand()
        else:
            self._again(source, reading, due_at)

    def has_no_copy(self, source: FollowedSource, reading: Reading, state: SourceState | None, due_at: float) -> None:
        """There is no whole copy, or none that stands still: its owner will make one, and the journal will tell."""
        if source.reading is not reading:
            return
        if state is not None:
            source.end_before(state.generation)
        if source.reading is reading:
            self._again(source, reading, due_at)

    def _again(self, source: FollowedSource, reading: Reading, due_at: float) -> None:
        """What was read is of no use: at once where the journal tells of a later copy, else in a while."""
        if reading.is_outdated:
            self.sources.want(source)
        else:
            source.give_up(due_at)

    def _stand(self) -> None:
        """Whatever has caught up takes its place."""
        for source in list(self._catching_up):
            if not source.is_catching_up or source.stand_if_caught_up(self.position):
                del self._catching_up[source]

    # -- what is told of it --------------------------------------------------------------------------------------------

    @property
    def state(self) -> PartitionState:
        """Whether its journal is followed and all of it read."""
        if not self.is_reached:
            return "lost"
        sources = self.sources.by_name.values()
        is_loading = self.follower is None or any(source.reading is not None for source in sources)
        return "loading" if is_loading else "following"

    def age_s(self, now: float) -> float | None:
        """Time since an entry came; None before the first."""
        return None if self.entry_at is None else max(0.0, now - self.entry_at)

    def progress(self, now: float) -> PartitionProgress:
        """How far it is."""
        sources = self.sources.by_name.values()
        return PartitionProgress(
            partition=self.number,
            state=self.state,
            sources=len(sources),
            passed_over=len(self.sources.passed_over),
            loaded=sum(source.whole for source in sources),
            position=str(self.position),
            age_s=self.age_s(now),
            reloads=dict(self.reloads),
        )
