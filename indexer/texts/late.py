"""That a text is too late, apart from what makes tokens: a process that makes none loads none of that."""

from __future__ import annotations


class OutOfTime(Exception):
    """Nobody waits for this text any more."""
