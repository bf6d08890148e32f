"""[I/O] Which partitions should be at this replica, and what follows: listening along, and handing over what is not."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Final

from indexer.partitions.configuring import digest_of
from indexer.partitions.membership import Membership
from indexer.partitions.moves import Held, Moves
from indexer.partitions.standby import Standby
from indexer.partitions.views import Kept
from indexer.sharding.members import Member
from indexer.slices import Slices
from indexer.store.failures import StoreFailure

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from indexer.happenings import HandoverCause
    from indexer.partitions.followers import Followers
    from indexer.partitions.owner import Owner
    from indexer.partitions.parts import Parts

LOOK_S: Final = 0.1
VOUCH_S: Final = 0.25
"""So often engines that are listened to speak for themselves: some states end by the second."""
GIVE_AWAY_S: Final = 5.0
"""At a stop, so long at most others have to become ready for what is owned here."""


class Sharing:
    """`owners` are empty where this replica only follows; `key` is the deployment's."""

    def __init__(self, parts: Parts, key: bytes, owners: Mapping[int, Owner], followers: Followers) -> None:
        self._parts = parts
        self._owners = owners
        self._followers = followers
        self.address = ""
        """Where its REST answers, for people."""
        self._leaving = False
        self._configuration = digest_of(parts.configured.values())
        self._ready: frozenset[int] = frozenset()
        self._moves = Moves(parts.options.name, parts.options.min_hold_s)
        self.membership = Membership(parts, key, self._tell, self._configuration)
        self.standby = Standby(parts)
        self.takeovers: Counter[str] = Counter()
        """By cause, partitions that came here."""
        self.handovers = 0
        """Partitions that went from here in order."""

    def listens(self, partition: int) -> bool:
        """Whether this replica listens to a partition's engines without owning it: it may have to take it."""
        me, options = self._parts.options.name, self._parts.options
        share, owner = self.membership.share(partition), self._owners.get(partition)
        if share is None or owner is None or self._leaving:
            return False
        return share.owner == me or (options.standby and share.standby == me)

    @property
    def listened(self) -> frozenset[int]:
        """Partitions whose engines are listened to here: applied elsewhere, or here as soon as they are loaded."""
        return frozenset(number for number, owner in self._owners.items() if self._is_listened(number, owner))

    def _is_listened(self, number: int, owner: Owner) -> bool:
        if owner.role == "loading":
            return number in self.standby.wanted  # as before it was taken
        return owner.role != "owner" and self.listens(number)

    def kept(self) -> dict[int, Kept]:
        """What is kept of listened engines, by partition."""
        found: dict[int, Kept] = {number: Kept(0, 0, 0) for number in self.listened}
        for source, view in self._parts.roster.fleet.listeners().items():
            number = self._parts.partition_of(source)
            if number in found:
                so_far = found[number]
                found[number] = Kept(
                    so_far.bytes + view.bytes, so_far.batches + view.batches, so_far.dropped + view.dropped
                )
        return found

    async def tend(self) -> None:
        """Listen to whom it should, say what it could take, and hand over what others should own; until cancelled."""
        vouch_at = 0.0
        while True:
            listened = self.listened
            await Slices(self._parts.clock).run(self.standby.look(listened))
            if self._parts.clock.now() >= vouch_at:
                vouch_at = self._parts.clock.now() + VOUCH_S
                await Slices(self._parts.clock).run(self.standby.vouch())
            ready = await self._ready_of(listened)
            if ready != self._ready:
                self._ready = ready
                self.membership.beat_soon()
            if not (await self._hand_over_one() and self._leaving):
                await asyncio.sleep(LOOK_S)

    async def _ready_of(self, listened: Iterable[int]) -> frozenset[int]:
        """Which could be taken at once. Also of what it stands by for, which whoever is started anew leaves it.

        Looks at every source of them, so it is done in slices.
        """
        slices, ready = Slices(self._parts.clock), set[int]()
        for number in listened:
            if self._followers.is_following(number) and self.standby.is_ready(self._followers.sources(number)):
                ready.add(number)
            await slices.turn()
        return frozenset(ready)

    async def _hand_over_one(self) -> bool:
        """True where one went."""
        membership, now = self.membership, self._parts.clock.now()
        if membership.is_cut:
            return False
        held = [
            Held(number, owner.held_since, membership.share(number))
            for number, owner in self._owners.items()
            if owner.role == "owner" and self.successor(number) and not owner.holds_back
        ]
        stays = self._parts.options.name in membership.candidates
        move = self._moves.next(held, membership.live(), now, stays=stays, stops=self._leaving)
        if move is None:
            return False
        if not await self._owners[move.partition].hand_over(move.to, self._why()):
            self._moves.failed(move.partition, self._parts.clock.now())
            return False
        self.handovers += 1
        membership.beat_soon()
        return True

    def _why(self) -> HandoverCause:
        if self._leaving:
            return "stopped"
        return "drained" if self.membership.members.is_draining(self._parts.options.name) else "rebalanced"

    async def give_away(self) -> None:
        """This replica stops, and still listens to its engines: who goes on with them listens, too, before it has them.

        What nobody is ready for in time is given up later, and taken by whom it is reserved for.
        """
        until = self._parts.clock.now() + GIVE_AWAY_S
        await self.leave()
        while self._has_takers() and self._parts.clock.now() < until:
            await asyncio.sleep(LOOK_S)
            with contextlib.suppress(StoreFailure):
                await self.membership.beat()  # who is ready is told in others' beats

    def _has_takers(self) -> bool:
        owners = self._owners.items()
        return not self.membership.is_cut and any(
            owner.role == "owner" and self.successor(number) for number, owner in owners
        )

    async def leave(self) -> None:
        """This replica stops: others plan without it. They are told once."""
        if self._leaving:
            return
        self._leaving = True
        with contextlib.suppress(StoreFailure):
            await self.membership.beat()

    def successor(self, partition: int) -> str:
        """Who should have it next, of those that are there; empty for anybody."""
        share = self.membership.share(partition)
        to = None if share is None else share.owner
        return to if to is not None and to != self._parts.options.name else ""

    def _tell(self) -> Member:
        options = self._parts.options
        return Member(
            name=options.name,
            process=self._parts.nonces.process,
            address=self.address,
            collects=bool(self._owners),
            stands_by=options.standby,
            leaving=self._leaving,
            waits=self.membership.is_waiting,
            owned={number: owner.pending_bytes for number, owner in self._owners.items() if owner.role == "owner"},
            ready=sorted(self._ready),
            configuration=self._configuration,
        )
