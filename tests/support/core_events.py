"""Engine events as they stand on the wire, built from the fields that vLLM documents."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BLOCK: Final = 4
"""Tokens in a block, unless a test says otherwise: small enough to write prompts out."""
TS: Final = 1_700_000_000.5
CLEARED: Final[dict[str, Any]] = {"type": "AllBlocksCleared"}
STORED_FIELDS: Final = (
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
)
"""Array positions 1 and up of `BlockStored`."""
REMOVED_FIELDS: Final = ("block_hashes", "medium", "group_idx")

_encode = msgspec.msgpack.Encoder().encode


def u32(token_ids: Iterable[int]) -> bytes:
    """Little-endian u32 image."""
    ids = tuple(token_ids)
    return struct.pack(f"<{len(ids)}I", *ids)


def stored(
    hashes: Sequence[int | bytes],
    token_ids: Iterable[Any] = (),
    parent: int | bytes | None = None,
    *,
    block_size: int = BLOCK,
    medium: str | None = "GPU",
    **fields: Any,  # noqa: ANN401  passed on as it is
) -> dict[str, Any]:
    """`BlockStored` in map form, with the fields every release writes."""
    return {
        "type": "BlockStored",
        "block_hashes": list(hashes),
        "parent_block_hash": parent,
        "token_ids": list(token_ids),
        "block_size": block_size,
        "lora_id": None,
        "medium": medium,
        "lora_name": None,
        **fields,
    }


def placeholder(hashes: Sequence[int | bytes], medium: str = "CPU", **fields: Any) -> dict[str, Any]:  # noqa: ANN401  passed on as it is
    """An offload event without tokens."""
    return stored(hashes, block_size=0, medium=medium, **fields)


def removed(*hashes: int | bytes, medium: str | None = "GPU", **fields: Any) -> dict[str, Any]:  # noqa: ANN401  passed on as it is
    """`BlockRemoved` in map form."""
    return {"type": "BlockRemoved", "block_hashes": list(hashes), "medium": medium, **fields}


def as_array(event: dict[str, Any], *, length: int | None = None) -> list[Any]:
    """The array form of a map event, optionally cut to `length` elements as older releases send it."""
    names = {"BlockStored": STORED_FIELDS, "BlockRemoved": REMOVED_FIELDS}.get(event["type"], ())
    return [event["type"], *(event.get(name) for name in names)][:length]


def payload(*events: object, ts: Any = TS, rank: Any = 0) -> bytes:  # noqa: ANN401  passed on as it is
    """A batch as MessagePack: `[ts, events, data_parallel_rank]`."""
    return _encode([ts, list(events), rank])


def prompt(blocks: int, start: int = 0) -> list[int]:
    """Token ids of so many blocks, each token different."""
    return list(range(start, start + blocks * BLOCK))
