"""The nouns: what a source is, what an engine tells us, what a batch is. No behaviour, no I/O.

Words are those of DESIGN.md section 3. Two kinds of hash exist and are never mixed:
an *engine hash* (u64 after normalisation) means nothing outside its source and generation;
a *token hash* (u64) is ours, chained over a block and everything before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

Origin = Literal["flag", "config", "api", "discovery", "topic"]
Role = Literal["prefill", "decode", "both"]
Bound = Literal["exact", "lower", "upper", "estimate"]
SourceState = Literal["new", "syncing", "live", "suspect", "stale", "down"]
AnswerState = Literal["exact", "degraded", "no_signal"]
Reason = Literal[
    "no_match",
    "below_block_size",
    "no_events_yet",
    "model_unknown",
    "other_model",
    "adapter_unknown",
    "other_block_size",
    "block_size_unknown",
    "lookahead",
    "hybrid_window",
    "syncing",
    "lagging",
    "stale",
    "down",
    "not_ready",
    "cordoned",
    "filtered",
    "pod_unknown",
    "approximate",
    "deadline",
]
GapPolicy = Literal["keep", "clear"]

DEFAULT_TENANT: Final = "default"
UNASKABLE: Final = "\0lora_id:"
"""Begins the name of an adapter that an engine told by number only (vLLM up to 0.13). Numbers differ from process to
process, so nobody can ask for such blocks; but they must never count for the base model."""


FULL_KINDS: Final = frozenset({"full_attention", "mla_attention", "sink_full_attention"})
"""Group kinds in which a block's prefix must be held wholly."""
WINDOW_KINDS: Final = frozenset({"sliding_window", "sliding_window_mla"})
"""Group kinds in which only the last window of tokens must be held."""
OTHER_KINDS: Final = frozenset(
    {
        "mamba",
        "chunked_local_attention",
        "encoder_only_attention",
        "cross_attention",
        "unknown",
    }
)
"""The other kinds engines name in events; their hit rules are not implemented."""

TOKEN_BYTES: Final = 4
"""Of a token id in an image: little-endian u32."""


class Tier(IntEnum):
    """Where a block lies, best first. The order is the order in which a block's best tier is chosen."""

    GPU = 0
    CPU = 1
    STORAGE = 2
    REMOTE = 3
    UNKNOWN = 4


TIER_NAMES: Final[tuple[str, ...]] = ("gpu", "cpu", "storage", "remote", "unknown")


class SourceId(NamedTuple):
    """One event stream: the pod's name (unique over all tenants) and the data-parallel rank."""

    pod: str
    dp_rank: int

    def __str__(self) -> str:
        return f"{self.pod}#{self.dp_rank}" if self.dp_rank else self.pod


