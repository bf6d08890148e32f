"""Ghosts: blocks believed held whose removal was lost in a kept gap. Pure.

A lost removal never comes again, so a ghost would be claimed until the engine restarts. Three facts tell ghosts from
blocks:

  * An engine holds no more than it can. Its capacity is told (`blocks_total`), or was seen: the most it held while
    nothing was in doubt and it already had to evict.
  * What is used is named. A store names its parent, and a block is computed on top of all before it: parent and
    ancestors were *seen* just now, as was everything announced.
  * Engines evict what was not used for longest. A block that was not seen while twice as many others were stored as
    the engine can hold would have been evicted, and its removal announced.

So when a source is believed to hold more than it can, what to give up are entries from before a gap: first those whose
parent is not held (no walk reaches them), then those not seen for so long. Dropping simply the oldest would
lose the hottest prefixes (DESIGN.md section 2).
"""

from __future__ import annotations

from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from indexer.index.mirror import Mirror
    from indexer.index.reverse_map import Lane

TURNOVERS: Final = 2
"""So many capacities must have been stored since a block was last seen. With one, prompts that are wholly cached and
so name nothing are given up too: on recorded traffic 3 % of hit tokens are lost for 0.1 % fewer invented ones."""
REST_STORES: Final = 8
"""A list of suspects is made again only after an eighth of the capacity was stored: it costs 60 ns an entry."""


class Ghosts:
    """What a lane's blocks were last seen at, since its first kept gap. Time is counted in blocks stored."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._stored = 0
        self._seen: dict[int, int] = {}
        self._suspects: Iterator[tuple[int, int]] | None = None
        self._rest_until = 0

    def note_stored(self, token_hashes: Sequence[int]) -> None:
        """These were announced just now."""
        self._stored += len(token_hashes)
        self._seen.update(dict.fromkeys(token_hashes, self._stored))

    def confirm(self, slot: int, token_hash: int, mirror: Mirror, capacity: int) -> None:
        """A store named this block as its parent: it is there, and so is all before it."""
        seen, recent = self._seen, self._stored - capacity // REST_STORES
        while token_hash and seen.get(token_hash, -capacity) < recent and mirror.holds(slot, token_hash):
            seen[token_hash] = self._stored
            token_hash = mirror.table.parent(token_hash)

    def surplus(self, slot: int, mirror: Mirror, capacity: int) -> list[int]:
        """Engine hashes to give up now, at most as many as the lane holds beyond `capacity`."""
        lane = self._lane
        over = lane.pairs + lane.extra_copies - capacity
        dropped: list[int] = []
        if over <= 0 or self._stored < self._rest_until:
            return dropped
        if self._suspects is None:
            self._suspects = chain(self._islands(slot, mirror), self._unseen(capacity))
        for engine_hash, token_hash in self._suspects:
            if lane.get(engine_hash) == token_hash and self._doubtful(engine_hash, token_hash):
                dropped.append(engine_hash)
                if len(dropped) == over:
                    return dropped
        self._suspects = None
        self._rest_until = self._stored + capacity // REST_STORES
        self._forget_gone(slot, mirror)
        return dropped

    def _doubtful(self, engine_hash: int, token_hash: int) -> bool:
        return not self._lane.announced(engine_hash) and token_hash not in self._lane.aliases

    def _islands(self, slot: int, mirror: Mirror) -> Iterator[tuple[int, int]]:
        for engine_hash, token_hash in self._by_age():
            parent = mirror.table.parent(token_hash)
            if parent and not mirror.holds(slot, parent):
                yield engine_hash, token_hash

    def _unseen(self, capacity: int) -> Iterator[tuple[int, int]]:
        for engine_hash, token_hash in self._by_age():
            if self._seen.get(token_hash, 0) < self._stored - TURNOVERS * capacity:
                yield engine_hash, token_hash

    def _by_age(self) -> Iterator[tuple[int, int]]:
        """Entries as they were announced, nearly: in turn from each piece of the map, which keeps its own order."""
        for row in zip_longest(*[list(piece.items()) for piece in self._lane.maps]):
            for entry in row:
                if entry is not None:
                    yield entry

    def _forget_gone(self, slot: int, mirror: Mirror) -> None:
        """Keep the memory in proportion to what is held."""
        if len(self._seen) > 4 * self._lane.pairs:
            self._seen = {t: at for t, at in self._seen.items() if mirror.holds(slot, t)}
