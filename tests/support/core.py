"""The core without sockets, driven as the collector and the faces drive it: bytes in, encoded answers out.

Wired as the node wires it, from the real parts; only time is the test's own.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Unpack

import msgspec

from indexer.index.mirror import Mirror
from indexer.index.registry import Registry
from indexer.index.states import StateLimits
from indexer.ingest import Ingest
from indexer.lookup import Lookup
from indexer.model import Descriptor, RawBatch, SourceId
from indexer.receipts.delays import Delays
from indexer.receipts.routed import Routed
from indexer.receipts.speculation import Speculation
from indexer.score.prefix import DEFAULT_WEIGHTS
from schemas.lookup import Holding, LookupAnswer, LookupQuery, PodEntry
from schemas.receipts import RoutedReport
from tests.support.core_events import BLOCK, payload, prompt, stored, u32
from tests.support.steps import done

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from indexer.index.source import SourceIndex
    from indexer.ingest import SourceSink
    from tests.support.core_options import CoreOptions

WALL_US: Final = 1_700_000_000_000_000
TIDY_SLICES_MAX: Final = 100_000


class ManualClock:
    """Both clocks stand still until a test moves them. Where `at` is 0, it is `booted_us` on the wall."""

    def __init__(self, at: float = 1_000.0, booted_us: int = WALL_US) -> None:
        self.at = at
        self.booted_us = booted_us

    def now(self) -> float:
        return self.at

    def wall_us(self) -> int:
        return self.booted_us + int(self.at * 1e6)

    @property
    def wall_ahead_s(self) -> float:
        """As of `Parts`."""
        return self.booted_us / 1e6


class Answer(LookupAnswer, kw_only=True):
    """An answer as a caller reads it."""

    pods: list[PodEntry]  # type: ignore[assignment]  # read back from the encoded form

    def __getitem__(self, pod: str) -> PodEntry:
        """The one entry of that name."""
        found = [entry for entry in self.pods if entry.pod == pod]
        assert len(found) == 1, f"{pod}: {len(found)} entries"
        return found[0]

    def rank(self, pod: str, dp_rank: int) -> PodEntry:
        found = [entry for entry in self.pods if (entry.pod, entry.dp_rank) == (pod, dp_rank)]
        assert len(found) == 1, f"{pod}#{dp_rank}: {len(found)} entries"
        return found[0]

    @property
    def matched(self) -> dict[str, int]:
        """Matched tokens by name."""
        return {entry.pod: entry.matched_tokens for entry in self.pods}

    @property
    def order(self) -> list[str]:
        return [entry.pod for entry in self.pods]


class Speaker:
    """One engine's side: numbers its batches from 0 and hands them on, in order, as encoded bytes."""

    def __init__(self, core: Core, sink: SourceSink) -> None:
        self.core = core
        self.sink = sink
        self.next_sequence = 0

    @property
    def source(self) -> SourceIndex:
        return self.sink.source

    def say(self, *events: object, **envelope: Any) -> None:  # noqa: ANN401  passed on as it is
        """One batch with these events."""
        self.say_bytes(payload(*events, **envelope))

    def replay(self, *events: object, **envelope: Any) -> None:  # noqa: ANN401  passed on as it is
        """The same, out of the engine's replay."""
        self.say_bytes(payload(*events, **envelope), late=True)

    def say_bytes(self, raw: bytes, topic: bytes = b"", *, late: bool = False) -> None:
        """As the collector does: a large batch is applied to its end before anything else is told."""
        self.sink.apply(RawBatch(topic, self.next_sequence, raw, late))
        self.next_sequence += 1
        while self.sink.go_on():
            pass

    def lose(self, *events: object) -> None:
        """The engine sent a batch that never arrived; nobody knows yet."""
        del events  # written down at the call for the reader
        self.next_sequence += 1

    def gap(self) -> None:
        """All that was lost is lost for good: the collector says so."""
        last = self.next_sequence - 1
        cursor = self.sink.cursor
        assert cursor is None or cursor < last, "nothing is missing"
        self.sink.gap(0 if cursor is None else cursor + 1, last)

    def restart(self) -> None:
        """A new process, noticed."""
        self.sink.restart("sequence_went_back")
        self.next_sequence = 0


