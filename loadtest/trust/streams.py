"""What becomes of an engine's messages on their way: lost ones, and words that are not true. Pure.

A change takes the message's place in its stream: numbers and time stamps stay.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from api.demo.trace import TraceMessage

Events = list[dict[str, Any]]


def losses(messages: Sequence[TraceMessage], rate: float, seed: int | str) -> frozenset[int]:
    """Which of them are lost, by their place in the recording: always the same ones for a seed."""
    draw = random.Random(seed)
    return frozenset(number for number in range(len(messages)) if draw.random() < rate)


def altered(
    messages: Sequence[TraceMessage], pods: Container[int], change: Callable[[int, Events], Events]
) -> list[TraceMessage]:
    """The recording, where these engines' events become what `change` makes of them, told the message's sequence."""
    return [_altered(each, change) if each.pod in pods else each for each in messages]


def _altered(message: TraceMessage, change: Callable[[int, Events], Events]) -> TraceMessage:
    stamp, events, rank = msgspec.msgpack.decode(message.payload)
    payload = msgspec.msgpack.encode([stamp, change(message.sequence, events), rank])
    return msgspec.structs.replace(message, payload=payload)


def without_removals(_: int, events: Events) -> Events:
    """A tier whose producer announces no removals."""
    return [event for event in events if event["type"] != "BlockRemoved"]


def elsewhere_without_removals(medium: str) -> Callable[[int, Events], Events]:
    """The same, of another tier than GPU memory."""

    def change(sequence: int, events: Events) -> Events:
        return [{**event, "medium": medium} for event in without_removals(sequence, events)]

    return change


def wrong_block_size(size: int, every: int, first: int = 0) -> Callable[[int, Events], Events]:
    """Stores of every so many messages, from `first` on, name a block size that their tokens do not have."""

    def change(sequence: int, events: Events) -> Events:
        if sequence < first or (sequence - first) % every:
            return events
        return [{**event, "block_size": size} if event["type"] == "BlockStored" else event for event in events]

    return change
