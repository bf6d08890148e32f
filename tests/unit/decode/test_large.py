"""Large batches in pieces: the same events in order, none of them large, and one bad event costs only itself."""

from __future__ import annotations

import msgspec
import pytest

from indexer.decode.large import EVENT_BYTES_MAX, PIECE_BLOCKS, LargeBatch, decode_large
from indexer.decode.vllm import EVENTS_MAX, decode
from indexer.model import AllCleared, BlocksRemoved, BlocksStored, Event, Skipped
from tests.support.core_events import CLEARED, TS, as_array, payload, removed, stored

BLOCKS = 3 * PIECE_BLOCKS + 7


def pieces(raw: bytes) -> list[list[Event]]:
    """All pieces of a payload."""
    batch = decode_large(raw)
    assert isinstance(batch, LargeBatch)
    return list(batch.pieces)


def blocks(piece: list[Event]) -> int:
    """Blocks named in a piece."""
    return sum(len(event.hashes) for event in piece if isinstance(event, BlocksStored | BlocksRemoved))


@pytest.mark.parametrize("arrays", [False, True])
def test_a_large_store_comes_in_parts_that_follow_each_other(arrays: bool) -> None:
    """Each part's parent is the last block of the part before it."""
    keys: list[object] = [["a"], *[None] * (BLOCKS - 1)]
    event = stored(range(1, BLOCKS + 1), range(BLOCKS * 4), 99_999, extra_keys=keys)
    whole = decode(payload(event))
    parts = pieces(payload(as_array(event) if arrays else event, rank=3))

    assert whole is not None
    assert [512, 512, 512, 7] == [blocks(piece) for piece in parts]
    stores = [part for (part,) in parts if isinstance(part, BlocksStored)]
    assert [99_999, 512, 1024, 1536] == [part.parent for part in stores]
    assert [False, True, True, True] == [part.continues for part in stores]
    (one,) = whole.events
    assert isinstance(one, BlocksStored)
    assert one.hashes == tuple(h for part in stores for h in part.hashes)
    assert one.tokens == b"".join(part.tokens for part in stores)
    assert one.extra_keys == tuple(k for part in stores for k in part.extra_keys or ())
    assert all(part.tokens_ok for part in stores)


def test_a_sparse_store_has_no_dense_part() -> None:
    """Tokens for half of the blocks say of no part which blocks it has."""
    event = stored(range(1, 2 * PIECE_BLOCKS + 1), range(PIECE_BLOCKS * 4))

    assert [False, False] == [part.tokens_ok for (part,) in pieces(payload(event)) if isinstance(part, BlocksStored)]


@pytest.mark.parametrize(
    "event",
    [
        stored([*range(1, BLOCKS), 1], range(BLOCKS * 4)),
        stored(range(1, BLOCKS + 1), range(BLOCKS * 4), parent=BLOCKS),
        stored(range(1, BLOCKS + 1), range(BLOCKS * 4), medium="CPU"),
    ],
    ids=["a hash twice", "its own parent", "tokens outside GPU memory"],
)
def test_what_parts_would_not_mean_stays_whole(event: dict[str, object]) -> None:
    """Refused as a whole, or placed by its last known block."""
    assert [BLOCKS] == [blocks(piece) for piece in pieces(payload(event))]


def test_placeholders_outside_gpu_memory_come_in_parts() -> None:
    """Each is placed by its own hash."""
    assert 4 == len(pieces(payload(stored(range(1, BLOCKS + 1), [], medium="CPU"))))


@pytest.mark.parametrize("kind", ["BlockStored", "BlockRemoved", "New"])
def test_an_event_too_large_to_decode_is_skipped_unread(kind: str) -> None:
    """It alone, and the source is suspect."""
    huge = {**stored([7], range(4)), "type": kind, "pad": bytes(EVENT_BYTES_MAX)}
    events = [event for piece in pieces(payload(stored([1], range(4)), huge, removed(1))) for event in piece]

    assert [BlocksStored, Skipped, BlocksRemoved] == [type(event) for event in events]
    assert Skipped("event_too_large", suspect=True) == events[1]


@pytest.mark.parametrize("events", [[], [stored([1], range(4)), removed(1)]])
def test_envelopes_in_other_forms_are_taken(events: list[object]) -> None:
    """As small ones are: a long array, more members, names that are no text."""
    encode = msgspec.msgpack.encode
    plain = payload(*events)
    longer = b"\xdc\x00\x03" + plain[1:]
    for raw in (plain, longer, encode([TS, events, 0, "more"]), encode({"ts": TS, "events": events, 5: 1})):
        assert decode(raw).events == [event for piece in pieces(raw) for event in piece]  # type: ignore[union-attr]


def test_removals_are_counted_once() -> None:
    """One event of many hashes, and many events of one."""
    one, *others = [event for piece in pieces(payload(removed(*range(BLOCKS)))) for event in piece]
    many = pieces(payload(*[removed(number) for number in range(BLOCKS)]))

    assert isinstance(one, BlocksRemoved)
    assert [1, 0, 0, 0] == [event.events for event in [one, *others] if isinstance(event, BlocksRemoved)]
    assert BLOCKS == sum(event.events for piece in many for event in piece if isinstance(event, BlocksRemoved))
    assert BLOCKS == sum(map(blocks, many))
    assert PIECE_BLOCKS >= max(map(blocks, many))


def test_one_bad_event_costs_only_itself() -> None:
    """In order, among good ones; also one that only the tolerant way can read, and one that nothing can."""
    odd = {**stored([5], range(4)), "lora_id": 2**70 // 2**7, "medium": "gpu"}
    raw = payload(stored([1], range(4)), {"type": "BlockStored"}, odd, {"type": "New"}, CLEARED, 7, removed(1))
    (events,) = pieces(raw)

    kinds = [BlocksStored, Skipped, BlocksStored, Skipped, AllCleared, Skipped, BlocksRemoved]
    assert kinds == [type(event) for event in events]
    assert decode(raw).events == events  # type: ignore[union-attr]


def test_a_text_that_is_none_costs_its_event() -> None:
    """The batch around it is whole."""
    raw = payload(stored([1], range(4)), stored([2], range(4), medium="XYZ"), removed(1)).replace(
        b"XYZ", b"\xff\xfe\xfd"
    )
    (events,) = pieces(raw)

    assert [BlocksStored, Skipped, BlocksRemoved] == [type(event) for event in events]


def test_what_is_beside_the_events() -> None:
    """Time and rank, from arrays and maps."""
    encode = msgspec.msgpack.encode
    for raw in (payload(rank=2), encode({"ts": TS, "events": [], "data_parallel_rank": 2})):
        batch = decode_large(raw)
        assert batch is not None
        assert (TS, 2, []) == (batch.ts, batch.dp_rank, list(batch.pieces))
    odd = decode_large(payload(rank="x"))
    assert odd is not None
    assert odd.dp_rank is None


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"\x93", b"\xff" * 40, msgspec.msgpack.encode([1.0]), msgspec.msgpack.encode([1.0, {}, 0])),
        msgspec.msgpack.encode([None, [], 0]),
        msgspec.msgpack.encode([1.0, [None] * (EVENTS_MAX + 1), 0]),
    ],
)
def test_no_batch_at_all(raw: bytes) -> None:
    """Including one of nothing but countless crumbs."""
    assert decode_large(raw) is None
