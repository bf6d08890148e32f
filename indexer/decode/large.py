"""Batches so large that applying one at once would hold the event loop: decoded and handed out in pieces. Pure.

A batch of a scheduler's step has some hundred blocks. What is far larger comes from a restart of offload tiers, from
another publisher or from no engine at all, and lookups must not wait for it (DESIGN.md section 4). Events are decoded
one by one, in order, each as `vllm.decode` would; a store or removal of many blocks is handed out as several of
consecutive blocks: the second part's parent is the first part's last block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from indexer.decode.envelope import UNDECODABLE, raw_batch
from indexer.decode.vllm import decode, event_alone, events_are_arrays, typed_events
from indexer.model import BlocksRemoved, BlocksStored, Event, Skipped, Tier
from schemas.engine_events import ClearedArray, ClearedMap, RemovedArray, RemovedMap, StoredArray, StoredMap

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LARGE_BYTES: Final = 64 * 2**10
"""Payloads beyond this are taken in pieces. Smaller ones hold some 700 blocks at the most usual block size."""
PIECE_BYTES: Final = 32 * 2**10
"""Of encoded events in a piece."""
PIECE_BLOCKS: Final = 512
"""In a piece, about a millisecond's work."""
EVENT_BYTES_MAX: Final = 8 * 2**20
"""Of one encoded event, which can only be decoded in one step. A prompt of a million tokens takes less."""


class LargeBatch(NamedTuple):
    """`pieces` can be gone through once."""

    ts: float
    pieces: Iterator[list[Event]]
    dp_rank: int | None


_map_event: Final = msgspec.msgpack.Decoder(StoredMap | RemovedMap | ClearedMap)
_array_event: Final = msgspec.msgpack.Decoder(StoredArray | RemovedArray | ClearedArray)
_TOO_LARGE: Final = Skipped("event_too_large", suspect=True)


def decode_large(payload: bytes) -> LargeBatch | None:
    """The batch in `payload`, in pieces; None when the bytes are no event batch at all."""
    try:
        raw = raw_batch(payload)
    except UNDECODABLE:
        unusual = decode(payload)  # an envelope in another form, as the tolerant way takes it
        return None if unusual is None else LargeBatch(unusual.ts, _cut(unusual.events), unusual.dp_rank)
    if raw is None:
        return None
    decoder = _array_event if events_are_arrays(payload) else _map_event
    return LargeBatch(raw.ts, _pieces(raw.events, decoder), raw.dp_rank)


def _pieces(raws: Sequence[msgspec.Raw], decoder: msgspec.msgpack.Decoder[Any]) -> Iterator[list[Event]]:
    typed: list[Any] = []
    events: list[Event] = []
    size = 0
    for raw in raws:
        try:
            typed.append(decoder.decode(_bounded(raw)))
        except UNDECODABLE:
            events += typed_events(typed)
            typed = []
            events.append(_alone(raw))
        size += len(raw)
        if size >= PIECE_BYTES:
            yield from _cut(events + typed_events(typed))
            typed, events, size = [], [], 0
    yield from _cut(events + typed_events(typed))


def _bounded(raw: msgspec.Raw) -> msgspec.Raw:
    if len(raw) > EVENT_BYTES_MAX:
        raise msgspec.ValidationError("too large")
    return raw


def _alone(raw: msgspec.Raw) -> Event:
    """One event that does not fit the usual form."""
    return _TOO_LARGE if len(raw) > EVENT_BYTES_MAX else event_alone(raw)


def _cut(events: Sequence[Event]) -> Iterator[list[Event]]:
    """The same events in lists of so many blocks that each takes a slice's time."""
    piece: list[Event] = []
    blocks = 0
    for event in events:
        for part in _parts(event):
            count = len(part.hashes) if isinstance(part, BlocksStored | BlocksRemoved) else 1
            if piece and blocks + count > PIECE_BLOCKS:
                yield piece
                piece, blocks = [], 0
            piece.append(part)
            blocks += count
    if piece:
        yield piece


def _parts(event: Event) -> Iterator[Event]:
    if not isinstance(event, BlocksStored | BlocksRemoved) or len(event.hashes) <= PIECE_BLOCKS:
        yield event
        return
    if isinstance(event, BlocksStored) and _is_indivisible(event):
        yield event
        return
    for first in range(0, len(event.hashes), PIECE_BLOCKS):
        if isinstance(event, BlocksStored):
            yield msgspec.structs.replace(event.part(first, first + PIECE_BLOCKS), continues=first > 0)
        else:
            hashes = event.hashes[first : first + PIECE_BLOCKS]
            yield msgspec.structs.replace(event, hashes=hashes, events=0 if first else event.events)


def _is_indivisible(event: BlocksStored) -> bool:
    """Whether parts would not mean what the whole means.

    A store that refers to itself is refused as a whole. And outside GPU memory the last block that is known says how
    all before it are placed (plan.py), which the parts before it could not see.
    """
    named = set(event.hashes)
    refers_to_itself = len(named) != len(event.hashes) or event.parent in named
    return refers_to_itself or (event.tier is not Tier.GPU and event.tokens_ok and event.is_dense)
