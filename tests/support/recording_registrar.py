"""A TopicRegistrar that gives a recording sink to every publisher, up to a limit."""

from __future__ import annotations

from indexer.model import Descriptor, SourceId
from tests.support.recording_sink import RecordingSink


class RecordingRegistrar:
    """`known` are sources that stand already, as those of flags do."""

    def __init__(self, *known: RecordingSink, sources_max: int = 100) -> None:
        self.sinks: dict[SourceId, RecordingSink] = {sink.descriptor.id: sink for sink in known}
        self.sources_max = sources_max
        self.asked = 0
        self.left: list[RecordingSink] = []
        """Registrations that ended because the topic names another model now."""

    def source_for_topic(self, pod: str, model: str | None, dp_rank: int) -> RecordingSink | None:
        self.asked += 1
        source = SourceId(pod, dp_rank)
        known = self.sinks.get(source)
        if known is not None and known.open:
            if known.descriptor.origin != "topic" or known.descriptor.model == model:
                return known
            known.open = False
            self.left.append(known)
        elif len(self.sinks) >= self.sources_max:
            return None
        sink = self.sinks[source] = RecordingSink(Descriptor(pod=pod, dp_rank=dp_rank, model=model, origin="topic"))
        return sink

    def __getitem__(self, source: tuple[str, int]) -> RecordingSink:
        return self.sinks[SourceId(*source)]

    def has(self, pod: str, dp_rank: int = 0) -> bool:
        return SourceId(pod, dp_rank) in self.sinks
