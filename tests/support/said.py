"""A log that a test reads."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from indexer.log_lines import Event, Extra


@dataclass
class Said:
    """`lines`: level and text."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def __call__(self, extra: Extra, text: str, *arguments: object, level: int = logging.INFO) -> None:
        self.events.append(extra["line"].event)
        self.lines.append((logging.getLevelName(level), text % arguments))
