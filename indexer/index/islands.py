"""Islands: entries from before a kept gap whose parent the source does not hold. Pure.

After a gap some of what is believed is false (lost removals), and an engine that evicts tails first leaves such
ghosts without a parent sooner or later. No walk can reach them, so dropping them costs no answer; dropping the
*oldest* instead would lose the hottest prefixes (design.md section 2, measured). Done one shard at a time, only while
the source holds more than it can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from indexer.index.mirror import Mirror
    from indexer.index.reverse_map import Lane
    from indexer.index.source import SourceIndex


def island_slice(source: SourceIndex, lane: Lane, mirror: Mirror) -> Iterator[None]:
    """Drop islands of `lane`, one of its shards a step. The caller ends it when the generation ends."""
    for shard in range(len(lane.maps)):
        if not lane.maps or lane.fresh is None:
            return
        fresh = lane.fresh[shard]
        for engine_hash, token_hash in list(lane.maps[shard].items()):
            if engine_hash in fresh or token_hash in lane.aliases:
                continue
            parent = mirror.table.parent(token_hash)
            if parent and not mirror.holds(source.slot, parent):
                freed, _ = source.map.drop(lane, (engine_hash,))
                mirror.remove(source.slot, lane.number, freed)
                source.counters["ghosts_dropped"] += 1
        yield
