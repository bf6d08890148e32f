"""What the parts of a replica have in common: the store, the core, and how long things may take."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from indexer.clock import SystemClock
from indexer.history import History
from indexer.store.layout import partition_of
from indexer.store.rebuild import LoadOptions, SourceReader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

    from indexer.index.mirror import Mirror
    from indexer.index.registry import Registry
    from indexer.ingest import Ingest
    from indexer.model import Descriptor, SourceId
    from indexer.ports import Clock
    from indexer.roster import Roster
    from indexer.store.client import Client
    from indexer.tracing import Tracing


class ReplicaOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Times in seconds, sizes in bytes. `name` has no colon and is this replica's alone."""

    name: str
    lease_s: float = 10.0
    heartbeat_s: float = 1.0
    min_hold_s: float = 30.0
    follow: frozenset[str] | None = None
    """Models whose sources are followed; None: all. Only where nothing is owned."""
    standby: bool = True
    """Whether it listens along where the plan makes it the standby."""
    retain_s: float = 3_600.0
    stale_after_s: float = 5.0
    tick_s: float = 0.25
    pace_s: float = 0.001
    """Rest between two runs of a partition: what comes meanwhile goes in one."""
    share_s: float = 0.0007
    """Between two runs of all partitions together: a run takes 0.3 ms of the loop, however little is in it."""
    pending_bytes: int = 64 * 1024**2
    journal_bytes: int = 16 * 1024**2
    counts_s: float = 10.0
    """Between two rounds of telling what was counted of sources, about."""
    fitness_look_s: float = 30.0
    """Between two looks at the settings of a store that served at the last one."""
    stop_s: float = 5.0
    """At the stop, so long the rest may take to be written."""
    load: LoadOptions = LoadOptions()

    @property
    def lease_ms(self) -> int:
        """Of a partition."""
        return max(1, round(self.lease_s * 1000))

    @property
    def retain_ms(self) -> int:
        """Time to live of keys."""
        return max(1, round(self.retain_s * 1000))


class Nonces:
    """Names of attempts and commands: never the same twice, also not in two processes."""

    def __init__(self, chance: Random) -> None:
        self._process = f"{chance.getrandbits(64):016x}"
        self._count = 0

    @property
    def process(self) -> str:
        """What tells this process from another of the same name."""
        return self._process

    def are_of(self, token: bytes) -> bool:
        """Whether a fence token was given to this process."""
        return token.rpartition(b":")[2].startswith(f"{self._process}.".encode())

    def next(self) -> str:
        """A new one, without a colon."""
        self._count += 1
        return f"{self._process}.{self._count}"


@dataclass(slots=True)
class Unwritten:
    """Bytes that wait for the store, over all partitions of the process."""

    bytes: int = 0


@dataclass(slots=True)
class Pace:
    """Turns at writing, over all partitions: with few that are busy each goes often, with many all go less often."""

    share_s: float
    next_at: float = 0.0

    def wait(self, now: float) -> float:
        """Until the turn that is taken now."""
        turn = max(now, self.next_at)
        self.next_at = turn + self.share_s
        return turn - now


@dataclass(frozen=True, slots=True)
class Parts:
    """One a process."""

    client: Client
    clock: Clock
    chance: Random
    mirror: Mirror
    registry: Registry
    ingest: Ingest
    roster: Roster
    configured: Mapping[SourceId, Descriptor]
    """Sources of flags and of the configuration."""
    options: ReplicaOptions
    nonces: Nonces
    partitions: int
    reader: SourceReader
    """Shared, so that partitions that are loaded at once do not hold the loop together."""
    pace: Pace
    unwritten: Unwritten = field(default_factory=Unwritten)
    told_configured: set[int] = field(default_factory=set)
    """Partitions whose registry was told what is configured, since this process began."""
    agrees: Callable[[], bool] = lambda: True
    """Whether all replicas that collect, those that died or left lately, too, have the same configuration as this one.
    False while that is not known."""
    history: History = field(default_factory=lambda: History(SystemClock()))
    """What happens to sources, for people: `history.note(source, Happening(...))`, once for each fact."""

    tracing: Tracing | None = None

    async def rest(self, seconds: float) -> None:
        """Wait for a part of it, half at least: who met with the same trouble must not all come again at once."""
        await asyncio.sleep(seconds * (0.5 + 0.5 * self.chance.random()))

    @property
    def wall_ahead_s(self) -> float:
        """Seconds since 1970, less seconds on the clock by which entries fall due."""
        return self.clock.wall_us() / 1e6 - self.clock.now()

    def partition_of(self, source: SourceId) -> int:
        """Where a source belongs."""
        return partition_of(source, self.partitions)
