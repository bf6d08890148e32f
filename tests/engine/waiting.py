"""Waiting for a named condition, with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

PAUSE_S = 0.02
"""Between two looks: short beside an engine step, long beside the cost of a look."""


class NeverHappenedError(AssertionError):
    """A condition did not come true before its deadline; `last` is what the last look saw."""

    def __init__(self, condition: str, deadline_s: float, last: object) -> None:
        super().__init__(f"not within {deadline_s:g} s: {condition}; last seen: {last}")
        self.condition, self.deadline_s, self.last = condition, deadline_s, last


def wait_until(
    condition: str,
    look: Callable[[], Found],
    *,
    holds: Callable[[Found], bool] = bool,
    deadline_s: float = 30.0,
) -> Found:
    """Look until what is seen `holds`, and return it.

    Raises:
        NeverHappenedError: at the deadline, with the condition and what was seen last.
    """
    ends_at = time.monotonic() + deadline_s
    while True:
        seen = look()
        if holds(seen):
            return seen
        if time.monotonic() >= ends_at:
            raise NeverHappenedError(condition, deadline_s, seen)
        time.sleep(PAUSE_S)
