"""What an engine's metrics say of its cache: `vllm:cache_config_info`, `sglang:cache_config_info`. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from indexer.exposition import samples

VLLM: Final = "vllm:cache_config_info"
SGLANG: Final = "sglang:cache_config_info"
_NUMBER_MAX: Final = 2**32
_DIGITS_MAX: Final = 12


class CacheConfig(msgspec.Struct, frozen=True):
    """None: not told. `block_size` is the smallest group's where a model has several."""

    block_size: int | None = None
    num_gpu_blocks: int | None = None
    prefix_caching: bool | None = None


def cache_config(text: str, dp_rank: int = 0) -> CacheConfig:
    """Of the rank where ranks are told apart (label `engine`), else the first that is there."""
    found = list(samples(text, (VLLM, SGLANG)))
    mine = [sample for sample in found if sample.labels.get("engine") == str(dp_rank)] or found
    if not mine:
        return CacheConfig()
    name, labels, _ = mine[0]
    size, blocks = ("block_size", "num_gpu_blocks") if name == VLLM else ("page_size", "num_pages")
    return CacheConfig(
        _number(labels.get(size)),
        _number(labels.get(blocks)),
        {"True": True, "False": False}.get(labels.get("enable_prefix_caching", "")),
    )


def _number(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > _DIGITS_MAX:
        return None
    number = int(text)
    return number if 0 < number < _NUMBER_MAX else None
