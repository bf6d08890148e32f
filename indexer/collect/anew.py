"""When a connection that was lost is made anew by us, because ZMQ may have given up on it. Pure."""

from __future__ import annotations

from indexer.collect.options import CollectOptions


class Anew:
    """One connection's patience with ZMQ's own attempts: the wait doubles while nothing comes of it."""

    __slots__ = ("_at", "_options", "_wait_s")

    def __init__(self, options: CollectOptions, now: float) -> None:
        self._options = options
        self._wait_s = options.reconnect_anew_min_s
        self._at = now + self._wait_s

    def due(self, now: float, *, connected: bool) -> bool:
        """Whether to connect anew now."""
        if connected:
            self._wait_s = self._options.reconnect_anew_min_s
            self._at = now + self._wait_s
            return False
        if now < self._at:
            return False
        self._wait_s = min(2 * self._wait_s, self._options.reconnect_anew_max_s)
        self._at = now + self._wait_s
        return True
