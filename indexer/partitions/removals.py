"""The latest sources that commands removed, remembered: a store that goes back in time has them again. Pure."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

Key = TypeVar("Key")
REMOVED_MAX: Final = 4_096


class Removals(dict[Key, int], Generic[Key]):
    """By source, the generation of the command that removed it; the latest so many."""

    def note(self, source: Key, generation: int) -> None:
        """A command removed it."""
        self[source] = generation
        if len(self) > REMOVED_MAX:
            del self[next(iter(self))]
