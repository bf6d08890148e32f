"""What keeps discoverers from hearing anything, in the log: once, when it lasts, and once when it is over."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from indexer.log_lines import about

if TYPE_CHECKING:
    from collections.abc import Iterable

    from indexer.discovery.found import Discoverer
    from indexer.source_log import SourceLog

LASTS_S: Final = 3.0
"""A connection that ends now and then, and is made again, is no trouble of an operator's."""


class Troubles:
    """Of this process's discoverers."""

    def __init__(self, log: SourceLog) -> None:
        self._log = log
        self._since: dict[str, float] = {}
        self._said: dict[str, str] = {}

    def look(self, discoverers: Iterable[Discoverer], now: float) -> None:
        """Say what is new since the last look."""
        for each in discoverers:
            if not each.trouble:
                self._since.pop(each.name, None)
                if self._said.pop(each.name, None) is not None:
                    self._log.say(about("discovery_works"), "discovery: %s is heard again", each.name)
            elif now - self._since.setdefault(each.name, now) >= LASTS_S and self._said.get(each.name) != each.trouble:
                self._said[each.name] = each.trouble
                self._log.say(
                    about("discovery_failing"),
                    "discovery: %s cannot be heard: %s",
                    each.name,
                    each.trouble,
                    level=logging.WARNING,
                )

    def forget(self) -> None:
        """Nobody looks any more."""
        self._since.clear()
        self._said.clear()
