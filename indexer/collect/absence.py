"""What a reconnect leaves open: for how long the connection was away, and which messages are still from before. Pure.

Monitor events and messages are not ordered to each other, so after a reconnect the socket may first give what it
queued from the old connection. It holds at most its high-water mark of those, and none once it was found empty.
"""

from __future__ import annotations

from indexer.collect.options import CollectOptions
from indexer.collect.sequence import Gap, Restart, after_absence


class Absence:
    """One source's connection, as its monitor tells it."""

    __slots__ = (
        "_away_s",
        "_down_since",
        "_leftovers",
        "_options",
        "_resumed",
        "_up_at",
        "_vouched_at",
        "connected",
        "ever_connected",
        "leftovers_known",
        "unexamined",
        "unproven",
    )

    def __init__(self, options: CollectOptions) -> None:
        self._options = options
        self._down_since: float | None = None
        self._leftovers = 0
        self._away_s = 0.0
        self._resumed = False
        self._up_at = 0.0
        self._vouched_at = float("-inf")
        self.connected = False
        self.ever_connected = False
        self.unexamined = False
        """Nothing told yet whether the same process is back: promise P6's rule applies to a jump."""
        self.leftovers_known = True
        """What is left of the connection before is of the process that was known then."""
        self.unproven = False
        """And it was away for so long that another may be, whose numbers may just go on."""

    def resume(self, left_at: float) -> None:
        """A process before this one had the connection, and was heard of last at `left_at`."""
        self._resumed = True
        self._down_since = left_at

    def go_on(self, *, connected: bool, since: float | None, settled: bool) -> None:
        """The connection was followed so far, and stood like that: it is one that goes on."""
        self.connected, self.ever_connected = connected, True
        self._up_at = since if connected and since is not None else 0.0
        self._down_since = None if connected else since
        self._leftovers = 0 if settled else self._options.rcvhwm_messages

    def leave_over(self) -> None:
        """The socket may have something of a connection before."""
        self.ever_connected = True

    def up(self, now: float) -> bool:
        """The connection stands. True when it, or that of a process of ours before, stood before: who is there now?"""
        again = self.ever_connected or self._resumed
        if again:
            self._away_s = max(self._away_s, now - self._down_since if self._down_since is not None else 0.0)
            self._leftovers = self._options.rcvhwm_messages if self.ever_connected else 0
            self.leftovers_known = not self.unexamined
            self.unexamined = True
            self.unproven = self._away_s >= self._options.min_engine_restart_s
        self._down_since, self._up_at = None, now
        self.connected = self.ever_connected = True
        return again

    def down(self, since: float) -> None:
        """The connection is lost, at `since`."""
        if self.connected:
            self._down_since = since
        self.connected = False

    @property
    def settled(self) -> bool:
        """Whether all that the socket will give from now on is from the present connection."""
        return not self._leftovers

    @property
    def up_at(self) -> float:
        """When the connection came to stand last."""
        return self._up_at

    @property
    def since(self) -> float | None:
        """When the connection came to stand, or was lost; None where it never stood."""
        return self._up_at if self.connected else self._down_since

    @property
    def unexamined_s(self) -> float | None:
        """How long the absence was of which nothing told yet who is back; None where there is none."""
        return self._away_s if self.unexamined else None

    def read(self, messages: int) -> None:
        """So many messages were taken from the socket."""
        self._leftovers = max(0, self._leftovers - messages)

    def socket_empty(self) -> bool:
        """The socket had nothing more. True where something was read that may be of the connection before."""
        read_some = 0 < self._leftovers < self._options.rcvhwm_messages
        self._leftovers = 0
        return read_some

    def examined(self) -> None:
        """It is known who is there."""
        self.unexamined = self.unproven = False
        self._away_s = 0.0

    def vouch(self, at: float) -> None:
        """Whoever runs the engine was heard at that moment, and says that the process that was known lives."""
        self._vouched_at = at

    def means_restart(self, gap: Gap) -> bool:
        """Whether a jump in numbers that cannot be asked about has to be taken for a restart (promise P6).

        Not where it is vouched for: by what was heard since the connection is back, for before nobody need have known.
        """
        if not self.unexamined or (self.connected and self._vouched_at > self._up_at):
            return False
        limit_s = self._options.min_engine_restart_s
        return isinstance(after_absence(gap, self._away_s, limit_s), Restart)