class Descriptor(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator or an API caller says about a source.

    `endpoint` is a ZMQ address to connect to, or None for a source that appeared by topic on a bound socket.
    `blocks_total` is the engine's capacity in blocks where known; it tells ghosts after a kept gap (P6).
    """

    pod: str
    """The name that answers give, as the router calls the engine."""
    dp_rank: int = 0
    """Its data-parallel rank."""
    endpoint: str | None = None
    """Where it publishes its events, `tcp://HOST:PORT` or `ipc://PATH`; a file has to give it, but for a model of
    `models.approximate`."""
    replay_endpoint: str | None = None
    """Where it can be asked for messages again; without one what is lost stays lost."""
    model: str | None = None
    """What it serves. Left out: it answers for every model while no source has one."""
    lora_name: str | None = None
    """The adapter that it serves."""
    tenant: str = DEFAULT_TENANT
    """Whose engine it is."""
    role: Role = "both"
    """What it does of a request, for questions that ask for some roles only."""
    address: str | None = None
    """Where it takes requests, `IP:PORT`: a further name of it, and where its tokenizer is asked."""
    aliases: tuple[str, ...] = ()
    """Further names by which callers may call it."""
    labels: dict[str, str] = {}
    """Words of the operator's own, told in lists of sources."""
    engine: str = "vllm"
    """The dialect of its events."""
    blocks_total: int | None = None
    """How many blocks its cache has, where that is known."""
    origin: Origin = "api"

    @property
    def id(self) -> SourceId:
        """The identity under which everything else files this source."""
        return SourceId(self.pod, self.dp_rank)


class RawBatch(NamedTuple):
    """One message of an engine as it came off the wire: still undecoded, so that held-back batches cost bytes only."""

    topic: bytes
    sequence: int
    payload: bytes
    late: bool = False
    """It is of the past: it came by replay, or a standby kept it. Its time says nothing of now."""


class BlocksStored(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks became available. Fields mean what vLLM's `BlockStored` means; hashes are normalised to u64.

    `tokens` is the little-endian u32 image of `token_ids` (b"" when the event carries none, as offload placeholders
    do); `tokens_ok` is False when the list held something that is no u32 (pairs, strings): usable on hash level only.
    """

    hashes: tuple[int, ...]
    parent: int | None
    tokens: bytes
    tokens_ok: bool
    block_size: int
    tier: Tier
    lora_name: str | None = None
    extra_keys: tuple[object, ...] | None = None
    group: int = 0
    kind: str | None = None
    window: int | None = None
    lookahead: tuple[list[int], ...] | None = None
    continues: bool = False
    """A later part of a store that is handed out in parts (decode/large.py): not an event of its own."""

    @property
    def is_dense(self) -> bool:
        """Whether the tokens are those of all its blocks, and so say which blocks these are."""
        return self.block_size > 0 and len(self.tokens) == len(self.hashes) * self.block_size * TOKEN_BYTES

    def part(self, first: int, end: int) -> BlocksStored:
        """Its blocks `first` to `end`, not included, as a store of their own. Tokens are cut where it is dense."""
        step = self.block_size * TOKEN_BYTES
        blocks = slice(first, end)
        return msgspec.structs.replace(
            self,
            hashes=self.hashes[blocks],
            parent=self.hashes[first - 1] if first else self.parent,
            tokens=self.tokens[first * step : end * step] if self.is_dense else self.tokens,
            tokens_ok=self.tokens_ok and self.is_dense,  # else a part might look dense by chance
            extra_keys=None if self.extra_keys is None else self.extra_keys[blocks],
            lookahead=None if self.lookahead is None else self.lookahead[blocks],
        )


class BlocksRemoved(msgspec.Struct, frozen=True, kw_only=True):
    """One copy of each named hash is gone from that tier and group.

    GPU pools send one hash an event; the decoder joins neighbours on one lane, `events` says how many they were.
    """

    hashes: tuple[int, ...]
    tier: Tier
    group: int = 0
    events: int = 1


class AllCleared(msgspec.Struct, frozen=True):
    """The engine's cache of this rank is empty now: all tiers, all groups."""


class Skipped(msgspec.Struct, frozen=True):
    """An event that could not be used: `reason` is a counter label; `suspect` when it may have been a removal."""

    reason: str
    suspect: bool


Event = BlocksStored | BlocksRemoved | AllCleared | Skipped


class EventBatch(msgspec.Struct, frozen=True):
    """A decoded batch: engine wall time in seconds, events in the engine's order, data-parallel rank where told."""

    ts: float
    events: list[Event]
    dp_rank: int | None


class GroupInfo(NamedTuple):
    """What stores told about one KV-cache group; `window` and `block_size` in tokens."""

    kind: str | None
    window: int | None
    block_size: int


class Holders(Protocol):
    """Who holds the blocks of a run: masks over slots, and one slot's lanes."""

    any: int
    plain: bool
    views: tuple[int, ...]

    def lanes_of(self, slot: int) -> int:
        """The lane bits of one slot; 0 when it holds nothing here."""
        ...


class Run(NamedTuple):
    """Blocks start..end-1 of a prompt that the same lanes of the same slots hold."""

    record: Holders
    start: int
    end: int


class Held(NamedTuple):
    """What one slot holds from the start, in blocks: any tier, then gpu, gpu+cpu, up to storage, up to remote."""

    matched: int
    views: tuple[int, ...]


class Match(NamedTuple):
    """One source that holds something of the prompt."""

    held: Held
    runs: list[Run]
    last_hash: int


class Expected(NamedTuple):
    """What a source is about to hold of the prompt, behind what it holds: blocks, and the hash of the last."""

    blocks: int
    last_hash: int


_NOTHING: Final[Mapping[int, Expected]] = MappingProxyType({})


class Prompt(NamedTuple):
    """The prompt's side of an answer: its length, the matches by slot, and a seed that differs between prompts."""

    tokens: int
    matches: dict[int, Match]
    seed: int
    expected: Mapping[int, Expected] = _NOTHING
    """By slot; none where nothing was said to be routed."""
    apart: int = 0
    """Hash of the first block that nobody holds, or of the last one: prompts that begin alike differ in it. 0: none."""
