"""What follows when the store refuses a call: which sources it concerns, and what becomes of them. No I/O."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from indexer.log_lines import about
from indexer.partitions.calls import EpochOver
from indexer.partitions.news import in_use
from indexer.store.outcomes import Fenced, Lost, OtherCursor, OtherGeneration, WrongType

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence

    from indexer.partitions.owned import OwnedSource
    from indexer.partitions.parts import Parts
    from indexer.store.layout import PartitionKeys

log = logging.getLogger("kvindexer.store")

WRONG_TYPE_REST_S: Final = 5.0


class Refusals:
    """Of one epoch. `copies_due` is set when a source wants a new copy."""

    def __init__(
        self, parts: Parts, keys: PartitionKeys, owned: Mapping[int, OwnedSource], copies_due: asyncio.Event
    ) -> None:
        self._parts = parts
        self._keys = keys
        self._owned = owned
        self._copies_due = copies_due
        self._wrong_keys: set[bytes] = set()

    def may_write(self, owned: OwnedSource) -> bool:
        """Whether a call with it may be tried now."""
        return self._parts.clock.now() >= owned.rests_until and self.is_here(owned)

    def is_here(self, owned: OwnedSource) -> bool:
        """Whether it was not removed meanwhile."""
        return self._owned.get(id(owned.source)) is owned

    def refused(self, reply: object, owned: Sequence[OwnedSource]) -> None:
        """A call was not done, and why. `owned` are its sources, in order."""
        match reply:
            case Lost(what="source", nth=nth):
                self.lose(owned[nth])
            case OtherCursor(nth=nth):
                source = owned[nth].id
                extra = about("source_rewritten", source=source)
                log.error(
                    "source %s: its cursor in the store is not where it was left: written anew", source, extra=extra
                )
                self.lose(owned[nth])
            case OtherGeneration(stored=stored, nth=nth):
                self._adopt(owned[nth], stored)
            case Lost(what="copy"):
                self.lose(owned[0])
            case WrongType(key=key):
                self._wrong(key, owned)
            case _:
                self.judge(reply)

    def judge(self, reply: object) -> None:
        """A call of no source in particular was not done."""
        match reply:
            case Fenced() | Lost(what="log"):
                raise EpochOver(reply)
            case WrongType(key=key):
                self._wrong(key, list(self._owned.values()))
            case _:
                raise AssertionError(reply)

    def lose(self, owned: OwnedSource) -> None:
        """A whole new copy is due."""
        owned.lose()
        self._copies_due.set()

    def _adopt(self, owned: OwnedSource, stored: int) -> None:
        """Another generation stands: a command raised it, whose words come on the control stream."""
        if not self.is_here(owned):
            return
        known = owned.source.facts.generation
        if stored > known:
            self._parts.ingest.clear(owned.sink, stored)
        elif stored < known or not owned.wants_turn:  # else what was refused is of the life before, which is over
            self.lose(owned)

    def _wrong(self, key: bytes, owned: Sequence[OwnedSource]) -> None:
        """Somebody put something else there: only they know whether it may go. Other sources go on without."""
        now = self._parts.clock.now()
        theirs = [each for each in owned if self._keys.belongs(key, each.id)] or owned
        for each in theirs:
            each.rests_until = now + WRONG_TYPE_REST_S
            self._copies_due.set()
        if key not in self._wrong_keys:
            self._wrong_keys.add(key)
            log.error("the store: %s", in_use(key), extra=about("store_key_taken"))
