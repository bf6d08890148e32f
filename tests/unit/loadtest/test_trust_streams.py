"""What becomes of messages on their way."""

from __future__ import annotations

from typing import Any

import msgspec

from api.demo.trace import TraceMessage
from loadtest.trust.streams import altered, elsewhere_without_removals, losses, without_removals, wrong_block_size
from tests.support.core_events import payload, prompt, removed, stored

STORED = stored([1], prompt(1))


def message(pod: int, sequence: int) -> TraceMessage:
    """One that stores and removes."""
    return TraceMessage(pod, 0, 0, b"", sequence.to_bytes(8, "big"), payload(STORED, removed(2)))


def events(of: TraceMessage) -> list[dict[str, Any]]:
    """As they are sent."""
    found: list[dict[str, Any]] = msgspec.msgpack.decode(of.payload)[1]
    return found


def test_losses_are_the_same_for_a_seed() -> None:
    """About the share that is asked for; none at 0."""
    messages = [message(0, n) for n in range(2_000)]

    lost = losses(messages, 0.05, 1)
    assert lost == losses(messages, 0.05, 1) != losses(messages, 0.05, 2)
    assert 50 < len(lost) < 150
    assert not losses(messages, 0.0, 1)


def test_only_the_engine_that_lies_is_altered() -> None:
    """Numbers, stamps and what it stores stay."""
    before = [message(0, 3), message(1, 4)]
    honest, liar = altered(before, {1}, without_removals)

    assert before[0] == honest
    assert (4, ["BlockStored"]) == (liar.sequence, [event["type"] for event in events(liar)])
    assert msgspec.msgpack.decode(before[1].payload)[0] == msgspec.msgpack.decode(liar.payload)[0]


def test_another_tier() -> None:
    """Stores there, and no removals."""
    (liar,) = altered([message(0, 0)], {0}, elsewhere_without_removals("STORAGE"))

    assert [("BlockStored", "STORAGE")] == [(event["type"], event["medium"]) for event in events(liar)]


def test_a_wrong_block_size_now_and_then() -> None:
    """In stores only."""
    messages = altered([message(0, n) for n in range(8)], {0}, wrong_block_size(32, 3, 1))

    sizes = [event["block_size"] for each in messages for event in events(each) if event["type"] == "BlockStored"]
    assert [4, 32, 4, 4, 32, 4, 4, 32] == sizes
