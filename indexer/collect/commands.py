"""What a session decides, as data. A `RawBatch` among them means: apply it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias

from indexer.model import RawBatch
from indexer.ports import CollectorCount, DoubtReason, Replayed, RestartReason, SuspectReason


@dataclass(frozen=True, slots=True)
class BeginLife:
    """The engine lives a new life: EventSink.restart."""

    reason: RestartReason


@dataclass(frozen=True, slots=True)
class ReportGap:
    """Batches `first..last` are lost for good: EventSink.gap."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class SetSyncing:
    """A recovery begins or is over: EventSink.syncing."""

    active: bool


@dataclass(frozen=True, slots=True)
class Prove:
    """The engine has nothing after what is applied: EventSink.proved."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """What is known of the engine may be false from here on: EventSink.doubt."""

    reason: DoubtReason


@dataclass(frozen=True, slots=True)
class Suspect:
    """EventSink.suspect."""

    reason: SuspectReason
    active: bool


@dataclass(frozen=True, slots=True)
class Count:
    """EventSink.count, and EventSink.replayed where `replayed` says how the counted recovery went."""

    what: CollectorCount
    n: int = 1
    replayed: Replayed | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Warn:
    """EventSink.warn."""

    key: str
    text: str | None


@dataclass(frozen=True, slots=True)
class Ask:
    """Open a conversation with the replay endpoint, on a fresh socket: all batches from `first` on.

    Its results come back under `conversation`. `probe` marks the small ones that an idle engine gets.
    """

    conversation: int
    first: int
    probe: bool = False


@dataclass(frozen=True, slots=True)
class HangUp:
    """End the running conversation; what it still brings is of no use."""


@dataclass(frozen=True, slots=True)
class ConnectAnew:
    """Give the connection up, with all that it still has, and make another: it leads to a process that is gone."""


class ReplayEnd(Enum):
    """How a conversation ended."""

    COMPLETE = auto()
    """With the end marker."""
    TIMEOUT = auto()
    """Nothing came for replay_timeout_s."""
    FAILED = auto()
    """No socket could be made, or its address is none."""


CoreCommand: TypeAlias = RawBatch | BeginLife | ReportGap | SetSyncing | Prove | Doubt | Suspect | Count | Warn
"""What the core is told."""
SocketCommand: TypeAlias = Ask | HangUp | ConnectAnew
"""What the engine's sockets are for: only a session with a replay endpoint decides these."""
Command: TypeAlias = CoreCommand | SocketCommand
