"""[I/O] Owning one partition, from one epoch to the next.

Acquire when it is this replica's turn (sharding/rights.py), load, then apply. Given up in order, nothing is applied any
more, all is written, and the partition is reserved for whoever takes it. What follows a loss depends on what the
journal says of the time between: nobody wrote, and what waits is written on; somebody else wrote, and all is read anew,
since who was fenced never overwrites; the store is not as it was left, and everything is asserted anew out of memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from indexer.happenings import Happening
from indexer.log_lines import about
from indexer.partitions.acquiring import RETRY_MAX_S, RETRY_S, UNKNOWN, Acquiring, replica_of
from indexer.partitions.calls import EpochOver
from indexer.partitions.configuring import configured_in
from indexer.partitions.holding import Holding
from indexer.partitions.news import in_use
from indexer.partitions.opening import Opening
from indexer.partitions.owned import OwnedSource
from indexer.partitions.put_back import as_known
from indexer.partitions.removals import Removals
from indexer.partitions.writing import Writing
from indexer.slices import Slices
from indexer.store.budget import JournalBudget
from indexer.store.entries import Position
from indexer.store.failures import WRONG_TYPE, DamagedValue, StoreFailure
from indexer.store.journal import Journal
from indexer.store.lease import Acquired, reserved_for
from indexer.store.outcomes import Done, Fenced, Lost

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from indexer.happenings import Cause, HandoverCause, TakeoverCause, What
    from indexer.index.source import SourceIndex
    from indexer.model import SourceId
    from indexer.partitions.membership import Membership
    from indexer.partitions.news import News
    from indexer.partitions.parts import Parts
    from indexer.store.layout import PartitionKeys
    from indexer.store.outcomes import Refusal

log = logging.getLogger("kvindexer.store")

KNOWN_BEATS: Final = 3
"""By then others have heard of a source that came, listen to it, and have said so."""
HAND_OVER_S: Final = 5.0
"""What waits must be written in so long; else the store is slow, and the partition stays where it is."""
NOTHING: Final = Position(0, 0)

Then = Literal["load", "go_on", "assert"]
Role = Literal["none", "waiting", "loading", "owner"]


class Hooks(NamedTuple):
    """What a replica is told of its owners, and says to them."""

    owned: Callable[[int], None]
    """About to be loaded."""
    lost: Callable[[int], None]
    """Somebody else owns it, or will: what they write is to be followed."""
    taken: Callable[[Owner, TakeoverCause], None]
    """Loaded, and applied from now on."""
    listens: Callable[[int], bool]
    """Whether this replica listens to its engines when it does not own it."""


class Owner:
    """One partition. `run` until cancelled; `stop` at the end of a clean stop."""

    def __init__(
        self, parts: Parts, keys: PartitionKeys, number: int, membership: Membership, news: News, hooks: Hooks
    ) -> None:
        self.number = number
        self.role: Role = "none"
        self.control_after = b"0-0"
        """The last command that is known here."""
        self.commanded: dict[SourceId, int] = {}
        """The latest generation of each source that the store gave, by a command or by what was loaded."""
        self.removed: Removals[SourceId] = Removals()
        self.owned: dict[int, OwnedSource] = {}
        """By the identity of their SourceIndex."""
        self._parts = parts
        self._keys = keys
        self._hooks = hooks
        self._news = news
        self._acquiring = Acquiring(parts, keys, number, membership, self._tell_trouble)
        self._handed = asyncio.Event()
        self.is_giving = False
        """It is being handed over: nothing more is to be applied."""
        self._entered_at = float("-inf")
        """When a source came last, while it was owned here."""
        self._follows = False
        self.held_since = float("-inf")
        """Since when it must be held for a minimum time: it was somebody else's before."""
        self._writing: Writing | None = None
        self._journal: Journal | None = None
        self._holding: Holding | None = None
        self.has_loaded = False
        """What the store has of its sources is known here."""
        self._trouble = ""
        """Why the partition cannot be owned now, as told last."""

    # -- what others see ----------------------------------------------------------------------------------------------

    @property
    def holder(self) -> str:
        """The replica that owned it when last asked; empty for nobody."""
        return self._acquiring.holder

    @property
    def position(self) -> Position:
        """Of the last entry known to be written."""
        return NOTHING if self._journal is None else self._journal.position

    @property
    def age_s(self) -> float:
        """Since the journal last took an entry."""
        return 0.0 if self._writing is None else self._parts.clock.now() - self._writing.wrote_at

    @property
    def pending_bytes(self) -> int:
        """What waits to be written, about."""
        return sum(each.waiting_bytes for each in self.owned.values())

    @property
    def holds_back(self) -> bool:
        """Whether another replica would not hear all that this one has, whoever said that it was ready.

        A source came just now, to which nobody else may listen yet; or messages of an engine wait for its replay, which
        was asked before anybody else listened. Of an engine that is not there nothing is waited for: it may never come.
        """
        is_known_elsewhere = self._parts.clock.now() - self._entered_at >= KNOWN_BEATS * self._parts.options.heartbeat_s
        return not is_known_elsewhere or any(
            each.source.facts.syncing and each.source.facts.connected for each in self.owned.values()
        )

    @property
    def lease_until(self) -> float:
        """On our clock."""
        return float("-inf") if self._writing is None else self._writing.lease_until

    # -- what happens to sources --------------------------------------------------------------------------------------

    def touched(self, source: SourceIndex) -> None:
        """Something of it changed. Called with every batch."""
        owned = self.owned.get(id(source))
        if owned is None:
            return
        parts = self._parts
        owned.take_in(parts.mirror, parts.clock.now(), parts.wall_ahead_s)
        is_too_much = parts.unwritten.bytes > parts.options.pending_bytes or owned.is_too_much
        if is_too_much and owned.wish != "lost":
            log.warning(
                "source %s: too much waits for the store: its map will be written anew",
                owned.id,
                extra=about("source_rewritten", source=owned.id),
            )
            owned.lose("too_much_waited")
        if self._writing is not None:
            self._writing.touch(owned)

    def tick_soon(self) -> None:
        """A command was obeyed: whoever gave it waits for the next tick."""
        if self._writing is not None:
            self._writing.tick_soon()

    def enter(self, owned: OwnedSource) -> None:
        """A source of this partition that begins, or is loaded."""
        self.owned[id(owned.source)] = owned
        if self.role == "owner":
            self._entered_at = self._parts.clock.now()
        if self._writing is not None:
            owned.source.facts.lease_until = self._writing.lease_until
            self._writing.touch(owned)

    def begin_alone(self) -> None:
        """The store does not answer: collect what is configured without it, until it does."""
        if self.has_loaded or self.owned or self.role != "none":
            return
        for source, descriptor in configured_in(self._parts, self.number).items():
            if source not in self._parts.registry.sources:
                sink = self._parts.ingest.open_source(descriptor)
                self._parts.roster.put(sink)
                self.enter(OwnedSource(sink, self._parts.unwritten))
        self._parts.roster.follow_soon([owned.id for owned in self.owned.values()])

    def leave(self, source: SourceIndex) -> None:
        """It is removed."""
        owned = self.owned.pop(id(source), None)
        if owned is not None:
            owned.drop()  # a call under way still knows it

    def leave_all(self, source: SourceId) -> None:
        """Whatever goes by that name left already, and not by a command."""
        for owned in [each for each in self.owned.values() if each.id == source]:
            self.leave(owned.source)

    # -- life ---------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Acquire and own, again and again; until cancelled."""
        due: Then = "load"
        rest = RETRY_S
        while True:
            acquired, lease_until, cause = await self._acquiring.acquire(
                self.position.epoch, has_loaded=self.has_loaded, is_not_ours=self._is_not_ours
            )
            due = _later(due, self._what_now(acquired)) if self.has_loaded else "load"
            self._follows = False
            self._hooks.owned(self.number)
            self._settle(acquired.after)
            holding = self._holding = Holding(self._parts, self._keys, acquired.token, lease_until)
            journal = self._journal = await self._open_journal(acquired)
            try:
                await holding.during(self._begin(due))
            except (StoreFailure, DamagedValue) as failure:
                self._tell_trouble(await self._explained(failure))
                await self._parts.rest(rest)
                rest = min(2 * rest, RETRY_MAX_S)
                continue
            due, self._trouble, rest = "go_on", "", RETRY_S
            self.has_loaded = True
            self.role = "owner"
            self._writing = Writing(
                self._parts, self._keys, self.owned, journal, holding, obeyed=lambda: self.control_after
            )
            self._taken(cause)
            try:
                await self._write(self._writing)
            except EpochOver as over:
                self._news.tell("partition_lost", self.number, _in_words(over.why, self._parts))
            self.role = "waiting"

    async def _write(self, writing: Writing) -> None:
        """Until it is handed over. Raises EpochOver."""
        self._handed.clear()
        await until_either(writing.run(), self._handed.wait())

    def _taken(self, cause: TakeoverCause) -> None:
        if cause in {"lease_expired", "handed_over"}:
            self.held_since = self._parts.clock.now()
        self._tell("takeover", cause)
        self._hooks.taken(self, cause)

    def _tell(self, what: What, cause: Cause) -> None:
        """In the histories of its sources: this replica took it, or gave it."""
        epoch = self.position.epoch
        self._parts.history.note_all(
            (owned.id, Happening(what=what, cause=cause, sequence=owned.source.facts.sequence, epoch=epoch))
            for owned in self.owned.values()
        )

    async def _begin(self, due: Then) -> None:
        """What is due before anything may be written."""
        if due == "load":
            self.role = "loading"
            await self._load()
        elif due == "assert":
            self._news.tell(
                "partition_asserted", self.number, "the store is not as it was left: written anew from memory"
            )
            await as_known(self._parts, self._keys, self.owned.values(), self.removed, self.control_after)
            for owned in self.owned.values():
                owned.lose("store_went_back")

    async def hand_over(self, to: str, why: HandoverCause) -> bool:
        """Give it up for another replica, which listens already. False: it stays as it is.

        From the first moment on nothing is applied; what engines say meanwhile both sides keep.
        """
        writing, parts = self._writing, self._parts
        if self.role != "owner" or writing is None:
            return False
        for owned in self.owned.values():
            parts.roster.step_down(owned.id)
        self.is_giving, is_given = True, False
        try:
            with contextlib.suppress(StoreFailure, EpochOver, TimeoutError):
                async with asyncio.timeout(HAND_OVER_S):
                    reply = await self._write_and_release(writing, to)
                    # Else it was not ours any more, or is so in another epoch: whoever has it is found out as ever.
                    is_given = isinstance(reply, Done) and self._writing is writing
        finally:
            self.is_giving = False
            if not is_given:
                parts.roster.follow_soon([owned.id for owned in self.owned.values()])
        if is_given:
            self._acquiring.gave(to)
            self._tell("handover", why)
            self._yield()
            self._handed.set()
        return is_given

    async def stop(self, until: float, to: str) -> bool:
        """Write what waits and give the partition up; True where all was written. `run` is cancelled by now.

        `to`: who should take it, empty for anybody.
        """
        writing = self._writing
        if writing is None or self.role != "owner":
            with contextlib.suppress(StoreFailure, TimeoutError):
                async with asyncio.timeout(max(0.0, until - self._parts.clock.now())):
                    await self._acquiring.give_back(to)
                    if self._holding is not None:  # taken, and not loaded or not written anew yet
                        await self._holding.release(to)
            return all(owned.is_written for owned in self.owned.values())
        flushed = False
        with contextlib.suppress(StoreFailure, EpochOver, TimeoutError):
            async with asyncio.timeout(max(0.0, until - self._parts.clock.now())):
                reply = await self._write_and_release(writing, to)
                flushed = True
                if isinstance(reply, Done):
                    self._tell("handover", "stopped")
        self.role = "none"
        return flushed

    async def _write_and_release(self, writing: Writing, to: str) -> Done | Refusal:
        """Raises StoreFailure, EpochOver."""
        slices = Slices(self._parts.clock)
        for owned in list(self.owned.values()):
            while self._parts.ingest.go_on(owned.source):  # the store takes batches whole
                await slices.turn()
        while not await writing.flush():  # noqa: ASYNC110  the timeout of whoever calls ends it
            await asyncio.sleep(RETRY_S)
        with contextlib.suppress(StoreFailure):
            await writing.counting.tell()
        reply = await writing.release(to)
        if not isinstance(reply, Done):
            self._news.tell("partition_lost", self.number, "it was not ours any more when it was to be given up")
        return reply

    # -- how ----------------------------------------------------------------------------------------------------------

    async def _explained(self, failure: StoreFailure | DamagedValue) -> str:
        """Why it cannot be owned; where somebody else uses one of its keys, which."""
        if isinstance(failure, StoreFailure) and failure.detail == WRONG_TYPE:
            with contextlib.suppress(StoreFailure):
                for key, wanted in self._keys.types.items():
                    if await self._parts.client.type_of(key) not in {wanted, "none"}:
                        return in_use(key)
        return str(failure)

    def _tell_trouble(self, why: str) -> None:
        """Once, however often it is tried again."""
        if why != self._trouble:
            self._trouble = why
            self._news.tell("partition_trouble", self.number, why)

    def _is_not_ours(self) -> None:
        """For now, as far as the store says."""
        if not self._follows:
            self._yield()

    def _yield(self) -> None:
        """Somebody else owns it, or will: they speak to its engines, and what they write is followed."""
        self.role = "waiting"
        listens = self._hooks.listens(self.number)
        roster = self._parts.roster
        for owned in list(self.owned.values()):
            self.leave(owned.source)
        for source in list(self._parts.registry.sources):  # what a load entered that came to nothing, too
            sink = roster.sink(source)
            if sink is not None and not sink.followed and self._parts.partition_of(source) == self.number:
                (roster.step_down if listens else roster.unfollow)(source)
                sink.followed = True
                sink.source.changes = None
        self.has_loaded, self._follows, self._holding = False, True, None
        self._hooks.lost(self.number)

    def _what_now(self, acquired: Acquired) -> Then:
        """What the last entry before ours says of the time between."""
        if self._journal is None:
            return "load"
        last = {self.position}
        if self._writing is not None and self._writing.open_call is not None:
            last.add(self._writing.open_call.position)
        if acquired.after in last:
            return "go_on"
        return "load" if acquired.after > max(last) else "assert"

    def _settle(self, after: Position) -> None:
        """The call of which it was not known whether it was done: the journal tells."""
        writing = self._writing
        if writing is None or writing.open_call is None:
            return
        writing.close_call(done=after == writing.open_call.position)

    async def _open_journal(self, acquired: Acquired) -> Journal:
        options = self._parts.options
        inherited = 0
        with contextlib.suppress(StoreFailure):
            inherited = await self._parts.client.bytes_used(self._keys.log)
        return Journal(
            self._parts.client,
            self._keys,
            token=acquired.token,
            position=acquired.position,
            budget=JournalBudget(options.journal_bytes, inherited),
            retain_ms=options.retain_ms,
        )

    async def _load(self) -> None:
        """All sources of the partition as the store has them. What this process knew of them is void."""
        before = dict(self.owned)
        alone = {} if self.has_loaded else {owned.id: owned for owned in before.values()}
        newest = await self._parts.client.last_entries(self._keys.control, 1)
        self.control_after = newest[0][0] if newest else b"0-0"
        self.removed.clear()
        opened = await Opening(self._parts, self._keys, self.number, alone).open()
        for owned in before.values():
            self.leave(owned.source)
        self.commanded = {
            one.owned.id: 0 if one.owned.id in alone else one.owned.source.facts.generation for one in opened
        }
        for one in opened:
            self.enter(one.owned)
            if one.incomplete:
                one.owned.lose("collected_alone" if one.owned.where is None else "part_missing")
            self._parts.roster.learn_life(one.owned.sink, one.life)
        known = {one.owned.id for one in opened}
        for source in list(self._parts.registry.sources):
            if source not in known and self._parts.partition_of(source) == self.number:
                self._parts.roster.drop(source)
        self._parts.roster.follow_soon([one.owned.id for one in opened if alone.get(one.owned.id) is not one.owned])


