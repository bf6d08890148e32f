"""A source that has never said anything: an operator should read why that may be. Pure."""

from __future__ import annotations

from indexer.collect import remarks
from indexer.collect.commands import Command
from indexer.collect.options import CollectOptions


class Silence:
    """One source's, from its start to its first word."""

    __slots__ = ("_broken", "_options", "_started_at", "_told", "heard_at")

    def __init__(self, options: CollectOptions, now: float) -> None:
        self._options = options
        self._started_at = now
        self._broken = False
        self._told = False
        self.heard_at = now
        """When the newest live message came; the start before the first."""

    def heard(self, now: float, out: list[Command]) -> None:
        """A live message."""
        self.heard_at = now
        self.broken(out)

    def broken(self, out: list[Command]) -> None:
        """The engine said something, be it in a replay."""
        if not self._broken:
            self._broken = True
            if self._told:
                out.append(remarks.NOT_SILENT)

    def tick(self, now: float, out: list[Command], *, connected: bool) -> None:
        """Time passed, and still nothing is known of it. `connected`: it was, at least once."""
        if not self._broken and not self._told and now - self._started_at >= self._options.silent_after_s:
            self._told = True
            out.append(remarks.NEVER_DELIVERED if connected else remarks.NEVER_CONNECTED)
