"""A connection of messages that stands while its engine's pulse is lost: does it still lead to the same process? Pure.

A frozen engine leaves heartbeats unanswered, and its connections stand: nothing is lost. Where packets are dropped they
seem to stand, too, until TCP keepalive notices: and behind such a cut another process may have come, to which the pulse
connects anew before the connection of the messages is found dead. So after a silence in which an engine may have
started anew, that connection proves nothing before a message comes, or keepalive had its time; and where it turns out
to be dead, it was away from the last sign of life on, not from the moment at which that was noticed (promise P6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from indexer.collect.options import CollectOptions
from indexer.collect.ring import Down

if TYPE_CHECKING:
    from indexer.collect.wire import Reading

MARGIN_S: Final = 1.0


class Unheard:
    """One engine's. Times are on our clock."""

    __slots__ = ("_back_at", "_beat_at", "_options", "_since", "_unseen_since")

    def __init__(self, options: CollectOptions) -> None:
        self._options = options
        self._since: float | None = None
        self._back_at: float | None = None
        self._beat_at: float | None = None
        self._unseen_since: float | None = None
        """Where the pulse was made anew, after a pause of our own, and was not heard since."""

    def look(self, now: float, *, silent: bool, beats: bool) -> None:
        """How the pulse is while the connection of the messages stands."""
        if silent:
            if self._since is None:
                self._since = self._answered_before(now)
            self._back_at = None
        elif beats and self._since is not None:
            if self._back_at is None:
                self._back_at = now
            if now - self._back_at >= self._proven_after_s:
                self._since = self._back_at = None
        if beats:
            self._beat_at, self._unseen_since = now, None
        elif self._unseen_since is None and self._beat_at is not None:
            self._unseen_since = self._answered_before(self._beat_at)

    def take(self, reading: Reading) -> None:
        """What the connection gave: when it was lost is put right, and a message proves it."""
        reading.changes = [Down(self.lost(each.since)) if isinstance(each, Down) else each for each in reading.changes]
        if reading.batches:
            self.heard()

    def heard(self) -> None:
        """A message came over the connection. Behind a pulse that is back, it leads to whoever sent that."""
        if self._back_at is not None:
            self._since = self._back_at = None

    def lost(self, at: float) -> float:
        """The connection is lost, as was noticed at that time: since when it was away.

        Whether the pulse was lost by the same cause, a process that ended, or by a cut that was over when the end of
        the connection was told, nobody can say: the last sign of life counts. As a rule a process that ends is noticed
        by this connection first.
        """
        since = self._since if self._may_be_another else self._unseen_since
        self.gone()
        return at if since is None else min(at, since)

    def gone(self) -> None:
        """There is no such connection any more."""
        self._since = self._back_at = self._beat_at = self._unseen_since = None

    @property
    def unproven_since(self) -> float | None:
        """Since when nothing shows that whoever answers is the process that was known; None where it is."""
        return self._since if self._back_at is not None and self._may_be_another else None

    @property
    def _may_be_another(self) -> bool:
        """No engine is back faster than `min_engine_restart_s`."""
        if self._since is None:
            return False
        return self._back_at is None or self._back_at - self._since >= self._options.min_engine_restart_s

    def _answered_before(self, at: float) -> float:
        """The newest answer of a pulse that beats, or is just found silent, then: it is not older."""
        return at - self._options.heartbeat_interval_s - self._options.heartbeat_timeout_s

    @property
    def _proven_after_s(self) -> float:
        """A dead connection to a host that answers again is refused at the next probe."""
        return self._options.keepalive_idle_s + self._options.keepalive_interval_s + MARGIN_S
