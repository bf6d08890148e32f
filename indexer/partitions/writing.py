"""[I/O] One epoch of one owned partition: what changed goes to the store, and others hear that its owner lives."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import TYPE_CHECKING, Final

import msgspec

from indexer.errors import first_of
from indexer.partitions.asserting import Asserting
from indexer.partitions.calls import RETRY_S, Calls, EpochOver
from indexer.partitions.configuring import keep_removing_unnamed
from indexer.partitions.counting import Counting
from indexer.partitions.put_back import put_back_missing
from indexer.partitions.refusals import Refusals
from indexer.partitions.traced import result_of, size_of
from indexer.slices import Slices
from indexer.store.entries import Changed, SourceTick, Ticked, Turned
from indexer.store.facts import TickFacts
from indexer.store.failures import StoreFailure
from indexer.store.journal import SourceRun
from indexer.store.layout import segments_for
from indexer.store.outcomes import Began, Done, OtherGeneration, Refusal, Whereabouts, began, done

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from indexer.partitions.calls import OpenCall
    from indexer.partitions.holding import Holding
    from indexer.partitions.owned import OwnedSource, Run
    from indexer.partitions.parts import Parts
    from indexer.store.entries import SourceChange
    from indexer.store.journal import Journal
    from indexer.store.layout import PartitionKeys

FIRST_PAIRS: Final = 65_536
"""Room of a source's first copy, where its engine's capacity is not known; it grows."""
RUN_FIELDS: Final = 20_000
"""Fields of a run after which no further source is added: 25 ms of the server's time."""
READY_AT_ONCE: Final = 2_000
"""Fields of a run that is made ready in one go: two milliseconds."""
TICK_SOON_S: Final = 0.02
"""Between two ticks, at least, however many commands come."""
KEEP_S: Final = 60.0
"""What is lost of an idle source is found within so long."""
NEVER_MS: Final = 1 << 40
"""Age of a sign of life that never was."""


