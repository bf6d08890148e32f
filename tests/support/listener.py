"""One source's way in without replay: each recorded message judged as in the collector; a gap stays one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.collect.sequence import Gap, Restart, SequenceTracker
from indexer.decode.envelope import stamp
from indexer.model import RawBatch

if TYPE_CHECKING:
    from api.demo.trace import TraceMessage
    from indexer.ingest import SourceSink


class Listener:
    """Tracker and sink."""

    def __init__(self, sink: SourceSink) -> None:
        self.sink = sink
        self.tracker = SequenceTracker()
        self.life = 0
        """Of the engine's process that was heard last."""

    def hear(self, message: TraceMessage) -> None:
        when = stamp(message.payload)
        match self.tracker.judge(message.sequence, when):
            case Gap(first, last):
                self.sink.gap(first, last)
            case Restart():
                self.sink.restart("sequence_went_back")
                self.tracker.forget()
        self.life = message.life
        self.sink.apply(RawBatch(message.topic, message.sequence, message.payload))
        self.tracker.advance(message.sequence, when)
