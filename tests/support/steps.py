"""Work that is cut into steps, done at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")


def done(steps: Generator[None, None, T]) -> T:
    """What they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