class Core:
    """Registry, ingest, mirror and lookup in one."""

    def __init__(
        self,
        *,
        secret: bytes = b"",
        aliases: dict[str, str] | None = None,
        limits: StateLimits | None = None,
        shift: int = 0,
        silent_ttl_s: float = 300.0,
        **options: Unpack[CoreOptions],
    ) -> None:
        self.clock = ManualClock()
        self.mirror = Mirror(shift)
        self.registry = Registry(aliases=aliases)
        self.ingest = Ingest(self.mirror, self.clock, secret=secret, **options)
        self.limits_reached: Counter[str] = Counter()
        self.speculation = Speculation(self.mirror, blocks_max=100_000, reached=self._reached)
        self.lookup = Lookup(
            self.mirror,
            self.registry,
            self.clock,
            limits or StateLimits(),
            secret=secret,
            weights=DEFAULT_WEIGHTS,
            speculation=self.speculation,
        )
        self.delays = Delays()
        self.receipts_ended: Counter[str] = Counter()
        self.routed = Routed(
            self.lookup,
            self.registry,
            self.mirror,
            self.speculation,
            delays=self.delays,
            clock=self.clock,
            reached=self._reached,
            ended=lambda result: self.receipts_ended.update([result]),
            silent_ttls_s=dict.fromkeys(options.get("silent_block_sizes", {}), silent_ttl_s),
        )
        self.ingest.touched = self.lookup.view.touch
        self.ingest.reshaped = self._reshaped
        self.sinks: dict[SourceId, SourceSink] = {}

    def engine(self, pod: str = "pod", *, connected: bool = True, **descriptor: Any) -> Speaker:  # noqa: ANN401  passed on as it is
        """Register a source and, unless told otherwise, connect it."""
        described = Descriptor(pod=pod, **descriptor)
        self.registry.check(described)
        sink = self.ingest.open_source(described)
        self.sinks[described.id] = sink
        self.registry.add(sink.source)
        self.lookup.view.fit(len(self.sinks))
        if connected:
            sink.alive(connected=True)
        return Speaker(self, sink)

    def speaker(self, pod: str, dp_rank: int = 0) -> Speaker:
        """The side of an engine that was registered; where it spoke, it goes on behind that."""
        speaker = Speaker(self, self.sinks[SourceId(pod, dp_rank)])
        speaker.next_sequence = (speaker.sink.cursor or 0) + (speaker.sink.cursor is not None)
        return speaker

    def remove(self, pod: str, dp_rank: int = 0) -> None:
        key = SourceId(pod, dp_rank)
        sink = self.sinks.pop(key)
        self.registry.remove(key)
        self.ingest.close_source(sink)
        self.lookup.view.fit(len(self.sinks))

    def cordon(self, pod: str, *, cordoned: bool, dp_rank: int = 0) -> None:
        source = self.sinks[SourceId(pod, dp_rank)].source
        source.facts.cordoned = cordoned
        self.lookup.view.touch(source)

    def make_ready(self, pod: str, *, ready: bool, dp_rank: int = 0) -> None:
        source = self.sinks[SourceId(pod, dp_rank)].source
        source.facts.ready = ready
        self.lookup.view.touch(source)

    def alive(self) -> None:
        """The collector's tick: every connection is up."""
        for sink in self.sinks.values():
            sink.alive(connected=True)

    def ask(self, token_ids: Iterable[int] | bytes | None = None, **query: Any) -> Answer:  # noqa: ANN401  passed on as it is
        """One lookup, through the encoded form."""
        if token_ids is not None:
            query["tokens"] = token_ids if isinstance(token_ids, bytes) else u32(token_ids)
        return self.ask_as(LookupQuery(**query))

    def ask_as(self, query: LookupQuery) -> Answer:
        """A question as a face has made it."""
        answer = msgspec.json.decode(msgspec.json.encode(self.lookup.answer(query)), type=Answer)
        if query.group == "rank" and not query.limit and query.max_lag_ms is None and not query.min_sequence:
            self._same_bare_facts(query, answer)
        return answer

    def _same_bare_facts(self, query: LookupQuery, answer: Answer) -> None:
        """Whoever asks for the facts alone hears the same."""
        state, held = self.lookup.holdings(query)
        told = [
            Holding(entry.pod, entry.dp_rank, entry.prefix.gpu, entry.prefix.cpu, entry.prefix.storage)
            for entry in answer.pods
            if entry.matched_tokens
        ]
        assert (answer.state, sorted(told)) == (state, sorted(held))

    def route(
        self,
        token_ids: Iterable[int] | bytes | None,
        pod: str,
        *,
        dp_rank: int | None = None,
        request_id: str | None = None,
        of: str | None = None,
        **query: Any,  # noqa: ANN401  passed on as it is
    ) -> str:
        """A prompt is said to be routed there; what came of that."""
        tokens = token_ids if token_ids is None or isinstance(token_ids, bytes) else u32(token_ids)
        asked = LookupQuery(tokens=tokens, **query)
        report = RoutedReport(pod=pod, dp_rank=dp_rank, request_id=request_id, of=of, query=asked)
        return done(self.routed.take(report))

    def tidy_receipts(self) -> None:
        """Housekeeping of what is expected, until there is none left."""
        self.routed.look()
        for _ in range(TIDY_SLICES_MAX):
            if not self.speculation.tidy_slice(self.clock.now()):
                return
        raise AssertionError("housekeeping without end")

    def _reached(self, limit: str) -> None:
        self.limits_reached[limit] += 1

    def hashes(self, token_ids: Iterable[int], block_size: int = BLOCK, **query: Any) -> list[int]:  # noqa: ANN401  passed on as it is
        """Token hashes of a prompt, as `POST /v1/hash` gives them."""
        return self.lookup.hashes(LookupQuery(tokens=u32(token_ids), **query), block_size)

    def tidy(self) -> int:
        """Housekeeping until nothing is left to do; returns how many slices that took."""
        for slices in range(TIDY_SLICES_MAX):
            if not self.ingest.tidy_slice():
                return slices
        raise AssertionError("housekeeping does not end")

    def unreachable(self, prompts: Sequence[Iterable[int]]) -> bool:
        """Whether no entry of any answer to these prompts holds anything."""
        return not any(entry.matched_tokens for prompt in prompts for entry in self.ask(prompt).pods)

    def _reshaped(self, _: SourceIndex) -> None:
        self.registry.version += 1


