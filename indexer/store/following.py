"""What a follower of a journal decides: whether an entry is the next one. Pure.

Followers see all or know that they do not: an entry that does not continue what was read before means that the
partition must be loaded anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from indexer.store.entries import Entry, Position, decode_entry
from indexer.store.failures import DamagedValue

if TYPE_CHECKING:
    from collections.abc import Mapping

Why = Literal["hole", "other_history", "ahead", "gone", "damaged"]


class Opened(msgspec.Struct, frozen=True):
    """A new owner, who goes on from where this follower is."""

    position: Position


class Next(msgspec.Struct, frozen=True):
    """The next entry."""

    position: Position
    entry: Entry


class Reload(msgspec.Struct, frozen=True):
    """What comes does not continue what was read. Nothing more is accepted."""

    why: Why


Step = Opened | Next | Reload


class Follower:
    """Follows from a position: the one that was noted before loading."""

    def __init__(self, position: Position) -> None:
        self.position = position
        self._lost: Reload | None = None

    def observe(self, entry_id: bytes, fields: Mapping[bytes, bytes]) -> Step:
        """The entry that comes behind the position. After a `Reload` always the same one."""
        if self._lost is None:
            step = self._judge(entry_id, fields)
            if isinstance(step, Reload):
                self._lost = step
            else:
                self.position = step.position
                return step
        return self._lost

    def _judge(self, entry_id: bytes, fields: Mapping[bytes, bytes]) -> Step:
        try:
            position = Position.parse(entry_id)
            if b"a" in fields:
                continues = Position.parse(fields[b"a"]) == self.position and position.number == 1
                return Opened(position) if continues else Reload("other_history")
            if position != self.position.next:
                return Reload("hole" if position.epoch == self.position.epoch else "other_history")
            return Next(position, decode_entry(fields.get(b"e", b"")))
        except DamagedValue:
            return Reload("damaged")

    def observe_head(self, head: bytes | None, asked_at: Position | None = None) -> Reload | None:
        """The id of the journal's last entry, asked for when nothing came: did the store go back in time?

        `asked_at`: the position when the question was sent, where entries may have come since.
        """
        least = self.position if asked_at is None else asked_at
        if self._lost is None and least.epoch:
            try:
                if head is None:
                    self._lost = Reload("gone")
                elif Position.parse(head) < least:
                    self._lost = Reload("ahead")
            except DamagedValue:
                self._lost = Reload("damaged")
        return self._lost
