"""[I/O] One epoch of one owned partition: what changed goes to the store, and others hear that its owner lives.

All journal calls of a partition go one after the other. A call of which it is not known whether it was done is sent
again until that is known: nothing else may follow it (decisions/0014). It outlives the epoch: the first entry of the
next one names the last entry before it, which tells.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import math
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from indexer.partitions.laying import Layer
from indexer.partitions.put_back import put_back_missing
from indexer.slices import Slices
from indexer.store.entries import Changed, Moved, Reasserted, SourceTick, Ticked, Turned
from indexer.store.facts import TickFacts, pack_facts
from indexer.store.failures import StoreFailure
from indexer.store.journal import NewCopy, SourceRun
from indexer.store.layout import segments_for
from indexer.store.lease import renew
from indexer.store.outcomes import (
    Began,
    Done,
    Fenced,
    Lost,
    OtherCursor,
    OtherGeneration,
    Refusal,
    Whereabouts,
    WrongType,
    began,
    done,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from indexer.model import SourceId
    from indexer.partitions.owned import OwnedSource, Run
    from indexer.partitions.parts import Parts
    from indexer.store.client import Reply
    from indexer.store.entries import Position, SourceChange
    from indexer.store.journal import Journal
    from indexer.store.layout import PartitionKeys
    from indexer.store.segments import Change

log = logging.getLogger("kvindexer.store")

T = TypeVar("T")
FIRST_PAIRS: Final = 65_536
"""Room of a source's first copy, where its engine's capacity is not known; it grows."""
RUN_FIELDS: Final = 20_000
"""Fields of a run after which no further source is added: 25 ms of the server's time."""
READY_AT_ONCE: Final = 2_000
"""Fields of a run that is made ready in one go: two milliseconds."""
KEEP_S: Final = 60.0
"""What is lost of an idle source is found within so long."""
WRONG_TYPE_REST_S: Final = 5.0
RETRY_S: Final = 0.1
RETRY_MAX_S: Final = 1.0
BETWEEN_PIECES_S: Final = 0.001
NEVER_MS: Final = 1 << 40
"""Age of a sign of life that never was."""
UNLINKS_MAX: Final = 4_096
"""Copies that wait to be freed; those beyond expire by themselves."""


class EpochOver(Exception):
    """Nothing more may be written: somebody else owns the partition, or nobody, or the store went back."""

    def __init__(self, why: Fenced | Lost) -> None:
        super().__init__(type(why).__name__)
        self.why = why


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call of which it is not known whether it was done: `position` is its entry's."""

    position: Position
    outcome: Callable[[Reply], object]
    was_done: Callable[[], None]
    was_not: Callable[[], None]


