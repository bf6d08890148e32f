"""When a replica may take a partition that nobody seems to own. Pure.

The plan says who should own a partition and who stands by; the store says who has it, for how long still, and who had
it last. Three rules make the two one:

* A lease that ran out means that its owner died, was paused or is cut off: the standby takes it at once, whatever the
  plan, which learns of a death later.
* A lease that went before its time means that the store was emptied or restored, not that its owner died. So does an
  epoch that the store forgot after a partition was given away, and every free partition after an outage, in which
  nobody could renew: the last holder has the first right for one lease time. Where the store names an earlier holder
  than is known here it went back, and what is known counts.
* What nobody takes who should, others take after a grace, one rank after the other: no partition stays free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from indexer.sharding.rendezvous import Share

GRACE_S: Final = 1.0
"""Between two ranks: a replica that is there has asked several times by then."""
LAST_RANK: Final = 3
"""Of a replica that is to be given up or draining: only where nobody else is there."""


class Seen(NamedTuple):
    """What the store said of a partition. Names of replicas; empty where there is none."""

    holder: str
    left_s: float
    reserved_for: str
    last: str
    """Who began the latest epoch."""
    epoch: int
    """That one; 0 where there is none."""


class Standing(NamedTuple):
    """How this replica stands to a partition, and to the store."""

    share: Share | None
    """None: who else is there is not known yet."""
    is_candidate: bool
    """Whether partitions are given to this replica."""
    has_others: bool
    """Whether there are any other candidates."""
    calm_until: float
    """After an outage of the store: until then the last holder has the first right."""
    is_cut: bool
    """The store did not answer this replica when asked last."""


class Claim:
    """One partition, as replica `me` sees it. Times in seconds on this process's clock."""

    def __init__(self, me: str, lease_s: float) -> None:
        self._me = me
        self._lease_s = lease_s
        self._seen: Seen | None = None
        self._held_until: float | None = None
        self._free_since = 0.0
        self._rests_until = 0.0
        self._epoch, self._last = 0, ""
        """The latest that is known, and whose it is: the store may have lost it."""
        self._is_given = False
        """This replica gave it away, and has not seen anybody have it since."""

    @property
    def is_mine(self) -> bool:
        """Whether this replica had it last, whoever the store remembers."""
        return self._last == self._me

    def went_back(self) -> bool:
        """Whether the store remembers less than is known here."""
        return self._seen is not None and self._seen.epoch < self._epoch

    def saw(self, seen: Seen, asked_at: float, now: float) -> None:
        """The store was asked at `asked_at` and had answered by `now`."""
        was_free = self._seen is not None and not self._seen.holder
        if was_free and self._seen is not None and self._seen.reserved_for and not seen.reserved_for:
            was_free = False  # for whom it was reserved has not come: all who may begin to wait from now on
        self._seen = seen
        if seen.epoch > self._epoch:  # of the epoch that is known more is known: to whom it was given
            self._epoch, self._last = seen.epoch, seen.last
        if seen.holder:
            self._is_given = False
            self._held_until = asked_at + seen.left_s
            self._rests_until = 0.0
        elif not was_free:
            self._free_since = now
            is_early = self._held_until is not None and now < self._held_until
            if not seen.reserved_for and (is_early or (self._is_given and self.went_back())):
                self._rests_until = now + self._lease_s
            self._held_until = None

    def took(self, epoch: int) -> None:
        """It is this replica's now."""
        self._epoch, self._last, self._rests_until = epoch, self._me, 0.0
        self._is_given = False
        self._seen, self._held_until = None, None

    def gave(self, to: str) -> None:
        """This replica gave it to that one: in a store that is emptied before it is seen there, it is not one's own."""
        self._last, self._is_given = to, True

    def may_take_at(self, how: Standing) -> float | None:
        """From when on it may be taken, as things stand; None: not as long as they stand so."""
        seen = self._seen
        if seen is None or seen.holder:
            return None
        if seen.reserved_for:
            return self._free_since if seen.reserved_for == self._me else None
        if self.is_mine:
            return self._free_since
        if how.share is None or how.is_cut:
            return None
        rank = self._rank(how)
        if rank is None:
            return None
        return max(self._free_since + rank * GRACE_S, how.calm_until, self._rests_until)

    def _rank(self, how: Standing) -> int | None:
        if not how.is_candidate:
            return None if how.has_others else LAST_RANK
        share = how.share
        if share is not None and share.owner == self._me:
            return 0
        if share is not None and share.standby == self._me:
            return 0 if self._last == share.owner else 1
        return LAST_RANK - 1
