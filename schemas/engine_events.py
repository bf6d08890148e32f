"""The engines' wire structs, in both shapes vLLM has used.

Arrays up to 0.23, maps from 0.24; the envelope is an array of three in both. These structs are the *fast path* only:
a payload that does not fit them entirely is decoded again, event by event, by the tolerant path of
`indexer/decode/vllm.py`. Fields that carry no meaning for an index (`session_id`) are left out of the map forms and
are skipped unread.
"""

from __future__ import annotations

from typing import Any

import msgspec


class StoredMap(msgspec.Struct, tag="BlockStored", tag_field="type", gc=False):
    """`BlockStored` as a map (0.24 and later; SGLang 0.5.20 and later leaves `lora_name` out)."""

    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[list[Any] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    lookahead_token_ids: list[list[int]] | None = None
    cache_salt: str | None = None


class RemovedMap(msgspec.Struct, tag="BlockRemoved", tag_field="type", gc=False):
    """`BlockRemoved` as a map."""

    block_hashes: list[int | bytes]
    medium: str | None = None
    group_idx: int | None = None
    locality: str | None = None


class ClearedMap(msgspec.Struct, tag="AllBlocksCleared", tag_field="type", gc=False):
    """`AllBlocksCleared` as a map."""


class StoredArray(msgspec.Struct, tag="BlockStored", array_like=True, gc=False):
    """`BlockStored` as an array: element 0 is the tag, later versions appended fields."""

    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[list[Any] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None


class RemovedArray(msgspec.Struct, tag="BlockRemoved", array_like=True, gc=False):
    """`BlockRemoved` as an array."""

    block_hashes: list[int | bytes]
    medium: str | None = None
    group_idx: int | None = None


class ClearedArray(msgspec.Struct, tag="AllBlocksCleared", array_like=True, gc=False):
    """`AllBlocksCleared` as an array of one."""


class MapBatch(msgspec.Struct, array_like=True, gc=False):
    """The envelope with events as maps.

    `ts` is float seconds; Mooncake's integer milliseconds take the tolerant path.
    """

    ts: float
    events: list[StoredMap | RemovedMap | ClearedMap]
    data_parallel_rank: int | None = None


class ArrayBatch(msgspec.Struct, array_like=True, gc=False):
    """The envelope with events as arrays."""

    ts: float
    events: list[StoredArray | RemovedArray | ClearedArray]
    data_parallel_rank: int | None = None
