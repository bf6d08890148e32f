"""`limits.max_clears_per_minute`: a discovery that has gone wrong must not empty the index. Does no I/O but its alarm.

It holds for the deployment: what other replicas were told to clear or remove counts here, too, as soon as it is heard
of. Several that are told at the same moment may go beyond it together, each by no more than the limit.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from indexer.errors import LimitReachedError
from indexer.log_lines import about

if TYPE_CHECKING:
    from indexer.ports import Clock
    from indexer.source_log import SourceLog
    from indexer.telemetry import Telemetry

WINDOW_S: Final = 60.0
NAME: Final = "limits.max_clears_per_minute"


class ClearLimit:
    """`most` pods in a window. One a process."""

    def __init__(self, most: int, clock: Clock, telemetry: Telemetry, log: SourceLog) -> None:
        self.most = most
        self._clock = clock
        self._telemetry = telemetry
        self._log = log
        self._cleared: deque[float] = deque(maxlen=2 * most)
        """When; of all replicas, which may be more than `most`."""
        self._refused = 0
        """Pods of which it was not told yet."""
        self._told_at = float("-inf")

    def allow(self, pods: int) -> None:
        """So many are cleared or removed now, by a call to this replica. Raises LimitReachedError."""
        now = self._clock.now()
        self._forget(now)
        beyond = len(self._cleared) + pods - self.most
        if beyond > 0:
            self.refuse(pods)
            turn = self._cleared[min(beyond, len(self._cleared)) - 1] if self._cleared else now
            raise LimitReachedError(NAME, self.most, retry_s=turn + WINDOW_S - now)
        self._cleared.extend([now] * pods)

    def take(self, pods: int) -> int:
        """So many are to be removed by discovery, which asks again: how many of them may be now. Those count."""
        self._forget(self._clock.now())
        taken = max(0, min(pods, self.most - len(self._cleared)))
        self._cleared.extend([self._clock.now()] * taken)
        if taken < pods:
            self._telemetry.limits_reached[NAME] += 1
            self._refused = max(self._refused, pods - taken)
            self.tell()
        return taken

    def note(self) -> None:
        """Another replica was told to clear or remove a pod."""
        now = self._clock.now()
        self._forget(now)
        self._cleared.append(now)

    def refuse(self, pods: int) -> None:
        """So many were not cleared or removed."""
        self._telemetry.limits_reached[NAME] += 1
        self._refused += pods
        self.tell()

    def tell(self) -> None:
        """The alarm, once a window however often it happens: whoever looks after the callers must know."""
        now = self._clock.now()
        if not self._refused or now - self._told_at < WINDOW_S:
            return
        self._log.say(
            about("clears_refused"),
            "%s = %d is reached, pods not cleared or removed: %d. Has the discovery that registers sources gone wrong? "
            "If it is meant: PUT /v1/sources?max_removals=N, or wait",
            NAME,
            self.most,
            self._refused,
            level=logging.ERROR,
        )
        self._refused, self._told_at = 0, now

    def _forget(self, now: float) -> None:
        while self._cleared and now - self._cleared[0] >= WINDOW_S:
            self._cleared.popleft()
