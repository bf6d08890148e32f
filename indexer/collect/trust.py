"""Whether a replay endpoint speaks for the engine whose messages arrive: where both have a batch, it is the same. Pure.

A port mistyped by one leads to the next engine's endpoint, which answers in the best of health.
"""

from __future__ import annotations

from collections.abc import Collection

from indexer.collect import remarks
from indexer.collect.commands import Command, Count, Suspect
from indexer.collect.sequence import Duplicate
from indexer.collect.stream import Stream
from indexer.decode.envelope import stamp
from indexer.model import RawBatch
from indexer.ports import SuspectReason


class Trust:
    """In one source's endpoint. Nothing seen yet: it is believed, and held against the first batch that both have."""

    __slots__ = ("_stream", "foreign", "own")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.own = False
        """It was seen to speak for this engine, on this connection."""
        self.foreign = False
        """It was seen to speak for another, and not for this one since."""

    def resume(self, suspicions: Collection[SuspectReason]) -> None:
        """What a process before this one had seen of it."""
        self.foreign = "replay_differs" in suspicions

    @property
    def untried(self) -> bool:
        """Whether the last batch arrived, and the endpoint was not seen to have any that did."""
        return not self.own and self._stream.arrived_last is not None

    def overlap(self, reply: RawBatch) -> bool | None:
        """Whether the endpoint has the oldest message held as it arrived; None where this reply tells nothing of it."""
        held = self._stream.lane.first
        if held is None or held.sequence > reply.sequence:
            return None
        if held.sequence == reply.sequence:
            return held.payload == reply.payload
        # What it has in that place came in before the message did. A difference is for the live messages to show.
        before = self._stream.tracker.judge(held.sequence, stamp(held.payload))
        return True if isinstance(before, Duplicate) else None

    def confirm(self, out: list[Command]) -> None:
        """It has what arrived: what it told before is true as well."""
        self.own, self._stream.unvouched = True, False
        if self.foreign:
            self.foreign = False
            out += [Suspect("replay_differs", active=False), remarks.REPLAY_OWN]

    def renew(self, out: list[Command]) -> None:
        """Another process of the engine speaks, perhaps with another endpoint: nothing was seen of it yet."""
        self.own = False
        if self.foreign:
            self.foreign = False
            out += [Suspect("replay_differs", active=False), remarks.REPLAY_OWN]

    def refute(self, out: list[Command]) -> None:
        """It has something else: all that it told is another engine's."""
        out.append(Count("replays_foreign"))
        if not self.foreign:
            self.foreign = True
            out += [Suspect("replay_differs", active=True), remarks.REPLAY_FOREIGN]
        if self._stream.unvouched:
            self._stream.new_life("replay_differs", out)
        self.own = False
