"""What an engine held after each of its messages, by its own events."""

from __future__ import annotations

from typing import Any

import pytest

from api.demo.trace import Probe, TraceMessage
from loadtest.trust.caches import Cache, Caches, Moment
from tests.support.core_events import payload

TOKENS = tuple(range(48))
CLEARED = {"type": "AllBlocksCleared"}


def stored(*hashes: int, first: int = 0, parent: int | None = None) -> dict[str, Any]:
    """Blocks of `TOKENS`, from block number `first` on."""
    tokens = list(TOKENS[first * 16 : (first + len(hashes)) * 16])
    return {"type": "BlockStored", "block_hashes": list(hashes), "parent_block_hash": parent, "token_ids": tokens}


def removed(*hashes: int) -> dict[str, Any]:
    """One copy of each."""
    return {"type": "BlockRemoved", "block_hashes": list(hashes)}


def held(cache: Cache, last: int) -> list[int]:
    """Of a prompt of three blocks and a token, after each message up to `last`; before the first one to begin with."""
    return [cache.held((*TOKENS, 7), sequence) for sequence in range(-1, last + 1)]


def test_what_is_held_after_each_message() -> None:
    """The run from the start of the prompt: a block in the middle that goes and comes takes what follows with it."""
    cache = Cache()
    for sequence, events in enumerate(
        [[stored(1, 2)], [stored(3, first=2, parent=2)], [removed(2)], [], [stored(2, first=1, parent=1)], [removed(1)]]
    ):
        cache.take(sequence, events)

    assert [0, 32, 48, 16, 16, 48, 0] == held(cache, 5)
    assert [2, 3, 2, 2, 3, 2] == cache.sizes


def test_a_block_is_gone_with_its_last_copy() -> None:
    """Each announcement is one more."""
    cache = Cache()
    for sequence, events in enumerate([[stored(1), stored(1)], [removed(1)], [removed(1)], [stored(1), removed(1)]]):
        cache.take(sequence, events)

    assert [0, 16, 16, 0, 0] == held(cache, 3)


def test_a_clear_takes_all_that_came_before_it() -> None:
    """What the same message stores after it is there."""
    cache = Cache()
    cache.take(0, [stored(1, 2)])
    cache.take(1, [CLEARED, stored(1)])
    cache.take(2, [stored(2, first=1, parent=1), CLEARED])

    assert [0, 32, 16, 0] == held(cache, 2)


@pytest.mark.parametrize(
    ("messages", "first"),
    [
        ([[stored(1, 2)], [stored(1)], [stored(1, 2, 3)], [stored(1, 2)]], 2),
        ([[stored(1, 2)], [removed(2)], [stored(2, first=1)], [stored(1, 2)]], None),
        ([[stored(1, 2)], [CLEARED, stored(1, 2)]], None),
        ([[stored(1, 2)], [stored(1), stored(2, first=1, parent=1)]], None),
    ],
    ids=["two in one store", "it takes blocks back", "they were cleared", "one at a time"],
)
def test_blocks_computed_again_that_are_held(messages: list[list[dict[str, Any]]], first: int | None) -> None:
    """An engine that takes nothing back shows with several in one store that they were gone."""
    cache = Cache()
    for sequence, events in enumerate(messages):
        cache.take(sequence, events)

    assert first == cache.computed_again


def test_the_last_token_is_computed_always() -> None:
    """A prompt that is held to its end counts a block less; one of nothing counts nothing."""
    cache = Cache()
    cache.take(0, [stored(1, 2)])

    assert [0, 0, 16] == [cache.held(TOKENS[:length], 0) for length in (0, 16, 32)]


def test_a_recorded_engine_that_says_otherwise_is_told_of() -> None:
    """No figure rests on a truth of ours that the engine's own answers contradict."""
    message = TraceMessage(0, 0, 0, b"", bytes(8), payload(stored(1)))
    caches = Caches([message])
    prompts = [TOKENS]

    caches.checked([Probe(1, ((0, 0),), 0, (16,), (16,))], prompts)
    with pytest.raises(AssertionError, match="16 by its events, the engine says 32"):
        caches.checked([Probe(1, ((0, 0),), 0, (32,), (32,))], prompts)
    assert (0, 16) == (caches.held(0, Moment(0, -1), TOKENS), caches.held(0, Moment(0, 0), TOKENS))
    assert (0, 1) == (caches.size(0, Moment(0, -1)), caches.size(0, Moment(0, 0)))
