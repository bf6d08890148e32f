"""What one publisher on a bound socket amounts to, and which of several may feed a source. Pure but for its session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from indexer.collect.commands import CoreCommand
from indexer.collect.session import Session
from indexer.model import RawBatch, SourceId
from indexer.ports import EventSink

NO_CONNECTION: Final = -1

Publisher: TypeAlias = tuple[bytes, int]
"""(topic, rank)."""


@dataclass(slots=True)
class BoundCounts:
    """What could be given to no source."""

    malformed: int = 0
    unnamed: int = 0
    """The topic is empty: it names nobody."""
    refused: int = 0
    """The registrar takes no more sources, the name is another's, the source has a subscriber of its own, another
    engine of that name is connected, or another topic took its place just now."""


@dataclass(slots=True, eq=False)
class BoundStream:
    """One publisher: its source, its session and the connection its last message came by."""

    publisher: Publisher
    socket: object
    """The bound socket it comes by: one of several may be."""
    sink: EventSink
    session: Session
    connection: int = NO_CONNECTION
    lost: int = NO_CONNECTION
    """The connection it had last: what is still read of it tells nothing new."""
    waiting: list[RawBatch] = field(default_factory=list)
    proven: bool = True
    """Its connection is known to be answered: False after a pause of this process, until it is again."""

    @property
    def had_none(self) -> bool:
        """No connection was known to be its own yet."""
        return self.connection == self.lost == NO_CONNECTION

    def end(self) -> list[CoreCommand]:
        """Drop what waits to be applied."""
        self.waiting = []
        return self.session.end()

    def stands_against(self, connection: int) -> bool:
        """Whether its engine is connected, by another connection than that one."""
        return self.sink.open and self.connection not in {NO_CONNECTION, connection}


Feeders: TypeAlias = dict[SourceId, BoundStream]
"""Whose stream is a source's, over all bound sockets of the process: numbers of two streams are never mixed."""


class Refused:
    """Publishers that were refused a short while ago, which are not proposed again with every message; bounded."""

    def __init__(self, retry_s: float, limit: int) -> None:
        self._retry_s = retry_s
        self._limit = limit
        self._since: dict[Publisher, float] = {}  # oldest first

    def __bool__(self) -> bool:
        return bool(self._since)

    def lately(self, publisher: Publisher, now: float) -> bool:
        """Whether it has to wait."""
        since = self._since.get(publisher)
        return since is not None and now - since < self._retry_s

    def add(self, publisher: Publisher, now: float) -> None:
        """It was refused, now."""
        self._since.pop(publisher, None)
        self._since[publisher] = now
        if len(self._since) > self._limit:
            del self._since[next(iter(self._since))]

    def forget(self, publisher: Publisher) -> None:
        """It is welcome."""
        self._since.pop(publisher, None)
