"""Ghosts: blocks believed held whose removal was lost in a kept gap. Pure.

A lost removal never comes again, so a ghost would be claimed until the engine restarts. Three facts tell ghosts from
blocks:

  * An engine holds no more than it can. Its capacity is told (`blocks_total`), or was seen: the most it held while
    nothing was in doubt and it already had to evict. Where it is not known nothing is given up.
  * What is used is named. A store names its parent, and a block is computed on top of all before it: parent and
    ancestors were *seen* just now, as was everything announced.
  * Engines evict what was not used for longest. A block that was not seen while twice as many others were stored as
    the engine can hold would have been evicted, and its removal announced.

So when a source is believed to hold more than it can, what to give up are entries from before a gap: first those whose
parent is not held (no walk reaches them), then those not seen for so long. Dropping simply the oldest would lose the
hottest prefixes (DESIGN.md section 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from indexer.index.lane import SHARDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from indexer.index.lane import Lane
    from indexer.index.mirror import Mirror

TURNOVERS: Final = 2
"""So many capacities must have been stored since a block was last seen. With one, prompts that are wholly cached and
so name nothing are given up too: on recorded traffic 3 % of hit tokens are lost for 0.1 % fewer invented ones."""
LOOKS_MAX: Final = 1_024
"""Entries looked at after one batch: about half a millisecond."""
REST_PARTS: Final = 8
"""After all entries were looked at, this part of the capacity is stored before they are looked at again."""


Seen = list[set[int]]
_MASK: Final = SHARDS - 1


def _nothing_seen() -> Seen:
    return [set() for _ in range(SHARDS)]


class Ghosts:
    """What was seen of one lane since its first kept gap. Time is counted in blocks stored.

    Seen token hashes lie in one set a turnover, the newest first; the oldest set is dropped at each turnover, so
    memory stays in proportion to the capacity. Each set is cut into pieces like a lane's maps, and dropped piece by
    piece: a capacity can be millions of blocks, and a set of 600,000 stops the loop for 25 ms when it grows.
    """

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._seen: list[Seen] = [_nothing_seen() for _ in range(TURNOVERS + 1)]
        self._dropped: Seen = []
        self._stored = 0
        self._turnovers = 0
        self._turned_at = 0
        self._suspects: Iterator[tuple[int, int, bool]] | None = None
        self._rest_until = 0

    def note_stored(self, token_hashes: Sequence[int], capacity: int) -> None:
        """These were announced just now."""
        self._stored += len(token_hashes)
        if self._stored - self._turned_at >= capacity:
            self._turned_at = self._stored
            self._turnovers += 1
            *kept, oldest = self._seen
            self._seen = [_nothing_seen(), *kept]
            self._dropped += oldest
        for token_hash in token_hashes:
            self._seen[0][token_hash & _MASK].add(token_hash)
        if self._dropped:
            del self._dropped[-1 - len(self._dropped) // 8 :]  # a share of them: turnovers may come faster than events

    def confirm(self, slot: int, token_hash: int, mirror: Mirror) -> None:
        """A store named this block as its parent: it is there, and so is all before it."""
        seen = self._seen[0]
        while token_hash and token_hash not in seen[token_hash & _MASK] and mirror.holds(slot, token_hash):
            seen[token_hash & _MASK].add(token_hash)
            token_hash = mirror.table.parent(token_hash)

    def surplus(self, slot: int, mirror: Mirror, capacity: int) -> list[int]:
        """Engine hashes to give up now, at most as many as the lane holds beyond `capacity`."""
        lane = self._lane
        over = lane.pairs + lane.extra_copies - capacity
        dropped: list[int] = []
        if over <= 0 or self._stored < self._rest_until:
            return dropped
        if self._suspects is None:
            self._suspects = self._entries()
        for _ in range(LOOKS_MAX):
            suspect = next(self._suspects, None)
            if suspect is None:
                self._suspects = None
                self._rest_until = self._stored + capacity // REST_PARTS
                break
            engine_hash, token_hash, islands = suspect
            if self._is_ghost(slot, engine_hash, token_hash, mirror, islands=islands):
                dropped.append(engine_hash)
                if len(dropped) == over:
                    break
        return dropped

    def _entries(self) -> Iterator[tuple[int, int, bool]]:
        """All entries twice, one piece of the map at a time: first to look for islands, then for what was not seen."""
        for islands in (True, False):
            for piece in self._lane.maps:
                for engine_hash, token_hash in list(piece.items()):
                    yield engine_hash, token_hash, islands

    def _is_ghost(self, slot: int, engine_hash: int, token_hash: int, mirror: Mirror, *, islands: bool) -> bool:
        lane = self._lane
        if lane.get(engine_hash) != token_hash or lane.announced(engine_hash) or lane.alias_count(token_hash):
            return False
        if islands:
            parent = mirror.table.parent(token_hash)
            return bool(parent) and not mirror.holds(slot, parent)
        return self._turnovers >= TURNOVERS and not any(token_hash in seen[token_hash & _MASK] for seen in self._seen)
