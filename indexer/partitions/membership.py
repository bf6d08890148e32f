"""[I/O] Who else is there: this replica's heartbeats, what others tell in theirs, and the plan that follows from it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from indexer.log_lines import about
from indexer.sharding.members import Members
from indexer.sharding.outages import OUTAGE_LEASES, Outages
from indexer.sharding.rendezvous import share_out_in_steps
from indexer.slices import Slices
from indexer.store.failures import StoreFailure
from indexer.store.members import beat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from indexer.partitions.parts import Parts
    from indexer.sharding.members import Member, Reading
    from indexer.sharding.rendezvous import Share

log = logging.getLogger("kvindexer.store")

FORGET_LEASES: Final = 60
"""Lease times after which a silent replica's last words are removed."""
SILENT_BEATS: Final = 3
"""Who is silent for so many beats may be dead, though nobody may judge so yet."""
WAIT_LEASES: Final = 1.2
"""By then the lease of one that died just before is over, and its standby has taken what it owned."""


class Membership:
    """`tell` says what this replica is and has, `configuration` what with; `key` is the deployment's."""

    def __init__(self, parts: Parts, key: bytes, tell: Callable[[], Member], configuration: str) -> None:
        self._parts = parts
        self._key = key
        self._tell = tell
        self._configuration = configuration
        self.members = Members(
            parts.options.name, timeout_s=parts.options.lease_s, interval_s=parts.options.heartbeat_s
        )
        self.is_known = False
        """Whether the store ever told who is there."""
        self.is_cut = False
        """The store did not answer the last beat."""
        self.calm_until = float("-inf")
        """After an outage of the store the last holder of a partition has the first right until then."""
        self._waits_until = float("inf")
        """This replica asks for nothing before: it knows nobody, or one that dies has a standby, which a plan with a
        newcomer in it would have let go of what it keeps."""
        self._heard_at = float("inf")
        self._outages = Outages(parts.options.lease_s)
        self._candidates: frozenset[str] = frozenset()
        self.shares: list[Share] = []
        """The plan, by partition; empty as long as nobody knows."""
        self._otherwise: frozenset[str] = frozenset()
        """Replicas that name other sources, as told last."""
        self._stirred = asyncio.Event()
        self._beating = asyncio.Lock()
        """An answer that is older than the one before would be taken for news."""
        self._waits: dict[int, asyncio.Event] = {}
        """Partitions of which somebody here waits to hear who should own them."""

    # -- what is known ------------------------------------------------------------------------------------------------

    def share(self, partition: int) -> Share | None:
        """Who should own a partition and who stands by; None as long as nobody knows."""
        return self.shares[partition] if self.shares else None

    async def planned_anew(self, partition: int, within_s: float) -> None:
        """Return when the plan has something else for a partition, or the time is over."""
        changed = self._waits.setdefault(partition, asyncio.Event())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await changed.wait()

    @property
    def candidates(self) -> frozenset[str]:
        """Among whom partitions are shared out."""
        return self._candidates

    @property
    def is_waiting(self) -> bool:
        """Whether nothing is to be given to this replica yet."""
        return self._parts.clock.now() < self._waits_until

    def live(self) -> Mapping[str, Member]:
        """Who is there now."""
        return self.members.live(self._parts.clock.now())

    def agrees(self) -> bool:
        """Whether all that collect are configured with the same sources, those that died or left lately, too.

        One that is started anew may come back with what it names; under its name it takes back what it said before.
        """
        told = [member for _, member in self.members.everyone(self._parts.clock.now()).values() if member.collects]
        return self.is_known and not self.is_cut and all(each.configuration == self._configuration for each in told)

    # -- telling ------------------------------------------------------------------------------------------------------

    def beat_soon(self) -> None:
        """What this replica tells is something else now, and others wait for it."""
        self._stirred.set()

    async def run(self) -> None:
        """Until cancelled. A beat that is not answered is not sent again: the next one says more."""
        options, chance = self._parts.options, self._parts.chance
        while True:
            with contextlib.suppress(StoreFailure):
                await self.beat()
            rest_s = options.heartbeat_s * (0.9 + 0.2 * chance.random())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest_s):
                    await self._stirred.wait()
            self._stirred.clear()

    async def beat(self) -> None:
        """Once: say what is here, hear what others said, plan. Raises StoreFailure."""
        async with self._beating:
            await self._beat()

    async def _beat(self) -> None:
        options, clock = self._parts.options, self._parts.clock
        try:
            reading = await beat(
                self._parts.client,
                self._key,
                self._tell(),
                retain_ms=options.retain_ms,
                forget_ms=FORGET_LEASES * options.lease_ms,
            )
        except StoreFailure:
            self.is_cut = True
            self.members.missed(clock.now())
            raise
        now = clock.now()
        if self._waits_until == float("inf"):  # the first answer
            is_dying = self._is_somebody_dying(reading)
            self._waits_until = now + options.lease_s * WAIT_LEASES if is_dying else now
            if not is_dying:
                await self._beat()  # before anybody plans without this one
                return
        was_away = self.is_cut and self._outages.over(self._heard_at, now)
        if was_away or (not self.is_known and self._has_silent(reading)):
            self.calm_until = now + options.lease_s
        self.is_cut, self._heard_at = False, now
        self.members.heard(reading, now)
        await self._plan(now)
        self._compare(now)
        self.is_known = True

    def _is_somebody_dying(self, reading: Reading) -> bool:
        """Whether one that owned may have died just now, and another is there that may stand by for it."""
        options = self._parts.options
        ages = [
            age_ms / 1000
            for name, (age_ms, each) in reading.beats.items()
            if name != options.name and each.collects and not each.leaving
        ]
        silent_s = SILENT_BEATS * options.heartbeat_s
        is_one_silent = any(silent_s < age <= options.lease_s * WAIT_LEASES for age in ages)
        return is_one_silent and any(age <= silent_s for age in ages)

    def _compare(self, now: float) -> None:
        """For the operator: who is configured with other sources."""
        live = self.members.live(now)
        mine = live.get(self._parts.options.name)
        if mine is None or not mine.collects:
            return
        others = frozenset(
            name for name, each in live.items() if each.collects and each.configuration != self._configuration
        )
        came, self._otherwise = others - self._otherwise, others
        if came:
            log.warning(
                "replicas: %s configured with other sources than this one: what only some name is taken up by all, and"
                " nothing that nobody names any more is removed until all agree",
                ", ".join(sorted(came)),
                extra=about("replicas_differ"),
            )

    def _has_silent(self, reading: Reading) -> bool:
        """Whether somebody who did not leave is silent: who just started cannot tell whether the store was away."""
        silent_ms = self._parts.options.lease_ms * OUTAGE_LEASES
        return any(
            age_ms >= silent_ms and each.collects and not each.leaving for age_ms, each in reading.beats.values()
        )

    async def _plan(self, now: float) -> None:
        candidates = self.members.candidates(now)
        if candidates == self._candidates and self.shares:
            return
        came, went = sorted(candidates - self._candidates), sorted(self._candidates - candidates)
        steps = share_out_in_steps(self._parts.partitions, candidates)
        before, self.shares = self.shares, await Slices(self._parts.clock).run(steps)
        self._candidates = candidates
        for partition in [each for each in self._waits if before[each : each + 1] != self.shares[each : each + 1]]:
            self._waits.pop(partition).set()
        extra = about("replicas_changed")
        for level, words, names in self._why_gone(went, now) if self.is_known else ():
            log.log(
                level, "replicas: %s %s, partitions are shared out among %d", names, words, len(candidates), extra=extra
            )
        if self.is_known and came:
            log.info(
                "replicas: %s came, partitions are shared out among %d", ", ".join(came), len(candidates), extra=extra
            )

    def _why_gone(self, went: Iterable[str], now: float) -> list[tuple[int, str, str]]:
        """What is said of those among whom partitions are no longer shared out: level, words, names."""
        everyone, live = self.members.everyone(now), self.live()
        gone: dict[tuple[int, str], list[str]] = {}
        for name in went:
            if name in everyone and everyone[name][1].leaving:
                why = logging.INFO, "stops"
            elif name in live:
                why = (logging.INFO, "drains") if self.members.is_draining(name) else (logging.INFO, "collects no more")
            else:
                why = logging.WARNING, "is silent"
            gone.setdefault(why, []).append(name)
        return [(level, words, ", ".join(names)) for (level, words), names in gone.items()]
