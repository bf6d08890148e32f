"""Batches as an engine writes them, read back by the project's own decoder."""

from indexer.decode.vllm import decode
from indexer.model import BlocksRemoved, BlocksStored, Tier
from loadtest.content import BLOCK, Document
from loadtest.shapes import Shape, ring_documents, stream
from loadtest.wire import batches, payload, removals, stores

SYSTEM = Document(key=1, blocks=4)
TURN = Document(key=2, blocks=5, parent=SYSTEM)


def events(batch: bytes) -> list[object]:
    """What the decoder makes of it."""
    decoded = decode(batch)
    assert decoded is not None
    return list(decoded.events)


def test_a_document_is_announced_in_pieces_that_follow_each_other() -> None:
    """Tokens, hashes and parents are those of the document."""
    read = events(payload(list(stores(TURN, 2))))
    hashes = TURN.hashes()

    assert [2, 2, 1] == [len(event.hashes) for event in read if isinstance(event, BlocksStored)]
    stored = [event for event in read if isinstance(event, BlocksStored)]
    assert [SYSTEM.hashes()[-1], hashes[1], hashes[3]] == [event.parent for event in stored]
    assert TURN.tokens().astype("<u4").tobytes() == b"".join(event.tokens for event in stored)
    assert {(BLOCK, Tier.GPU, "full_attention", None)} == {
        (event.block_size, event.tier, event.kind, event.extra_keys) for event in stored
    }


def test_a_document_goes_tail_first() -> None:
    """One hash an event; the decoder joins them."""
    (gone,) = events(payload(list(removals(SYSTEM))))

    assert isinstance(gone, BlocksRemoved)
    assert tuple(reversed(SYSTEM.hashes())) == gone.hashes
    assert 4 == gone.events


def test_a_batch_removes_before_it_stores() -> None:
    """So many of each, and what remains follows."""
    kinds = [
        [type(event).__name__ for event in events(batch)]
        for batch in batches(stores(SYSTEM, 2), removals(TURN), stores_a_batch=1, removals_a_batch=2)
    ]

    assert [["BlocksRemoved", "BlocksStored"]] * 2 + [["BlocksRemoved"]] == kinds


def test_a_shape_is_what_its_batches_look_like() -> None:
    """Events of several documents under way, and with removals as many of the oldest blocks."""
    shape = Shape(8, events_per_batch=4, removals=True)
    ring = ring_documents(shape, 0, 0, 512)
    coming = ring_documents(shape, 0, len(ring), 512)
    first = events(next(iter(stream(shape, coming, [*ring, *coming]))))

    stored = [event for event in first if isinstance(event, BlocksStored)]
    removed = [event for event in first if isinstance(event, BlocksRemoved)]
    assert [8] * 4 == [len(event.hashes) for event in stored]
    assert [None] * 4 == [event.parent for event in stored]
    assert 32 == sum(len(event.hashes) for event in removed)
    assert ring[0].hashes()[-1] == removed[0].hashes[0]


def test_every_second_document_is_held_twice() -> None:
    """Two engines of a pair share half of what they store; other pairs nothing."""
    shape = Shape(8)
    keys = [{each.key for each in ring_documents(shape, engine, 0, 1_024)} for engine in range(3)]

    assert 8 == len(keys[0])
    assert 4 == len(keys[0] & keys[1])
    assert not keys[0] & keys[2]
