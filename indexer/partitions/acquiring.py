"""[I/O] Getting hold of one partition: looking who has it, and taking it when it is this replica's turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.happenings import TakeoverCause
from indexer.partitions.news import in_use
from indexer.sharding.rights import Claim, Seen
from indexer.sharding.rights import Standing as Here
from indexer.store.entries import Position
from indexer.store.failures import DamagedValue, StoreFailure
from indexer.store.layout import is_number
from indexer.store.lease import Acquired, acquire, look, release
from indexer.store.outcomes import WrongType

if TYPE_CHECKING:
    from collections.abc import Callable

    from indexer.partitions.membership import Membership
    from indexer.partitions.parts import Parts
    from indexer.store.layout import PartitionKeys
    from indexer.store.lease import Standing

RETRY_S: Final = 0.1
RETRY_MAX_S: Final = 2.0
ANSWERED: Final = frozenset({"refused", "out_of_memory", "read_only", "denied"})
"""Failures with which a store that is there says no."""

UNKNOWN: Final = "?"
"""Who has a partition where the owner's key holds no token of ours: it is not free as long as that is there."""


class Taken(NamedTuple):
    """It is ours, until then at least on our clock."""

    acquired: Acquired
    lease_until: float
    cause: TakeoverCause


class Acquiring:
    """`tell`: for the operator, why it cannot be had."""

    def __init__(
        self, parts: Parts, keys: PartitionKeys, number: int, membership: Membership, tell: Callable[[str], None]
    ) -> None:
        self._parts = parts
        self._keys = keys
        self._number = number
        self._membership = membership
        self._tell = tell
        self._claim = Claim(parts.options.name, parts.options.lease_s)
        self._takes_over = True
        """This process may take the place of one of the same name: once, at its start."""
        self.holder = ""
        """The replica that owned it when last asked."""
        self._is_open = False
        """It was asked for, and not heard whether it was given."""

    async def acquire(self, known_epoch: int, *, has_loaded: bool, is_not_ours: Callable[[], None]) -> Taken:
        """Ask until the partition is ours. `is_not_ours` is called whenever it turned out that it is not, for now.

        `known_epoch`: of the journal as last written here. `has_loaded`: what the store has of it is known here.
        """
        clock, rest = self._parts.clock, RETRY_S
        while True:
            asked_at = clock.now()
            try:
                seen = await look(self._parts.client, self._keys)
                if isinstance(seen, WrongType):
                    self._tell(in_use(seen.key))
                    await self._parts.rest(RETRY_MAX_S)
                    continue
                self._see(seen, asked_at)
                if await self._is_left_to_others(seen):
                    continue
                held = self._replaceable(seen)
                if held or self._may_take(clock.now()):
                    taken = await self._take(seen, held, known_epoch, has_loaded=has_loaded)
                    if taken is not None:
                        return taken
                    await self._parts.rest(RETRY_S)
                    continue
            except StoreFailure as failure:
                rest = await self._rested(failure, rest)
                continue
            rest = RETRY_S
            if self._membership.is_known:
                is_not_ours()
                has_loaded = False
            # Who leaves reserves it for whom the plan names next, for a moment only.
            await self._membership.planned_anew(self._number, self._until_next_look(seen, clock.now()))

    def gave(self, to: str) -> None:
        """It was handed over to that replica."""
        self._claim.gave(to)

    async def give_back(self, to: str) -> None:
        """At the stop, when `acquire` is cancelled: what was given without being heard of. Raises StoreFailure."""
        if self._is_open:
            seen = await look(self._parts.client, self._keys)
            if not isinstance(seen, WrongType) and self._parts.nonces.are_of(seen.holder):
                await release(self._parts.client, self._keys, seen.holder, to=to)

    def _see(self, seen: Standing, asked_at: float) -> None:
        self.holder = replica_of(seen.holder)
        if seen.holder and not (self.holder or seen.reserved_for):
            self.holder = UNKNOWN
            self._tell(in_use(self._keys.owner))
        facts = Seen(self.holder, seen.left_ms / 1000, seen.reserved_for, replica_of(seen.last), epoch_of(seen.last))
        self._claim.saw(facts, asked_at, self._parts.clock.now())

    async def _is_left_to_others(self, seen: Standing) -> bool:
        """Whether others get, or may get, what a process of this name owned that is no more. Only at the start.

        What engines said since that one died this process has not heard. Where somebody listened along, and could take
        it at once, it goes there: before the lease ends, and nothing is lost (promise P7). Raises StoreFailure.
        """
        if not (seen.holder and self._takes_over) or self._claim.went_back():
            return False
        self._takes_over = self.holder == self._parts.options.name and not self._parts.nonces.are_of(seen.holder)
        if not self._takes_over:
            return False
        if not self._membership.is_known:
            await self._membership.planned_anew(self._number, RETRY_S)
            return True
        heir = self._listens_along()
        if not heir:
            return False
        self._takes_over = False
        keep_ms = self._parts.options.lease_ms // 2  # whoever may have to take it looks twice in that
        await release(self._parts.client, self._keys, seen.holder, to=heir, reserve_ms=keep_ms)
        return True

    def _listens_along(self) -> str:
        """Another replica that could go on with it at once; empty where there is none."""
        share, live = self._membership.share(self._number), self._membership.live()
        names = () if share is None else (share.owner or "", share.standby or "")
        others = (name for name in names if name in live and name != self._parts.options.name)
        return next((name for name in others if self._number in live[name].ready), "")

    def _replaceable(self, seen: Standing) -> bytes:
        """The token that may be replaced at once: of ourselves as a store remembers us, or of the process before us."""
        if not seen.holder:
            return b""
        if self._claim.went_back():  # it remembers an owner that is not the last one any more
            return seen.holder if self._claim.is_mine else b""
        takes_over, self._takes_over = self._takes_over, False
        return seen.holder if takes_over or self._parts.nonces.are_of(seen.holder) else b""

    def _here(self) -> Here:
        membership, me = self._membership, self._parts.options.name
        candidates = membership.candidates
        return Here(
            share=membership.share(self._number),
            is_candidate=me in candidates,
            has_others=bool(candidates - {me}),
            calm_until=membership.calm_until,
            is_cut=membership.is_cut,
        )

    def _may_take(self, now: float) -> bool:
        at = self._claim.may_take_at(self._here())
        return at is not None and now >= at

    def _until_next_look(self, seen: Standing, now: float) -> float:
        """A partition that this replica may have to take is looked at when that is due, and others now and then."""
        most = self._parts.options.lease_s / 4
        share = self._membership.share(self._number)
        if share is None or share.owner == self._parts.options.name:
            return min(RETRY_S, most)  # to be handed over here, or just given up
        at = self._claim.may_take_at(self._here())
        if at is not None:
            return min(max(at - now, RETRY_S / 10), most)
        chance = 0.9 + 0.2 * self._parts.chance.random()
        return min(seen.left_ms / 1000 + RETRY_S / 5, most * chance) if seen.holder else most * chance

    async def _take(self, seen: Standing, held: bytes, known_epoch: int, *, has_loaded: bool) -> Taken | None:
        """None: somebody else was faster, or nobody can tell yet. Raises StoreFailure."""
        options = self._parts.options
        asked_at = self._parts.clock.now()
        self._is_open = True
        reply = await acquire(
            self._parts.client,
            self._keys,
            replica=options.name,
            nonce=self._parts.nonces.next(),
            lease_ms=options.lease_ms,
            retain_ms=options.retain_ms,
            held=held,
            known_epoch=known_epoch,
        )
        self._is_open = False
        if not isinstance(reply, Acquired):
            return None
        told = reply if reply.after != reply.position else await self._told_before(reply)
        if told is None:
            return None
        self.holder = options.name
        self._claim.took(told.position.epoch)
        return Taken(told, asked_at + options.lease_s, "again" if has_loaded else self._cause(seen))

    def _cause(self, seen: Standing) -> TakeoverCause:
        if seen.reserved_for:
            return "handed_over"
        last = replica_of(seen.last)
        if last == self._parts.options.name:
            return "same_name"
        return "lease_expired" if last else "first"

    async def _told_before(self, acquired: Acquired) -> Acquired | None:
        """The attempt was made twice: what stood before it is told by the epoch's first entry. None: ask again."""
        first = Position(acquired.position.epoch, 0)
        try:
            entries = await self._parts.client.entries_after(self._keys.log, str(first).encode(), 1)
            return Acquired(acquired.token, acquired.position, Position.parse(entries[0][1][b"a"]))
        except (StoreFailure, DamagedValue, IndexError, KeyError):
            return None

    async def _rested(self, failure: StoreFailure, rest: float) -> float:
        """Ask again in a while; how long to wait when that fails, too."""
        if failure.kind in ANSWERED:  # else it is away, which is told of the store as a whole
            self._tell(str(failure))
        await self._parts.rest(rest)
        return min(2 * rest, RETRY_MAX_S, self._parts.options.lease_s / 5)


def replica_of(token: bytes) -> str:
    """The name in a fence token; empty where there is none."""
    name, colon, _ = token.partition(b":")[2].partition(b":")
    return name.decode(errors="replace") if colon else ""


def epoch_of(token: bytes) -> int:
    """The epoch in a fence token; 0 where there is none."""
    number = token.partition(b":")[0]
    return int(number) if is_number(number) else 0