def fleet(*held: int, **descriptor: Any) -> Core:  # noqa: ANN401  passed on as it is
    """Pods a, b, c, … that hold so many blocks of the prompt."""
    core = Core()
    for number, blocks in enumerate(held):
        engine = core.engine("abcdefghijklmnop"[number], **descriptor)
        engine.say(*([stored(range(1, blocks + 1), prompt(blocks))] if blocks else []))
    return core


def reasons(answer: Answer) -> dict[str, str | None]:
    """By pod."""
    return {entry.pod: entry.reason for entry in answer.pods}


def table_holders(mirror: Mirror) -> dict[int, int]:
    """Record id of every token hash that somebody holds, read from the arrays themselves."""
    held: dict[int, int] = {}
    for slots in (mirror.table.old, mirror.table.current):
        if slots is not None:
            pairs = zip(slots.keys_array.tolist(), slots.rids_array.tolist(), strict=True)
            held.update({key: rid for key, rid in pairs if key})
    return {key: rid for key, rid in held.items() if rid}


def check_mirror(mirror: Mirror) -> None:
    """What must hold of the mirror at any time: its counts say what its arrays hold."""
    held = table_holders(mirror)
    assert len(held) == mirror.table.live
    counts: dict[int, int] = {}
    for rid in held.values():
        counts[rid] = counts.get(rid, 0) + 1
    for record in mirror.book.records[1:]:
        if record is not mirror.book.empty:
            assert counts.get(record.rid, 0) == record.blocks, record.key
    for slots in (mirror.table.old, mirror.table.current):
        assert slots is None or not slots.keys_array[-1], "the last slot ends every probe"
