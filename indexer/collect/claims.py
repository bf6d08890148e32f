"""What a source's messages say of themselves, held against its registration. Pure. The registration always wins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from indexer.collect.commands import Command, Count, Warn
from indexer.collect.remarks import SHOWN_MAX
from indexer.decode.envelope import peek_rank
from indexer.decode.topic import mismatches, parse_topic
from indexer.model import Descriptor, RawBatch

_IGNORED: Final = "{} ignored, its events are not: they count for the source as it is registered"


class Claims:
    """Looks at the topic whenever it changes, and then at the rank, which takes a walk over the payload."""

    __slots__ = ("_source", "_topic", "_warned_rank", "_warned_topic")

    def __init__(self, source: Descriptor) -> None:
        self._source = source
        self._topic: bytes | None = None
        self._warned_topic = False
        self._warned_rank = False

    def check(self, batches: Sequence[RawBatch]) -> list[Command]:
        """Remarks on these messages, if there are any."""
        out: list[Command] = []
        for batch in batches:
            if batch.topic != self._topic:
                self._topic = batch.topic
                self._check_topic(batch.topic, out)
                self._check_rank(batch.payload, out)
        return out

    def check_replayed(self, batches: Sequence[RawBatch]) -> list[Command]:
        """Remarks on replies, of which not all carry a topic: the rank, where no live message has told it yet."""
        out: list[Command] = []
        if batches and self._topic is None and not self._warned_rank:
            self._check_rank(batches[0].payload, out)
        return out

    def look_again(self) -> None:
        """Whoever speaks next may be another: check it anew."""
        self._topic = None

    def _check_topic(self, raw: bytes, out: list[Command]) -> None:
        topic = parse_topic(raw)
        fields = mismatches(topic, self._source)
        if fields:
            claimed = {"pod": topic.pod, "model": topic.model}
            told = " and ".join(f"{field} {str(claimed[field])[:SHOWN_MAX]!r}" for field in fields)
            name = "that name is" if len(fields) == 1 else "those names are"
            text = f"its topic names {told}: {_IGNORED.format(name)}"
            out += [Count("topic_mismatch"), Warn("topic", text)]
        elif self._warned_topic:
            out.append(Warn("topic", None))
        self._warned_topic = bool(fields)

    def _check_rank(self, payload: bytes, out: list[Command]) -> None:
        rank = peek_rank(payload)
        differs = rank is not None and rank != self._source.dp_rank
        if differs:
            text = f"its batches name data-parallel rank {rank}: {_IGNORED.format('that number is')}"
            out += [Count("rank_mismatch"), Warn("rank", text)]
        elif self._warned_rank:
            out.append(Warn("rank", None))
        self._warned_rank = differs
