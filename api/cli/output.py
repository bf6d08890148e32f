"""The console of the client commands."""

from __future__ import annotations

import sys
from typing import Final

from rich.console import Console

PIPE_WIDTH: Final = 250
"""Columns where nobody looks: wide enough that no name is cut before it reaches the next program."""


def counted(count: int, what: str) -> str:
    """`1 source`, `2 sources`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def as_it_came(answer: bytes) -> None:
    """An answer for programs, with one end of line."""
    sys.stdout.write(answer.decode().rstrip("\r\n") + "\n")


def console() -> Console:
    """For text that is ours and names that are not: `[fd00::1]:8000` must not be read as markup."""
    return Console(
        markup=False, emoji=False, highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH, soft_wrap=False
    )
