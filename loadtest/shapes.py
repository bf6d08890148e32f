"""Streams of batches of one shape, for measuring ingest. Pure and seeded.

Engines hold a ring of documents. A batch stores one event of each of several documents under way; with removals, as
many of the oldest blocks go in the same batch, one hash an event. Every second document is held by a second engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from loadtest.traffic import document
from loadtest.wire import payload, removals, stores

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loadtest.content import Document
    from loadtest.wire import Event

DOCUMENT_BLOCKS: Final = 128
"""At least; a document of larger events is one event."""
_KIND: Final = 3_072


@dataclass(frozen=True, slots=True)
class Shape:
    """What a batch looks like."""

    blocks_per_event: int
    events_per_batch: int = 1
    removals: bool = False

    @property
    def name(self) -> str:
        """As in the tables."""
        going = ", as many removed" if self.removals else ""
        return f"{self.events_per_batch} × {self.blocks_per_event} blocks{going}"

    @property
    def document_blocks(self) -> int:
        """Length of every document."""
        return max(DOCUMENT_BLOCKS, self.blocks_per_event)


def ring_documents(shape: Shape, engine: int, first: int, blocks: int) -> list[Document]:
    """Documents that an engine stores one after the other, from the `first` on, for at least so many blocks.

    Whole groups of those that are under way at once.
    """
    size, group = shape.document_blocks, shape.events_per_batch
    count = -(-blocks // (size * group)) * group
    return [
        document(_KIND + (engine & ~1 if index % 2 == 0 else engine), index, size)
        for index in range(first, first + count)
    ]


def stream(shape: Shape, coming: Sequence[Document], going: Sequence[Document] = ()) -> Iterator[bytes]:
    """The batches that store `coming`; with them go `going`, oldest first."""
    leaving: Iterator[Event] = (event for one in going for event in removals(one))
    group = shape.events_per_batch
    for start in range(0, len(coming), group):
        under_way = [stores(one, shape.blocks_per_event) for one in coming[start : start + group]]
        for events in zip(*under_way, strict=True):
            blocks = shape.blocks_per_event * len(events)
            gone = [event for _, event in zip(range(blocks), leaving, strict=False)] if going else []
            yield payload(gone + list(events))
