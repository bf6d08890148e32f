"""Decoded batches, for tests that hold both decode paths to the same meaning."""

from __future__ import annotations

from typing import Any

from indexer.decode.vllm import decode
from indexer.model import BlocksRemoved, Event
from tests.support.core_events import payload


def one(*events: object, path: Any = decode) -> Event:  # noqa: ANN401  either path
    """The only event of a batch."""
    batch = path(payload(*events))
    assert batch is not None
    (event,) = batch.events
    return event


def flat(events: list[Event]) -> list[object]:
    """Events with removals taken apart, as the two paths may join neighbours or not."""
    out: list[object] = []
    for event in events:
        if isinstance(event, BlocksRemoved):
            out += [(value, event.tier, event.group) for value in event.hashes]
        else:
            out.append(event)
    return out
