"""What is promised of a decoded batch of events, and when two ways of decoding mean the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.model import AllCleared, BlocksRemoved, BlocksStored, Skipped

if TYPE_CHECKING:
    from indexer.model import EventBatch

EVENT_KINDS = (BlocksStored, BlocksRemoved, AllCleared, Skipped)


def check(batch: EventBatch | None) -> None:
    """What is promised of every decoded batch: complete values of the promised types."""
    if batch is None:
        return
    assert type(batch.ts) is float
    assert batch.dp_rank is None or type(batch.dp_rank) is int
    for event in batch.events:
        assert isinstance(event, EVENT_KINDS)
        if isinstance(event, BlocksStored | BlocksRemoved):
            assert all(type(value) is int and 0 <= value < 2**64 for value in event.hashes)
            assert type(event.group) is int
        if isinstance(event, BlocksStored):
            assert event.block_size >= 0
            assert event.tokens_ok or not event.tokens


def digest(batch: EventBatch | None) -> object:
    """A batch with its removals taken apart: the two paths need not join the same ones."""
    if batch is None:
        return None
    out: list[object] = []
    for event in batch.events:
        if isinstance(event, BlocksRemoved):
            out += [(value, event.tier, event.group) for value in event.hashes]
        else:
            out.append(repr(event))
    return repr(batch.ts), out, batch.dp_rank
