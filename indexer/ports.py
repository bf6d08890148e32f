"""Every way into and out of the core, as Protocols with their contracts.

The core keeps no clock and does no I/O; edges call it and are called through these. One event loop owns everything
here: all methods are plain functions, called on that loop only, and return quickly (batch application is the longest
step).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from indexer.model import Descriptor, RawBatch, SourceId


class Clock(Protocol):
    """Time as an argument, so that tests decide what time it is."""

    def now(self) -> float:
        """Seconds on the boot-time clock: never goes back, counts while the machine or the process sleeps."""
        ...

    def wall_us(self) -> int:
        """Microseconds since 1970: only for what crosses processes (generations)."""
        ...


SpanResult = Literal["sent", "refused", "dropped"]
ExportResult = Literal["sent", "refused", "failed"]

RestartReason = Literal[
    "sequence_went_back", "probe_differs", "reconnect_jump", "registration_differs", "replay_differs", "life_differs"
]

DoubtReason = Literal["process_unproven", "drift"]

SuspectReason = Literal["dropped", "replay_differs"]


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a source stood when its state was loaded from the store: the collector goes on from there."""

    sequence: int
    """The last applied batch; -1 where the history is known to be empty."""
    stamp: float | None
    """That batch's, as `decode.envelope.stamp` gives it. None with a batch: nothing can tell whose it was."""
    away_s: float
    """For how long nobody of us listened to the engine; may be infinite."""
    as_of: float | None = None
    """When `away_s` was right, on the boot-time clock. None: when the collector begins with the source."""
    suspicions: frozenset[SuspectReason] = frozenset()
    """What was suspected: the collector takes it back when it is over.

    A source that begins without a `Resume` begins without suspicions: nobody would take them back.
    """
    unproven: bool = False
    """The source is in doubt as `process_unproven`: nothing said whose connection the owner before saw last."""


class ListenerView(NamedTuple):
    """Of an engine that is only listened to: what is kept in case this process becomes the owner of its source."""

    connected_since: float | None
    """On our clock. None: the connection does not stand."""
    batches: int
    bytes: int
    dropped: int
    """Batches that found no room since it listens."""
    joins: bool
    """It would go on from here as on an unbroken connection: it stood while the owner saw the engine connected."""
    heard_at: float | None = None
    """When a message came last, on our clock."""


ReplayResult = Literal["ok", "partial", "failed", "timeout"]


class Replayed(NamedTuple):
    """What an engine's replay endpoint was asked for: all batches from `first` on, since `began_at` on our clock.

    `last` is the newest that is known at the end, None where none is.
    """

    result: ReplayResult
    first: int
    last: int | None
    began_at: float


class EventSink(Protocol):
    """What the collector tells the core about ONE life of one registration; implemented by the ingest story.

    Order is the caller's promise: calls for one source come in the engine's order, each batch once (P1). After the
    source was removed or replaced every call is a no-op and `open` is False (P4: nothing in flight comes back).
    """

    @property
    def descriptor(self) -> Descriptor:
        """The registration this sink belongs to."""
        ...

    @property
    def open(self) -> bool:
        """False once the source was removed or replaced: the collector should stop."""
        ...

    @property
    def cursor(self) -> int | None:
        """Sequence of the last applied batch of this generation; None before the first."""
        ...

    @property
    def resume(self) -> Resume | None:
        """Where a process before this one left off; None for a source that begins here.

        It counts as long as it names the cursor: once anything is applied or forgotten it is of the past.
        """
        ...

    def apply(self, batch: RawBatch) -> None:
        """Decode and apply the next batch in order: visible to lookups when this returns.

        Undecodable payloads are counted, the cursor moves on and the source turns suspect. The first batch of a
        generation decides the bound: sequence 0 means a complete history, anything else a truncated one (`lower`).
        """
        ...

    @property
    def busy(self) -> bool:
        """A large batch is applied in part. What is told meanwhile waits behind it, so tell little until it is over."""
        ...

    def go_on(self) -> bool:
        """Apply some more of a large batch, about a millisecond's work; True while there is more."""
        ...

    def restart(self, reason: RestartReason) -> None:
        """A new life of the engine is certain.

        New generation, nothing of before is scored again; cursor back to None. O(1).
        """
        ...

    def gap(self, first: int, last: int) -> None:
        """Batches first..last are lost for good (no replay, or replay could not heal).

        P6's policy keep or clear is applied here.
        """
        ...

    def syncing(self, active: bool) -> None:  # noqa: FBT001  one fact, one word
        """A replay or probe conversation runs and live batches are held back: answers say `syncing` meanwhile."""
        ...

    def proved(self) -> None:
        """The engine confirmed that nothing after `cursor` exists (replay end marker).

        With cursor None: its history is empty.
        """
        ...

    def doubt(self, reason: DoubtReason) -> None:
        """What is claimed of this generation may be false, and nothing will tell: the source turns suspect.

        `process_unproven`: the numbers went on after an absence in which the engine may have started anew.
        """
        ...

    def suspect(self, reason: SuspectReason, active: bool) -> None:  # noqa: FBT001  one fact, one word
        """Something claimed may be false until the collector takes it back: the source is suspect meanwhile.

        It outlasts clears and restarts, as it says something of the stream and not of what was applied.
        `dropped`: messages found no room. It ends when they are replayed, or are reported as a gap.
        `replay_differs`: the replay endpoint has other batches than arrived, as another engine's has. It ends when the
        endpoint is seen to have the same.
        """
        ...

    def alive(self, connected: bool, silent_s: float = 0.0) -> None:  # noqa: FBT001  one fact, one word
        """The collector looked at the connection just now: it is up (heartbeats answered) or down.

        Its tick calls at least every 500 ms, except after a pause of this process, until the engine answers again.
        Where it is down, `silent_s` is how long at least the engine has given no sign of life.
        """
        ...

    def seen(self, at: float) -> None:
        """The engine was connected at that moment (our clock), which is past: what is told next came after it."""
        ...

    def count(self, what: CollectorCount, n: int = 1) -> None:
        """Count something that happened on the wire."""
        ...

    def replayed(self, told: Replayed) -> None:
        """A recovery is over, or a conversation of it failed: for people, and counted by `count`."""
        ...

    def warn(self, warning: str | None, *, key: str) -> None:
        """Set (or, with None, take back) a lasting remark shown in `GET /v1/sources` under `warnings`."""
        ...


