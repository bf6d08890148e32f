"""What engines' own metrics say of their caches, read now and then where `events.engine_metrics_s` is set.

An answer fills in a capacity that nobody gave; what it contradicts is a remark, and changes nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from indexer.doctor.cache_config import CacheConfig, cache_config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from indexer.index.source import SourceIndex

REMARKS: Final = ("engine_metrics", "engine_caching", "engine_blocks", "engine_block_size")
"""Keys of a source's warnings that are this part's."""


async def take_facts(sources: Sequence[SourceIndex], content: bytes) -> None:
    """What an engine's answer says of these, which are its ranks."""
    ranks = [source.descriptor.dp_rank for source in sources]
    told = await asyncio.to_thread(_read, content, ranks)  # megabytes of them hold the loop for too long
    for source, said in zip(sources, told, strict=True):
        source.engine_blocks = said.num_gpu_blocks
        _remark(source, contradictions(source, said))


def note_unread(sources: Sequence[SourceIndex], address: str, why: str) -> None:
    """Nothing could be read of these."""
    for source in sources:
        _remark(source, {"engine_metrics": f"its metrics at {address} could not be read: {why}"})


def contradictions(source: SourceIndex, said: CacheConfig) -> dict[str, str]:
    """What an engine says otherwise than its registration and its events."""
    told, blocks, size = source.descriptor.blocks_total, said.num_gpu_blocks, said.block_size
    out = {}
    if said.prefix_caching is False:
        out["engine_caching"] = "its metrics say that prefix caching is off: it holds nothing, and announces nothing"
    if None not in {told, blocks} and told != blocks:
        out["engine_blocks"] = f"its blocks_total is {told}, and its metrics say {blocks}"
    if source.denies_block_size(size):
        out["engine_block_size"] = (
            f"its events have blocks of {source.block_size} tokens, its metrics say {size}: another engine's address?"
        )
    return out


def _remark(source: SourceIndex, found: dict[str, str]) -> None:
    for name in REMARKS:
        source.warnings.pop(name, None)
    source.warnings.update(found)


def _read(content: bytes, ranks: Sequence[int]) -> list[CacheConfig]:
    text = content.decode("utf-8", "replace")
    return [cache_config(text, rank) for rank in ranks]
