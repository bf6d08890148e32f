"""Batches for tests of collect: only number, stamp and size matter there, so they carry no events."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from indexer.model import RawBatch

LIFE_S = 1_000_000.0
"""Stamps of different lives of an engine lie so far apart."""


def payload(number: int, life: int = 0, *, rank: int | None = 0, size_bytes: int = 0) -> bytes:
    """An envelope without events, stamped so that (number, life) is unique; `size_bytes` of padding behind the rank."""
    return msgspec.msgpack.encode([life * LIFE_S + number + 0.5, [], rank, bytes(size_bytes)])


def batch(number: int, life: int = 0, *, topic: bytes = b"", size_bytes: int = 0) -> RawBatch:
    """What such a message is once read."""
    return RawBatch(topic, number, payload(number, life, size_bytes=size_bytes))


def late(messages: Iterable[RawBatch]) -> list[RawBatch]:
    """The same, as replies of a replay are once read."""
    return [message._replace(late=True) for message in messages]


def batches(first: int, last: int, life: int = 0) -> list[RawBatch]:
    """Batches `first..last`, both included."""
    return [batch(number, life) for number in range(first, last + 1)]