def _later(due: Then, now: Then) -> Then:
    """What is to be done when something else was due and not done yet: whoever was between makes all of it void."""
    return "load" if "load" in {due, now} else due if due != "go_on" else now


def _in_words(why: Fenced | Lost, parts: Parts) -> str:
    if isinstance(why, Lost):
        return "the journal does not end where it was left"
    if replica_of(why.holder) == parts.options.name and not parts.nonces.are_of(why.holder):
        # Not the one before: where it was only started again, nobody is left to say this.
        return f"taken by another process that is called {parts.options.name}, too: each needs its own redis.replica"
    if why.holder:
        return f"replica {reserved_for(why.holder) or replica_of(why.holder) or UNKNOWN} owns it now"
    return "the lease ended while the store was away, or the store lost it"


async def until_either(writing: Coroutine[None, None, None], handed: Coroutine[None, None, object]) -> None:
    """Until one of them is over; the other is ended. Raises EpochOver.

    A group of tasks that is cancelled while one of them fails tells of the failure alone, and whoever went on by that
    would never end, as nobody cancels twice. So the end of an epoch is no failure in the group, but what a task of it
    comes to.
    """
    async with asyncio.TaskGroup() as tasks:
        epoch = tasks.create_task(_end_of(writing), name="store: epoch")
        hand_over = tasks.create_task(handed, name="store: handed over")
        await asyncio.wait({epoch, hand_over}, return_when=asyncio.FIRST_COMPLETED)
        epoch.cancel()
        hand_over.cancel()
    over = None if epoch.cancelled() else epoch.result()
    if over is not None:
        raise over


async def _end_of(writing: Coroutine[None, None, None]) -> EpochOver | None:
    try:
        await writing
    except EpochOver as over:
        return over
    return None
