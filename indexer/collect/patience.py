"""How often a replay endpoint may be asked: back-off after failures, a rate in any case. Pure."""

from __future__ import annotations

from typing import Final

from indexer.collect.options import CollectOptions

_MINUTE_S: Final = 60.0


class Patience:
    """State for one endpoint.

    The rate is a bucket of `replays_per_minute` turns that fills again evenly: whoever finds it empty waits for a
    fraction of a minute, and one recovery fetches all that was lost meanwhile.
    """

    __slots__ = ("_failures", "_options", "_retry_at", "_turns", "_turns_at")

    def __init__(self, options: CollectOptions) -> None:
        self._options = options
        self._failures = 0
        self._retry_at = float("-inf")
        self._turns = float(options.replays_per_minute)
        self._turns_at = 0.0

    def allows(self, now: float) -> bool:
        """Whether there is any use in asking the endpoint now."""
        return now >= self._retry_at

    def take_turn(self, now: float) -> bool:
        """Begin a recovery, if the rate allows one now. Idle probes have their own interval and take no turns."""
        per_minute = self._options.replays_per_minute
        self._turns = min(float(per_minute), self._turns + (now - self._turns_at) * per_minute / _MINUTE_S)
        self._turns_at = now
        if self._turns < 1.0:
            return False
        self._turns -= 1.0
        return True

    def failed(self, now: float) -> None:
        """No answer: wait longer each time."""
        wait_s = self._options.replay_backoff_min_s * 2.0 ** min(self._failures, 30)
        self._retry_at = now + min(wait_s, self._options.replay_backoff_max_s)
        self._failures += 1

    def answered(self) -> bool:
        """It answers. True when it did not before."""
        recovered = self._failures > 0
        self._failures = 0
        return recovered
