"""Which session a request belongs to, where nobody says. Pure."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

SHARED: int = 1
"""Whole blocks that prompts may share without being of one session, such as what all of a service begin with."""


class Sessions:
    """One goes on where a prompt has all whole blocks of an earlier one, and more than `SHARED`.

    `ids` stand for a block and all before it.
    """

    def __init__(self) -> None:
        self._ends: dict[Hashable, int] = {}
        self._count = 0

    def of(self, ids: Sequence[Hashable], whole: int) -> int:
        """The session of the next request, of whose blocks the first `whole` ones are whole."""
        deepest_first = islice(reversed(ids), max(len(ids) - SHARED, 0))
        session = next((self._ends[each] for each in deepest_first if each in self._ends), None)
        if session is None:
            session, self._count = self._count, self._count + 1
        if whole > SHARED:
            self._ends[ids[whole - 1]] = session
        return session


class Numbers:
    """Small numbers for whatever names blocks."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def of(self, names: Sequence[Hashable]) -> list[int]:
        """For names that stand for a block and all before it."""
        return [self._numbers.setdefault(name, len(self._numbers)) for name in names]

    def chained(self, contents: Sequence[Hashable]) -> list[int]:
        """For contents of blocks, of which each counts with all before it."""
        number, told = -1, []
        for content in contents:
            number = self._numbers.setdefault((number, content), len(self._numbers))
            told.append(number)
        return told
