"""Which partition is handed over next, and to whom. Pure.

Calm: one a second and replica, none before its minimum holding time, and only to a replica that is there, listens to
all its engines and follows it already. While one is tried nothing of it is applied; so one that failed rests, as where
the store takes no more, and others have their turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from indexer.sharding.members import Member
    from indexer.sharding.rendezvous import Share

MOVE_EVERY_S: Final = 1.0
FAILED_REST_S: Final = 30.0
"""Before a partition is tried again that could not be handed over: many times longer than a try may take."""


class Held(NamedTuple):
    """A partition that this replica owns, since when it must be held, and who should own it."""

    partition: int
    since: float
    share: Share | None


class Move(NamedTuple):
    """It goes to that replica."""

    partition: int
    to: str


class Moves:
    """`me`: this replica; `min_hold_s`: see `redis.min_hold_s`. Times in seconds on this process's clock."""

    def __init__(self, me: str, min_hold_s: float) -> None:
        self._me = me
        self._min_hold_s = min_hold_s
        self._moved_at = float("-inf")
        self._rests_until: dict[int, float] = {}
        """Partitions that could not be handed over."""

    def failed(self, partition: int, now: float) -> None:
        """It could not be handed over, and stays for now."""
        self._rests_until[partition] = now + FAILED_REST_S

    def next(
        self, held: Iterable[Held], live: Mapping[str, Member], now: float, *, stays: bool, stops: bool = False
    ) -> Move | None:
        """What is to be moved now. `stays`: this replica is among those that partitions are shared out to.

        `stops`: it has little time, and none to be calm.
        """
        if not stops and now - self._moved_at < MOVE_EVERY_S:
            return None
        for partition, since, share in held:
            to = None if share is None else share.owner
            if to is None or to == self._me:
                continue
            member = live.get(to)
            if member is None or partition not in member.ready:
                continue
            if now < self._rests_until.get(partition, now) or (stays and now - since < self._min_hold_s):
                continue
            self._rests_until.pop(partition, None)
            self._moved_at = now
            return Move(partition, to)
        return None
