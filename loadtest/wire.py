"""Event batches as vLLM 0.32 writes them for a plain full-attention model: maps, one hash a removal. Pure.

Field for field what the recorded streams in tests/golden/traces hold, `extra_keys` (null for every block) included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from loadtest.content import BLOCK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from loadtest.content import Document

Event = dict[str, object]

ENGINE_TS: Final = 1_700_000_000.5
"""The engine's clock in every batch: only its identity counts."""

_encode = msgspec.msgpack.Encoder().encode


def stored(hashes: Sequence[int], parent: int | None, token_ids: Sequence[int]) -> Event:
    """`BlockStored`."""
    return {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": token_ids,
        "block_size": BLOCK,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [None] * len(hashes),
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }


def removed(engine_hash: int) -> Event:
    """`BlockRemoved`, one hash an event: so GPU pools send them."""
    return {"type": "BlockRemoved", "block_hashes": [engine_hash], "medium": "GPU", "group_idx": 0}


def payload(events: Sequence[Event]) -> bytes:
    """One batch."""
    return _encode([ENGINE_TS, events, 0])


def stores(document: Document, blocks_per_event: int) -> Iterator[Event]:
    """The events by which an engine announces a document, in order."""
    hashes, parent = document.hashes(), document.parent_hash()
    token_ids: list[int] = document.tokens().tolist()
    for start in range(0, len(hashes), blocks_per_event):
        end = min(start + blocks_per_event, len(hashes))
        yield stored(hashes[start:end], parent, token_ids[start * BLOCK : end * BLOCK])
        parent = hashes[end - 1]


def removals(document: Document) -> Iterator[Event]:
    """The events by which it goes: the last block first, as engines free them."""
    return (removed(engine_hash) for engine_hash in reversed(document.hashes()))


def batches(
    stored_events: Iterable[Event], removed_events: Iterable[Event], *, stores_a_batch: int, removals_a_batch: int
) -> Iterator[bytes]:
    """Payloads with so many stores and removals each, removals first: an engine takes a block before it fills it.

    What remains of one kind follows alone.
    """
    coming, going = iter(stored_events), iter(removed_events)
    while True:
        gone = [event for _, event in zip(range(removals_a_batch), going, strict=False)]
        come = [event for _, event in zip(range(stores_a_batch), coming, strict=False)]
        if not come and not gone:
            return
        yield payload(gone + come)