class Writing:
    """`owned` is the owner's own: sources come and go in it while this runs."""

    def __init__(
        self, parts: Parts, keys: PartitionKeys, owned: dict[int, OwnedSource], journal: Journal, lease_until: float
    ) -> None:
        self._parts = parts
        self._keys = keys
        self._owned = owned
        self._journal = journal
        self._token = journal.token
        self._turn = asyncio.Lock()
        self._wake = asyncio.Event()
        self._asserted_anew = asyncio.Event()
        self._dirty: dict[int, OwnedSource] = {}
        self._unlinks: deque[tuple[SourceId, Whereabouts]] = deque(maxlen=UNLINKS_MAX)
        self._wrong_keys: set[bytes] = set()
        self.lease_until = lease_until
        self.open_call: OpenCall | None = None
        self.wrote_at = parts.clock.now()
        """When the store last took an entry."""
        for each in owned.values():
            self.touch(each)
        self.note_lease()

    # -- told by others -----------------------------------------------------------------------------------------------

    def touch(self, owned: OwnedSource) -> None:
        """Something of it is to be written."""
        self._dirty[id(owned.source)] = owned
        self._wake.set()
        if owned.wish is not None:
            self._asserted_anew.set()

    def note_lease(self) -> None:
        """Until when what this replica says of its sources stands, whoever else may own them then."""
        for owned in self._owned.values():
            owned.source.facts.lease_until = self.lease_until

    # -- tasks of the epoch -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until the epoch is over: raises `EpochOver`; or until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._renew(), name="store: renew")
                tasks.create_task(self._write(), name="store: write")
                tasks.create_task(self._keep(), name="store: keep")
                tasks.create_task(self._assert(), name="store: assert")
                tasks.create_task(self._unlink(), name="store: unlink")
        except* EpochOver as group:
            raise _first(group) from None

    async def flush(self) -> bool:
        """Write all that waits, once; True where nothing is left. For the stop, when nothing is applied any more."""
        async with self._turn:
            if self.open_call is not None:  # of a task that was cancelled over it
                await self._settle(self.open_call.outcome)
                self._close(self.open_call)
            await self._flush()
        lost = [each for each in self._owned.values() if each.wish == "lost"]
        for owned in lost:
            await self._lay(owned)
        return not self._dirty and not lost

    async def _renew(self) -> None:
        options, clock = self._parts.options, self._parts.clock
        while True:
            rest = options.lease_s / 3
            asked_at = clock.now()
            try:
                reply = await renew(self._parts.client, self._keys, self._token, options.lease_ms)
            except StoreFailure:
                rest = min(RETRY_S + self._parts.chance.random() * RETRY_S, rest)
            else:
                if isinstance(reply, Done):
                    self.lease_until = asked_at + options.lease_s
                    self.note_lease()
                else:
                    self._judge(reply)
            await asyncio.sleep(rest)

    async def _write(self) -> None:
        """Runs as they come, and a tick when it is time."""
        clock, options = self._parts.clock, self._parts.options
        tick_at = clock.now()
        while True:
            wait_s = tick_at - clock.now()
            if wait_s > 0 and not self._wake.is_set():
                await _within(self._wake.wait(), wait_s)
            self._wake.clear()
            before = self._journal.position
            async with self._turn:
                whole = await self._flush()
                if clock.now() >= tick_at:
                    await self._tick()
                    tick_at = clock.now() + options.tick_s
            if not whole:
                await asyncio.sleep(RETRY_S)
                self._wake.set()
            rest_s = options.pace_s
            if self._journal.position != before:
                rest_s = max(rest_s, self._parts.pace.wait(clock.now()))
            await asyncio.sleep(rest_s)

    async def _keep(self) -> None:
        """Renew the time to live of what idle sources hold, and see that it, and their registration, is there."""
        period_s = min(self._parts.options.retain_s / 4, KEEP_S)
        while True:
            await asyncio.sleep(period_s * (0.5 + 0.5 * self._parts.chance.random()))
            with contextlib.suppress(StoreFailure):  # the next period tells
                await put_back_missing(self._parts, self._keys, self._owned.values())
            for owned in list(self._owned.values()):
                async with self._turn:
                    if owned.where is None or owned.wish is not None:
                        continue
                    try:
                        reply = await self._journal.keep(owned.id, owned.where)
                    except StoreFailure:
                        break  # the next period, or the next run, tells
                    if not isinstance(reply, Done):
                        self._refused(reply, [owned])
                await asyncio.sleep(0)

    async def _assert(self) -> None:
        """Lay new copies of sources that want one, one after the other."""
        rest = RETRY_S
        while True:
            await self._asserted_anew.wait()
            self._asserted_anew.clear()
            again = False
            for owned in list(self._owned.values()):
                if owned.wish is not None and self._may_write(owned):
                    again = not await self._lay(owned) or again
                again = again or (owned.wish is not None and self._is_here(owned))
            if again:  # a store that is full, say: what was laid of a copy takes the room that others need
                await asyncio.sleep(rest * (1.0 + self._parts.chance.random()))
                self._asserted_anew.set()
            rest = min(2 * rest, RETRY_MAX_S) if again else RETRY_S

    async def _unlink(self) -> None:
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

    # -- runs ---------------------------------------------------------------------------------------------------------

    async def _flush(self) -> bool:
        """One round: begin generations, then one run of what waits. False where something could not be written."""
        for owned in [each for each in self._dirty.values() if each.wants_turn]:
            if owned.wish is None and self._may_write(owned) and not await self._begin(owned):
                return False
        runs = self._runs()
        if not runs:
            return True
        reply = await self._apply(runs)
        if isinstance(reply, Done):
            return True
        if reply is not None:
            self._refused(reply, [owned for owned, _ in runs])
        return False

    def _runs(self) -> list[tuple[OwnedSource, Run]]:
        """What waits, of as many sources as one call should write."""
        runs: list[tuple[OwnedSource, Run]] = []
        fields = 0
        wall_us = self._parts.clock.wall_us()
        for key, owned in list(self._dirty.items()):
            if not self._is_here(owned) or owned.wish == "lost":
                del self._dirty[key]
                continue
            if not self._may_write(owned) or owned.wants_turn or self._parts.ingest.is_busy(owned.source):
                continue
            if fields >= RUN_FIELDS:
                self._wake.set()
                break
            del self._dirty[key]
            run = self._take(owned, wall_us)
            if run is not None:
                runs.append((owned, run))
                fields += len(run.fields)
        return runs

    def _take(self, owned: OwnedSource, wall_us: int) -> Run | None:
        before = owned.waiting_bytes
        run = owned.take(wall_us)
        self._parts.unwritten.bytes += owned.waiting_bytes - before
        return run

    async def _apply(self, runs: Sequence[tuple[OwnedSource, Run]]) -> Done | Refusal | None:
        if sum(len(run.fields) for _, run in runs) <= READY_AT_ONCE:
            told = Changed([run.told(owned.name) for owned, run in runs])
            written = [_source_run(owned, run, run.changes) for owned, run in runs]
        else:
            told, written = await self._made_ready(runs)
        return await self._call(
            lambda: self._journal.apply(written, told), done, lambda: self._wrote(runs), lambda: self._put_back(runs)
        )

    async def _made_ready(self, runs: Sequence[tuple[OwnedSource, Run]]) -> tuple[Changed, list[SourceRun]]:
        """Many fields, in slices: what waited during an outage must not hold up lookups when it is over."""
        told: list[SourceChange] = []
        written: list[SourceRun] = []
        slices = Slices(self._parts.clock)
        try:
            for owned, run in runs:
                blank = _source_run(owned, run, ())
                change, packed = await slices.run(
                    run.made_ready(owned.name, self._journal.segments(owned.id, blank.where))
                )
                told.append(change)
                written.append(msgspec.structs.replace(blank, packed=packed))
        except asyncio.CancelledError:
            self._put_back(runs)
            raise
        return Changed(told), written

    def _may_write(self, owned: OwnedSource) -> bool:
        return self._parts.clock.now() >= owned.rests_until and self._is_here(owned)

    def _is_here(self, owned: OwnedSource) -> bool:
        """Whether it was not removed meanwhile."""
        return self._owned.get(id(owned.source)) is owned

    def _wrote(self, runs: Sequence[tuple[OwnedSource, Run]]) -> None:
        for owned, run in runs:
            owned.wrote(run)
            if owned.wish is not None:
                self._asserted_anew.set()

    def _put_back(self, runs: Sequence[tuple[OwnedSource, Run]]) -> None:
        for owned, run in runs:
            if self._is_here(owned):
                self._count(owned, partial(owned.put_back, run))
                self._dirty[id(owned.source)] = owned

    async def _begin(self, owned: OwnedSource) -> bool:
        """Begin the source's generation in the store, empty."""
        generation = owned.source.facts.generation
        segments = segments_for(owned.source.descriptor.blocks_total or FIRST_PAIRS)

        def was_done() -> None:
            owned.where, owned.written, owned.facts = Whereabouts(generation, 0, segments), None, b""

        entry = Turned(owned.name, generation)
        reply = await self._call(
            lambda: self._journal.turn(owned.id, generation, segments, entry), began, was_done, _nothing
        )
        if isinstance(reply, Began):
            self._free(owned, reply)
            return True
        if isinstance(reply, OtherGeneration) and reply.stored == generation:
            self._lose(owned)  # begun by a call of ours that nobody knows of any more: nor what it holds
            return True
        if reply is not None:
            self._refused(reply, [owned])
        return False

    async def _tick(self) -> None:
        now = self._parts.clock.now()
        sources = [_tick_of(owned, owned.where, now) for owned in self._owned.values() if owned.where is not None]
        entry = Ticked(self._parts.clock.wall_us(), sources)
        reply = await self._call(lambda: self._journal.tick(entry), done, _nothing, _nothing)
        if reply is not None and not isinstance(reply, Done):
            self._judge(reply)

    # -- new copies ---------------------------------------------------------------------------------------------------

    async def _lay(self, owned: OwnedSource) -> bool:
        """Lay the source's map whole and point at it; False where that has to be tried again."""
        wish = owned.wish
        generation = owned.source.facts.generation
        where = self._journal.new_copy(generation, owned.source.pairs + owned.source.map.waiting)
        layer = Layer(self._journal, self._keys, owned, where)
        owned.late = {}
        try:
            refused = await layer.whole(owned, self._parts.mirror, self._parts.wall_ahead_s)
            if refused is not None:
                self._refused(refused, [owned])
                return False
            async with self._turn:
                if owned.wish != wish or owned.source.facts.generation != generation or not self._is_here(owned):
                    return False  # what was laid is void
                await self._until_between_batches(owned)
                if wish == "lost":
                    return await self._reassert(owned, layer, where)
                return await self._move(owned, layer, where)
        except StoreFailure:
            return False
        finally:
            if owned.where != where and self.open_call is None:
                self._unlinks.append((owned.id, where))  # void: a store that fails again and again must not fill up
            self._count(owned, owned.stop_collecting)
            self.touch(owned)

    async def _until_between_batches(self, owned: OwnedSource) -> None:
        for _ in itertools.takewhile(lambda _: self._parts.ingest.is_busy(owned.source), itertools.count()):
            await asyncio.sleep(BETWEEN_PIECES_S)

    async def _move(self, owned: OwnedSource, layer: Layer, where: Whereabouts) -> bool:
        """The copy in use is whole: it is written up to a batch, the new one too, and that takes its place."""
        late, run = owned.late, self._take(owned, self._parts.clock.wall_us())
        self._count(owned, owned.stop_collecting)
        if late is None:
            return False
        if run is not None:
            runs = [(owned, run)]
            reply = await self._apply(runs)
            if not isinstance(reply, Done):
                if reply is not None:
                    self._refused(reply, [owned])
                return False
        refused = await layer.changes(late)
        if refused is not None:
            self._refused(refused, [owned])
            return False
        entry = Moved(owned.name, where.generation, where.copy)
        return await self._flip(owned, layer, where, owned.written, owned.facts, entry)

    async def _reassert(self, owned: OwnedSource, layer: Layer, where: Whereabouts) -> bool:
        """There is no whole copy: this one says all up to now, and what changes from here on follows it."""
        late = owned.late
        self._count(owned, owned.stop_collecting)
        facts, sequence = pack_facts(owned.source, self._parts.clock.wall_us()), owned.source.facts.sequence
        if late is None:
            return False
        owned.wish = None
        try:
            refused = await layer.changes(late)
            if refused is not None:
                self._refused(refused, [owned])
                return False
            entry = Reasserted(owned.name, where.generation, where.copy)
            return await self._flip(owned, layer, where, sequence, facts, entry)
        finally:
            if owned.where != where and self.open_call is None:
                self._lose(owned)

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
            if owned.wish != "lost":  # what was dropped meanwhile is in no copy
                owned.wish = None

        def was_not() -> None:
            if isinstance(entry, Reasserted):
                self._lose(owned)

        left, pairs = owned.where, sum(layer.counts.values())
        copy = NewCopy(source=owned.id, where=where, cursor=sequence, facts=facts, pairs=pairs)
        reply = await self._call(lambda: self._journal.flip(copy, entry), began, was_done, was_not)
        if isinstance(reply, Began):
            self._free(owned, reply)
            if left not in {None, where, reply.before}:  # the store did not know any more where it was
                self._free(owned, Began(left))
            return True
        if reply is not None:
            self._refused(reply, [owned])
        return False

    def _free(self, owned: OwnedSource, reply: Began) -> None:
        if reply.before is not None and reply.before != owned.where:
            self._unlinks.append((owned.id, reply.before))

    # -- calls --------------------------------------------------------------------------------------------------------

    async def _call(
        self,
        call: Callable[[], Awaitable[T | Refusal]],
        outcome: Callable[[Reply], T | Refusal],
        was_done: Callable[[], None],
        was_not: Callable[[], None],
    ) -> T | Refusal | None:
        """Make a call and learn whether it was done. None: it was not, and the store refuses it for now."""
        position = self._journal.position.next
        opened = self.open_call = OpenCall(position, outcome, was_done, was_not)
        reply: T | Refusal | None = None
        try:
            reply = await call()
        except StoreFailure:
            reply = await self._settle(outcome)
        self._close(opened)
        return reply

    def _close(self, call: OpenCall) -> None:
        """It is known whether it was done."""
        self.open_call = None
        if self._journal.position == call.position:
            self.wrote_at = self._parts.clock.now()
            call.was_done()
        else:
            call.was_not()

    async def _settle(self, outcome: Callable[[Reply], T | Refusal]) -> T | Refusal | None:
        rest = RETRY_S
        while not self._journal.is_settled:
            await asyncio.sleep(rest * (0.5 + 0.5 * self._parts.chance.random()))
            rest = min(2 * rest, RETRY_MAX_S)
            try:
                return await self._journal.settle(outcome)
            except StoreFailure:
                continue
        return None

    def _refused(self, reply: object, owned: Sequence[OwnedSource]) -> None:
        """A call was not done, and why. `owned` are its sources, in order."""
        match reply:
            case Lost(what="source", nth=nth):
                self._lose(owned[nth])
            case OtherCursor(nth=nth):
                log.error("source %s: its cursor in the store is not where it was left: written anew", owned[nth].id)
                self._lose(owned[nth])
            case OtherGeneration(stored=stored, nth=nth):
                self._adopt(owned[nth], stored)
            case Lost(what="copy"):
                self._lose(owned[0])
            case WrongType(key=key):
                self._wrong(key, owned)
            case _:
                self._judge(reply)

    def _judge(self, reply: object) -> None:
        match reply:
            case Fenced() | Lost(what="log"):
                raise EpochOver(reply)
            case WrongType(key=key):
                self._wrong(key, list(self._owned.values()))
            case _:
                raise AssertionError(reply)

    def _lose(self, owned: OwnedSource) -> None:
        self._count(owned, owned.lose)
        self._asserted_anew.set()

    def _count(self, owned: OwnedSource, change: Callable[[], None]) -> None:
        """Bytes that wait, over all partitions, stay right whatever is done."""
        before = owned.waiting_bytes
        change()
        self._parts.unwritten.bytes += owned.waiting_bytes - before

    def _adopt(self, owned: OwnedSource, stored: int) -> None:
        """Another generation stands: a command raised it, whose words come on the control stream."""
        if not self._is_here(owned):
            return
        if stored > owned.source.facts.generation:
            self._parts.ingest.clear(owned.sink, stored)
        else:
            self._lose(owned)

    def _wrong(self, key: bytes, owned: Sequence[OwnedSource]) -> None:
        """Somebody put something else there: only they know whether it may go. Other sources go on without."""
        now = self._parts.clock.now()
        theirs = [each for each in owned if self._keys.belongs(key, each.id)] or owned
        for each in theirs:
            each.rests_until = now + WRONG_TYPE_REST_S
            self._asserted_anew.set()
        if key not in self._wrong_keys:
            self._wrong_keys.add(key)
            log.error(
                "the store: the key %s is in use for something else: remove it, or take another namespace",
                key.decode(errors="replace"),
            )


