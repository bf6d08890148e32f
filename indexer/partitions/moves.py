"""Which partition is handed over next, and to whom. Pure.

Calm: one a second and replica, none before its minimum holding time, and only to a replica that is there, listens to
all its engines and follows it already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from indexer.sharding.members import Member
    from indexer.sharding.rendezvous import Share

MOVE_EVERY_S: Final = 1.0


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

    def next(self, held: Iterable[Held], live: Mapping[str, Member], now: float, *, stays: bool) -> Move | None:
        """What is to be moved now. `stays`: this replica is among those that partitions are shared out to."""
        if now - self._moved_at < MOVE_EVERY_S:
            return None
        for partition, since, share in held:
            to = None if share is None else share.owner
            if to is None or to == self._me:
                continue
            member = live.get(to)
            if member is None or partition not in member.ready:
                continue
            if stays and now - since < self._min_hold_s:
                continue
            self._moved_at = now
            return Move(partition, to)
        return None