class Writing:
    """`owned` is the owner's own: sources come and go in it while this runs. `obeyed`: id of the last command."""

    def __init__(
        self,
        parts: Parts,
        keys: PartitionKeys,
        owned: dict[int, OwnedSource],
        journal: Journal,
        holding: Holding,
        *,
        obeyed: Callable[[], bytes],
    ) -> None:
        self._parts = parts
        self._keys = keys
        self._owned = owned
        self._journal = journal
        self._holding = holding
        self._obeyed = obeyed
        self._tick_at = parts.clock.now()
        self._ticked_at = float("-inf")
        self._wake = asyncio.Event()
        self._copies_due = asyncio.Event()
        self._dirty: dict[int, OwnedSource] = {}
        self._calls = Calls(parts, journal)
        self._refusals = Refusals(parts, keys, owned, self._copies_due)
        self._asserting = Asserting(
            parts,
            keys,
            journal,
            self._calls,
            self._refusals,
            owned=owned,
            due=self._copies_due,
            write=self._write_one,
            touch=self.touch,
        )
        self.counting = Counting(parts, keys, owned, journal.token)
        for each in owned.values():
            self.touch(each)
        self.note_lease()

    # -- what others see ----------------------------------------------------------------------------------------------

    @property
    def lease_until(self) -> float:
        """On our clock."""
        return self._holding.until

    @property
    def wrote_at(self) -> float:
        """When the store last took an entry."""
        return self._calls.wrote_at

    @property
    def open_call(self) -> OpenCall | None:
        """The call of which it is not known whether it was done."""
        return self._calls.open

    def close_call(self, *, done: bool) -> None:
        """The next epoch's first entry told it."""
        call, self._calls.open = self._calls.open, None
        if call is not None:
            (call.was_done if done else call.was_not)()

    # -- told by others -----------------------------------------------------------------------------------------------

    def touch(self, owned: OwnedSource) -> None:
        """Something of it is to be written."""
        self._dirty[id(owned.source)] = owned
        self._wake.set()
        if owned.wish is not None:
            self._copies_due.set()

    def tick_soon(self) -> None:
        """A command was obeyed: whoever gave it waits for the next tick."""
        self._tick_at = min(self._tick_at, max(self._parts.clock.now(), self._ticked_at + TICK_SOON_S))
        self._wake.set()

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
                tasks.create_task(self._asserting.run(), name="store: assert")
                tasks.create_task(self._asserting.free(), name="store: unlink")
                tasks.create_task(self.counting.run(), name="store: counts")
                tasks.create_task(
                    keep_removing_unnamed(self._parts, self._keys, self._owned), name="store: take out unnamed"
                )
        except* EpochOver as group:
            raise first_of(group) from None

    async def flush(self) -> bool:
        """Write all that waits, once; True where nothing is left. For the stop, when nothing is applied any more."""
        async with self._calls.turn:
            await self._calls.settle_open()
            await self._flush()
        lost = [each for each in self._owned.values() if each.wish == "lost"]
        for owned in lost:
            await self._asserting.lay(owned)
        return not self._dirty and not lost

    async def release(self, to: str) -> Done | Refusal:
        """Give the partition up, for `to` where that is named. Raises StoreFailure."""
        async with self._calls.turn:
            return await self._holding.release(to)

    async def _renew(self) -> None:
        while True:
            self._refusals.judge(await self._holding.renew(self.note_lease))

    async def _write(self) -> None:
        """Runs as they come, and a tick when it is time."""
        clock, options = self._parts.clock, self._parts.options
        while True:
            wait_s = self._tick_at - clock.now()
            if wait_s > 0 and not self._wake.is_set():
                await _within(self._wake.wait(), wait_s)
            self._wake.clear()
            before = self._journal.position
            async with self._calls.turn:
                whole = await self._flush()
                if clock.now() >= self._tick_at:
                    self._ticked_at = clock.now()
                    self._tick_at = self._ticked_at + options.tick_s  # sooner where a command is obeyed meanwhile
                    await self._tick()
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
            await self._parts.rest(period_s)
            with contextlib.suppress(StoreFailure):  # the next period tells
                await put_back_missing(self._parts, self._keys, self._owned.values())
            for owned in list(self._owned.values()):
                async with self._calls.turn:
                    if owned.where is None or owned.wish is not None:
                        continue
                    try:
                        reply = await self._journal.keep(owned.id, owned.where)
                    except StoreFailure:
                        break  # the next period, or the next run, tells
                    if not isinstance(reply, Done):
                        self._refusals.refused(reply, [owned])
                await asyncio.sleep(0)

    # -- runs ---------------------------------------------------------------------------------------------------------

    async def _flush(self) -> bool:
        """One round: begin generations, then one run of what waits. False where something could not be written."""
        for owned in [each for each in self._dirty.values() if each.wants_turn]:
            if owned.wish is None and self._refusals.may_write(owned) and not await self._begin(owned):
                return False
        runs = self._runs()
        if not runs:
            return True
        reply = await self._apply(runs)
        if isinstance(reply, Done):
            return True
        if reply is not None:
            self._refusals.refused(reply, [owned for owned, _ in runs])
        return False

    def _runs(self) -> list[tuple[OwnedSource, Run]]:
        """What waits, of as many sources as one call should write."""
        runs: list[tuple[OwnedSource, Run]] = []
        fields = 0
        for key, owned in list(self._dirty.items()):
            if not self._refusals.is_here(owned) or owned.wish == "lost":
                del self._dirty[key]
                continue
            if not self._refusals.may_write(owned) or owned.wants_turn or self._parts.ingest.is_busy(owned.source):
                continue
            if fields >= RUN_FIELDS:
                self._wake.set()
                break
            del self._dirty[key]
            run = owned.take(self._parts.clock)
            if run is not None:
                runs.append((owned, run))
                fields += len(run.fields)
        return runs

    async def _write_one(self, owned: OwnedSource, run: Run) -> Done | Refusal | None:
        return await self._apply([(owned, run)])

    async def _apply(self, runs: Sequence[tuple[OwnedSource, Run]]) -> Done | Refusal | None:
        if sum(len(run.fields) for _, run in runs) <= READY_AT_ONCE:
            told = Changed([run.told(owned.name) for owned, run in runs])
            written = [_source_run(owned, run, run.changes) for owned, run in runs]
        else:
            told, written = await self._made_ready(runs)
        began = self._parts.clock.now()
        reply = await self._calls.make(
            lambda: self._journal.apply(written, told), done, lambda: self._wrote(runs), lambda: self._put_back(runs)
        )
        self._trace(runs, written, reply, began)
        return reply

    def _trace(
        self,
        runs: Sequence[tuple[OwnedSource, Run]],
        written: Sequence[SourceRun],
        reply: Done | Refusal | None,
        began: float,
    ) -> None:
        tracing = self._parts.tracing
        if tracing is not None and tracing.samples():
            partition, entries = self._parts.partition_of(runs[0][0].id), sum(len(run.fields) for _, run in runs)
            seconds = self._parts.clock.now() - began
            tracing.journal(partition, entries, size_of(written), result_of(reply), seconds)

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

    def _wrote(self, runs: Sequence[tuple[OwnedSource, Run]]) -> None:
        for owned, run in runs:
            owned.wrote(run)
            if owned.wish is not None:
                self._copies_due.set()

    def _put_back(self, runs: Sequence[tuple[OwnedSource, Run]]) -> None:
        for owned, run in runs:
            if self._refusals.is_here(owned):
                owned.put_back(run)
                self._dirty[id(owned.source)] = owned

    async def _begin(self, owned: OwnedSource) -> bool:
        """Begin the source's generation in the store, empty."""
        generation = owned.source.facts.generation
        segments = segments_for(owned.source.descriptor.blocks_total or FIRST_PAIRS)

        def was_done() -> None:
            owned.where, owned.written, owned.facts = Whereabouts(generation, 0, segments), None, b""

        entry = Turned(owned.name, generation)
        reply = await self._calls.make(
            lambda: self._journal.turn(owned.id, generation, segments, entry), began, was_done, _nothing
        )
        if isinstance(reply, Began):
            self._asserting.leave(owned, reply)
            return True
        if isinstance(reply, OtherGeneration) and reply.stored == generation:
            self._refusals.lose(owned)  # begun by a call of ours that nobody knows of any more: nor what it holds
            return True
        if reply is not None:
            self._refusals.refused(reply, [owned])
        return False

    async def _tick(self) -> None:
        now = self._parts.clock.now()
        sources = [_tick_of(owned, owned.where, now) for owned in self._owned.values() if owned.where is not None]
        entry = Ticked(self._parts.clock.wall_us(), sources, self._obeyed())
        reply = await self._calls.make(lambda: self._journal.tick(entry), done, _nothing, _nothing)
        if reply is not None and not isinstance(reply, Done):
            self._refusals.judge(reply)


def _source_run(owned: OwnedSource, run: Run, changes: Iterable[tuple[bytes, bytes | None]]) -> SourceRun:
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


async def _within(waiting: Awaitable[object], seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await waiting
