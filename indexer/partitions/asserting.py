"""[I/O] New copies of maps: where the store does not have a whole one, or one has too little room.

A map is laid beside its use: its source is applied and answered on, what changes meanwhile is laid on top, and at one
batch the pointer is turned.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from indexer.happenings import Happening
from indexer.partitions.calls import RETRY_MAX_S, RETRY_S
from indexer.partitions.laying import Layer
from indexer.store.entries import Moved, Reasserted
from indexer.store.facts import pack_facts, seen_us
from indexer.store.failures import StoreFailure
from indexer.store.journal import NewCopy
from indexer.store.outcomes import Began, Done, Whereabouts, began

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from indexer.model import SourceId
    from indexer.partitions.calls import Calls
    from indexer.partitions.owned import OwnedSource, Run
    from indexer.partitions.parts import Parts
    from indexer.partitions.refusals import Refusals
    from indexer.store.journal import Journal
    from indexer.store.layout import PartitionKeys
    from indexer.store.outcomes import Refusal

BETWEEN_PIECES_S: Final = 0.001
UNLINKS_MAX: Final = 4_096
"""Copies that wait to be freed; those beyond expire by themselves."""


class Asserting:
    """Of one epoch. `write` writes what was taken of a source; `touch` tells that something of it waits."""

    def __init__(
        self,
        parts: Parts,
        keys: PartitionKeys,
        journal: Journal,
        calls: Calls,
        refusals: Refusals,
        *,
        owned: Mapping[int, OwnedSource],
        due: asyncio.Event,
        write: Callable[[OwnedSource, Run], Awaitable[Done | Refusal | None]],
        touch: Callable[[OwnedSource], None],
    ) -> None:
        self._parts = parts
        self._keys = keys
        self._journal = journal
        self._calls = calls
        self._refusals = refusals
        self._owned = owned
        self._due = due
        self._write = write
        self._touch = touch
        self._pointed_at: Whereabouts | None = None
        """The copy of which it is not known whether the pointer was turned to it."""
        self._unlinks: deque[tuple[SourceId, Whereabouts]] = deque(maxlen=UNLINKS_MAX)
        self._laying = asyncio.Lock()
        """Who hands the partition over lays what is lost beside `run`: two that collect what changes late of one source
        would each miss what the other took."""

    async def run(self) -> None:
        """Lay new copies of sources that want one, one after the other."""
        rest = RETRY_S
        while True:
            await self._due.wait()
            self._due.clear()
            again = False
            for owned in list(self._owned.values()):
                if owned.wish is not None and self._refusals.may_write(owned):
                    again = not await self.lay(owned) or again
                again = again or (owned.wish is not None and self._refusals.is_here(owned))
            if again:  # a store that is full, say: what was laid of a copy takes the room that others need
                await asyncio.sleep(rest * (1.0 + self._parts.chance.random()))
                self._due.set()
            rest = min(2 * rest, RETRY_MAX_S) if again else RETRY_S

    async def free(self) -> None:
        """Free copies that nothing points at. What fails expires by itself."""
        while True:
            await asyncio.sleep(RETRY_S)
            while self._unlinks:
                first = source, where = self._unlinks[0]
                try:
                    await self._journal.unlink(source, where)
                except StoreFailure:
                    break
                if self._unlinks[0] is first:  # else there were too many, and it went
                    self._unlinks.popleft()

    async def lay(self, owned: OwnedSource) -> bool:
        """Lay the source's map whole and point at it; False where that has to be tried again."""
        async with self._laying:
            return owned.wish is None or await self._lay(owned)

    async def _lay(self, owned: OwnedSource) -> bool:
        wish = owned.wish
        generation = owned.source.facts.generation
        where = self._journal.new_copy(generation, owned.source.pairs + owned.source.map.waiting)
        layer = Layer(self._journal, self._keys, owned, where)
        owned.collect()
        try:
            refused = await layer.whole(owned, self._parts.mirror, self._parts.wall_ahead_s)
            if refused is not None:
                self._refusals.refused(refused, [owned])
                return False
            async with self._calls.turn:
                if (
                    owned.wish != wish
                    or owned.source.facts.generation != generation
                    or not self._refusals.is_here(owned)
                ):
                    return False  # what was laid is void
                await self._until_between_batches(owned)
                if wish == "lost":
                    return await self._reassert(owned, layer, where)
                return await self._move(owned, layer, where)
        except StoreFailure:
            return False
        finally:
            if where not in {owned.where, self._pointed_at}:
                self._unlinks.append((owned.id, where))  # void: a store that fails again and again must not fill up
            owned.stop_collecting()
            self._touch(owned)

    async def _until_between_batches(self, owned: OwnedSource) -> None:
        while self._parts.ingest.is_busy(owned.source):  # noqa: ASYNC110  a batch's pieces tell nobody of their end
            await asyncio.sleep(BETWEEN_PIECES_S)

    async def _move(self, owned: OwnedSource, layer: Layer, where: Whereabouts) -> bool:
        """The copy in use is whole: it is written up to a batch, the new one too, and that takes its place."""
        late, run = owned.late, owned.take(self._parts.clock)
        owned.stop_collecting()
        if late is None:
            return False
        if run is not None:
            reply = await self._write(owned, run)
            if not isinstance(reply, Done):
                if reply is not None:
                    self._refusals.refused(reply, [owned])
                return False
        refused = await layer.changes(late)
        if refused is not None:
            self._refusals.refused(refused, [owned])
            return False
        entry = Moved(owned.name, where.generation, where.copy)
        return await self._flip(owned, layer, where, owned.written, owned.facts, entry)

    async def _reassert(self, owned: OwnedSource, layer: Layer, where: Whereabouts) -> bool:
        """There is no whole copy: this one says all up to now, and what changes from here on follows it."""
        late = owned.late
        owned.stop_collecting()
        facts = pack_facts(owned.source, seen_us(owned.source, self._parts.clock))
        sequence = owned.source.facts.sequence
        if late is None:
            return False
        owned.wish = None
        try:
            refused = await layer.changes(late)
            if refused is not None:
                self._refusals.refused(refused, [owned])
                return False
            entry = Reasserted(owned.name, where.generation, where.copy)
            return await self._flip(owned, layer, where, sequence, facts, entry)
        finally:
            if owned.where != where and self._calls.open is None:
                self._refusals.lose(owned)

    async def _flip(
        self,
        owned: OwnedSource,
        layer: Layer,
        where: Whereabouts,
        sequence: int | None,
        facts: bytes,
        entry: Moved | Reasserted,
    ) -> bool:
        """Point at the new copy."""

        def was_done() -> None:
            owned.where, owned.written, owned.facts = where, sequence, facts
            self._tell(owned, entry)
            if owned.wish != "lost":  # what was dropped meanwhile is in no copy
                owned.wish = None

        def was_not() -> None:
            if isinstance(entry, Reasserted):
                self._refusals.lose(owned)

        left, pairs = owned.where, sum(layer.counts.values())
        copy = NewCopy(source=owned.id, where=where, cursor=sequence, facts=facts, pairs=pairs)
        self._pointed_at = where
        reply = await self._calls.make(lambda: self._journal.flip(copy, entry), began, was_done, was_not)
        self._pointed_at = None
        if isinstance(reply, Began):
            self.leave(owned, reply)
            if left not in {None, where, reply.before}:  # the store did not know any more where it was
                self.leave(owned, Began(left))
            return True
        if reply is not None:
            self._refusals.refused(reply, [owned])
        return False

    def _tell(self, owned: OwnedSource, entry: Moved | Reasserted) -> None:
        """For the history of a source that is in the store again. One that grew was never out of it."""
        if isinstance(entry, Moved):
            return
        cause, generation = owned.lost_by, owned.source.facts.generation
        if owned.wish != "lost":
            owned.lost_by = None
        happening = Happening(what="reassertion", cause=cause, sequence=owned.written, generation=generation)
        self._parts.history.note(owned.id, happening)

    def leave(self, owned: OwnedSource, reply: Began) -> None:
        """A copy that nothing points at any more is to be freed."""
        if reply.before is not None and reply.before != owned.where:
            self._unlinks.append((owned.id, reply.before))
