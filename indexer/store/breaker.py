"""When to ask a store that fails, and when to let it be. A pure state machine; time and chance are arguments."""

from __future__ import annotations

from typing import Literal

import msgspec

State = Literal["closed", "open", "probing"]


class BreakerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Failures in a row that open it; how long it stays open at first and at most (doubling in between)."""

    failures: int = 5
    rest_s: float = 0.2
    rest_max_s: float = 5.0


class Breaker:
    """Closed: calls go through. Open: none does, until its rest is over. Probing: one call finds out.

    Without it every caller would wait for a deadline of its own while the store hangs.
    """

    def __init__(self, options: BreakerOptions) -> None:
        self._options = options
        self.state: State = "closed"
        self._failures = 0
        self._rest_s = options.rest_s
        self._open_until = 0.0

    def allow(self, now: float) -> bool:
        """Whether to make a call now. True must be followed by `succeeded`, `failed` or `gave_up`."""
        if self.state == "open" and now >= self._open_until:
            self.state = "probing"
            return True
        return self.state == "closed"

    def succeeded(self) -> None:
        """The store answered, be it with an error."""
        self.state = "closed"
        self._failures = 0
        self._rest_s = self._options.rest_s

    def failed(self, now: float, chance: float) -> None:
        """The store did not answer. `chance` in [0, 1) spreads the probes of many replicas over half the rest."""
        self._failures += 1
        if self.state == "closed" and self._failures < self._options.failures:
            return
        if self.state == "open":  # a call made before it opened: says nothing new
            return
        self.state = "open"
        self._open_until = now + self._rest_s * (0.5 + 0.5 * chance)
        self._rest_s = min(2 * self._rest_s, self._options.rest_max_s)

    def gave_up(self, now: float) -> None:
        """The caller was cancelled: nothing is known. Another call may probe at once."""
        if self.state == "probing":
            self.state = "open"
            self._open_until = now
