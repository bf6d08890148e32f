"""A log that a test reads."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field


@dataclass
class Said:
    """`lines`: level and text."""

    lines: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, text: str, *arguments: object, level: int = logging.INFO) -> None:
        self.lines.append((logging.getLevelName(level), text % arguments))