def _source_run(owned: OwnedSource, run: Run, changes: Sequence[Change]) -> SourceRun:
    assert owned.where is not None  # noqa: S101  a source is written where it stands
    return SourceRun(
        source=owned.id,
        where=owned.where,
        before=owned.written,
        after=run.sequence,
        changes=changes,
        facts=run.facts,
    )


def _tick_of(owned: OwnedSource, where: Whereabouts, now: float) -> SourceTick:
    """How a source is, as far as followers can know it.

    What waits to be written is not proved to them. Where it waits for long they know no more than if the engine had
    been silent since: it may have begun anew.
    """
    facts = owned.source.facts
    ages = TickFacts.of(owned.source, now)
    waits_ms = math.ceil(owned.unwritten_s(now) * 1000)
    if ages.proof_age_ms is not None:
        ages = msgspec.structs.replace(ages, proof_age_ms=max(ages.proof_age_ms, waits_ms))
    silent_ms = NEVER_MS if facts.alive_at is None else max(waits_ms, math.ceil((now - facts.alive_at) * 1000))
    return SourceTick(owned.name, where.generation, owned.written, silent_ms, facts.connected, ages.pack())


def _nothing() -> None:
    """Nothing follows from it."""


def _first(group: BaseExceptionGroup[EpochOver]) -> EpochOver:
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    assert isinstance(first, EpochOver)  # noqa: S101  the group holds nothing else
    return first


async def _within(waiting: Awaitable[object], seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await waiting
