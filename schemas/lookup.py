"""What a lookup asks and answers (api.md section 3). Shapes only, no behaviour.

`LookupQuery` is the parsed form that every door produces: tokens are already one little-endian u32 image, so that no
door ever walks a token list in Python. `LookupAnswer` is encoded as it stands, to JSON or MessagePack, by msgspec.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec


class MmItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One multimodal item: its content hash as the engine names it, first prompt token and number of prompt tokens."""

    hash: str
    offset: int
    length: int


class LookupQuery(msgspec.Struct, kw_only=True):
    """One question. Exactly one of `tokens` and `block_hashes` is set.

    `tokens`: little-endian u32 image of the token ids. `block_hashes`: token hashes (or, with scheme `dynamo`, local
    hashes) from the start of the prompt; then `block_size` is set and `prompt_tokens` may be. `pods` names candidates
    as the caller calls them; `limit` 0 = all entries.

    `start`: digests of the prompt's first chunks (hashing/texts.py), where they are known; `tokens` are then those
    behind them, and `whole` gives the image of all.
    """

    tokens: bytes | None = None
    block_hashes: list[int] | None = None
    block_size: int | None = None
    prompt_tokens: int | None = None
    scheme: str | None = None
    model: str | None = None
    lora_name: str | None = None
    cache_salt: str | None = None
    tenant: str | None = None
    mm_items: tuple[MmItem, ...] = ()
    pods: tuple[str, ...] | None = None
    pod_roles: tuple[str, ...] | None = None
    max_lag_ms: int | None = None
    partial: bool = False
    limit: int = 0
    group: Literal["rank", "pod"] = "rank"
    min_sequence: dict[str, int] | None = None
    request_id: str | None = None
    timeout_ms: int | None = None
    start: tuple[bytes, ...] = ()
    whole: Callable[[], bytes] | None = None


class TierTokens(msgspec.Struct):
    """Tokens of the matched blocks by each block's best tier; the sum is `matched_tokens`."""

    gpu: int = 0
    cpu: int = 0
    storage: int = 0
    remote: int = 0
    unknown: int = 0


class PrefixTokens(msgspec.Struct):
    """Longest prefix wholly in gpu; in gpu or cpu; in gpu, cpu or storage; in any of the four named tiers.

    Cumulative.
    """

    gpu: int = 0
    cpu: int = 0
    storage: int = 0
    remote: int = 0


class PodEntry(msgspec.Struct, kw_only=True):
    """What one source holds of the prompt, and how far to trust it.

    With `group: "pod"` the best rank of a pod stands for it.
    """

    pod: str
    dp_rank: int
    block_size: int | None
    matched_tokens: int
    reusable_tokens: int
    tiers: TierTokens
    prefix: PrefixTokens
    speculative_tokens: int = 0
    score: float
    state: str
    bound: str
    lag_ms: int | None
    event_age_ms: int | None
    generation: str
    sequence: int | None
    reason: str | None


class Shards(msgspec.Struct, frozen=True):
    """How many parts of the index answered (one in memory mode)."""

    answered: int = 1
    total: int = 1


class LookupAnswer(msgspec.Struct, kw_only=True):
    """One answer. `pods` is best first."""

    request_id: str
    model: str | None
    lora_name: str | None
    resolved_by: str | None
    nearest_model: str | msgspec.UnsetType | None = msgspec.UNSET
    prompt_tokens: int
    state: str
    reason: str | None
    pods: list[PodEntry | msgspec.Raw]  # some already encoded, in the format asked for
    shards: Shards
    took_us: int
