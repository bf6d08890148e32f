"""What was seen of a deployment, in plain values: made by probes or read from a service's answers. Shapes only."""

from __future__ import annotations

from collections import Counter

import msgspec

from indexer.doctor.places import is_address
from indexer.model import DEFAULT_TENANT


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """A source as configured or as a running service tells it; what only a service knows is None without one.

    Field names are those of `GET /v1/sources`, so that an item of its list reads as one of these.
    """

    pod: str
    dp_rank: int = 0
    endpoint: str | None = None
    replay_endpoint: str | None = None
    model: str | None = None
    tenant: str = DEFAULT_TENANT
    address: str | None = None
    """Where it takes requests, as whoever registered it says. A name like `IP:PORT` may be anybody's address."""
    aliases: tuple[str, ...] = ()
    engine: str = "vllm"
    origin: str = "api"
    blocks_total: int | None = None
    state: str | None = None
    why: str | None = None
    bound: str | None = None
    sequence: int | None = None
    block_size: int | None = None
    blocks: dict[str, int] = {}
    cordoned: bool = False
    ready: bool = True
    counters: dict[str, int] = {}
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """As everything else shows it."""
        return f"{self.pod}#{self.dp_rank}" if self.dp_rank else self.pod

    @property
    def announces_nothing(self) -> bool:
        """Its model is one of `models.approximate`, and no event of it ever came."""
        unnamed = self.endpoint is None and self.origin != "topic"
        return unnamed or (self.state == "live" and self.bound == "estimate" and self.sequence is None)

    def at_its_name(self) -> Engine:
        """The same, to be asked at its name where that is an address and no other is given."""
        is_named_so = self.address is None and is_address(self.pod)
        return msgspec.structs.replace(self, address=self.pod) if is_named_so else self


class PodsSeen(msgspec.Struct, kw_only=True):
    """What a cluster's API server tells of the pods that are looked for."""

    place: str = ""
    """Which server, and what was looked for there."""
    elsewhere: str = ""
    """Why nothing could be looked for from here."""
    trouble: str = ""
    """Why nothing was heard."""
    refused: str = ""
    """Why it did not let us look."""
    pods: int = 0
    sources: int = 0
    not_ready: int = 0
    remarks: dict[str, str] = {}
    """By pod, why it is no source, or not as it asked for."""


class First(msgspec.Struct, frozen=True):
    """One batch: its number, the engine's time stamp if there is one, and what tells it from others of that number."""

    sequence: int
    ts: float | None
    stamp: float


class Heard(msgspec.Struct, kw_only=True):
    """What one event endpoint said while it was listened to."""

    connected: bool = False
    """ZMQ's handshake succeeded."""
    refused: bool = False
    """ZMQ's handshake failed: something else listens there."""
    is_replay: bool = False
    """And it is a replay socket."""
    listened_s: float = 0.0
    batches: int = 0
    malformed: int = 0
    undecodable: int = 0
    missing: int = 0
    """Numbers that were jumped over."""
    topics: Counter[bytes] = msgspec.field(default_factory=Counter)
    ranks: set[int] = msgspec.field(default_factory=set)
    block_sizes: Counter[int] = msgspec.field(default_factory=Counter)
    skew_s: float | None = None
    """Our clock minus the newest batch's time stamp."""
    first: First | None = None
    last: First | None = None


class Replayed(msgspec.Struct, kw_only=True):
    """What one replay endpoint answered."""

    connected: bool = False
    answers: bool = False
    """It was asked for what is newer than everything, and said that this was all, or more."""
    oldest: First | None = None
    """The oldest batch it still has; None: it has none, or did not say."""
    same: bool | None = None
    """It has the batch that was heard live. None: nothing was heard, or it did not say."""


class EngineHttp(msgspec.Struct, kw_only=True):
    """What an engine's HTTP side says of itself; None where it did not say."""

    trouble: str | None = None
    """Why it was not reached."""
    version: str | None = None
    block_size: int | None = None
    num_gpu_blocks: int | None = None
    prefix_caching: bool | None = None
    load: tuple[float, float] | None = None
    """Requests that it works on, and that wait."""
    models: tuple[str, ...] | None = None
    events: EventsConfig | None = None


class EventsConfig(msgspec.Struct, kw_only=True):
    """An engine's own word on its events (`/kv_event_sources`, from vLLM 0.31 on)."""

    enabled: bool | None = None
    replay_endpoint: str | None = None
    buffer_steps: int | None = None


class Probed(msgspec.Struct, kw_only=True):
    """All that was seen of one source from here. `skipped`: why it was not looked at."""

    skipped: str | None = None
    no_route: str | None = None
    """Why its event endpoint took no connection."""
    heard: Heard | None = None
    replay_no_route: str | None = None
    replayed: Replayed | None = None
    http: EngineHttp | None = None


class StoreSeen(msgspec.Struct, kw_only=True):
    """What the store's servers say of themselves, and what the namespace says of its deployment."""

    place: str
    trouble: str | None = None
    servers: tuple[ServerSeen, ...] = ()
    unfit: str | None = None
    clock_skew_s: float | None = None
    round_trip_ms: float | None = None
    agreed: dict[str, str] = {}
    """What all replicas of the namespace agree on; empty: nobody has begun yet."""


class ServerSeen(msgspec.Struct, kw_only=True):
    """One server that takes writes, out of its INFO."""

    version: str = ""
    used_bytes: int = 0
    limit_bytes: int = 0
    """`maxmemory`; 0 = none."""
    machine_bytes: int = 0
    evicted: int = 0
    append_only: bool = False
    saves: bool | None = None
    """It writes snapshots; None: not told."""
    write_failed: bool = False
    """Its last snapshot or append failed."""


class DiscoverySeen(msgspec.Struct, kw_only=True):
    """Of a replica that is set up to look for engines, by its metrics."""

    watching: bool
    """Whether it is the one that does."""
    heard_age_s: dict[str, float] = {}
    """Discoverer → since it was heard."""
    waiting: int = 0
    """Sources that are gone and not removed yet."""


class ServiceSeen(msgspec.Struct, kw_only=True):
    """What a running service answered; None where it was not allowed or did not answer."""

    url: str
    trouble: str | None = None
    refused: dict[str, str] = {}
    """Path → why."""
    shut: frozenset[str] = frozenset()
    """Of these, what a token is wanted for that was not given, or was not taken; and the sources, for want of scope."""
    version: str | None = None
    clock_skew_s: float | None = None
    ready: bool | None = None
    ready_detail: str = ""
    limits_reached: dict[str, int] | None = None
    discovery: DiscoverySeen | None = None
    """None: it is not set up to look for engines."""
    models_followed: tuple[str, ...] | None = None
    """Those that it follows sources of; None: all."""
    unhealed: dict[str, int] = {}
    """Source → gaps that were never healed."""
    partitions: Partitions | None = None


class PartitionSeen(msgspec.Struct, kw_only=True):
    """Of `GET /v1/partitions`."""

    partition: int
    role: str = "none"
    state: str = "?"
    owner: str | None = None
    standby: str | None = None


class ReplicaSeen(msgspec.Struct, kw_only=True):
    """Of `GET /v1/partitions`."""

    name: str
    state: str = "?"
    owned: int = 0
    age_ms: int = 0


class Partitions(msgspec.Struct, kw_only=True):
    """Answer of `GET /v1/partitions`, as far as it is looked at."""

    mode: str
    trouble: str | None = None
    partitions: tuple[PartitionSeen, ...] = ()
    replicas: tuple[ReplicaSeen, ...] = ()