CollectorCount = Literal[
    "frames_malformed",
    "duplicates",
    "gaps",
    "batches_lost",
    "replays_ok",
    "replays_partial",
    "replays_failed",
    "replays_timeout",
    "replays_foreign",
    "restarts",
    "reconnects",
    "lane_overflows",
    "topic_mismatch",
    "rank_mismatch",
]


class TopicRegistrar(Protocol):
    """How sources appear by topic on a bound socket (`--source-bind`)."""

    def source_for_topic(self, pod: str, model: str | None, dp_rank: int) -> EventSink | None:
        """The sink for that publisher, registered with origin `topic` when new.

        None when the limit on sources is reached.
        """
        ...


class Collector(Protocol):
    """What the node asks of the fleet of subscribers; implemented in collect/fleet.py."""

    def start(self, sink: EventSink) -> None:
        """Begin to subscribe for that sink; replaces a subscriber of the same source id.

        Where the same endpoint is listened to that connection is kept, and what it brought behind the sink's cursor is
        told first.
        """
        ...

    def stop(self, source: SourceId) -> None:
        """Stop subscribing, or listening; unknown ids are ignored."""
        ...

    def other_life(self, source: SourceId) -> bool:
        """Whoever runs its engine says that another process of it lives now.

        Its sink is told of the restart, and what comes begins anew. False where nobody subscribes: it was not told.
        """
        ...

    def vouch(self, source: SourceId, at: float) -> None:
        """Whoever runs its engine was heard at that moment (our clock), and says that the same process lives.

        Cheap; nothing where nobody subscribes.
        """
        ...

    def step_down(self, source: SourceId) -> None:
        """Tell its sink nothing more, and go on as with `listen`: a later `start` goes on without a loss.

        What arrived and was not told is kept, in its order. A large batch under way is for the caller to finish.
        Nothing where it is listened to already. A source that came by its topic is stopped: its engine connects to
        whom it will.
        """
        ...

    def listen(self, descriptor: Descriptor) -> None:
        """Connect to that engine and keep what comes, undecoded and bounded in bytes.

        Nothing where it is listened to or subscribed to already; another endpoint is listened to anew.
        """
        ...

    def unlisten(self, source: SourceId) -> None:
        """Stop listening; unknown ids, and those subscribed to, are ignored."""
        ...

    def note(self, source: SourceId, cursor: int | None, stamp: float | None, alive_at: float | None) -> None:
        """The owner has made that batch durable, and until `alive_at` (our clock) saw the engine connected.

        A listener lets go what is at or below it. Cheap; ids that are not listened to are ignored.
        """
        ...

    def listeners(self) -> Mapping[SourceId, ListenerView]:
        """Who is listened to, and what is kept of them: as it is whenever that is looked at."""
        ...

    def sources(self) -> Sequence[SourceId]:
        """Whose subscribers run now; those who are listened to are not among them."""
        ...
