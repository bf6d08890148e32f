"""A bounded memory of what was asked for lately. Pure.

Two halves: when the younger is full it becomes the older one, and what was not asked for since the last change is gone.
"""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """At most `limit` entries in each half. Values are never None."""

    __slots__ = ("_limit", "old", "young")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.young: dict[K, V] = {}
        self.old: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """What is remembered, which is young again; None where nothing is."""
        value = self.young.get(key)
        if value is None:
            value = self.old.get(key)
            if value is not None:
                self.keep(key, value)
        return value

    def keep(self, key: K, value: V) -> None:
        """Remember it."""
        if len(self.young) >= self._limit:
            self.young, self.old = {}, self.young
        self.young[key] = value

    def forget(self) -> None:
        """Remember nothing any more."""
        self.young, self.old = {}, {}
