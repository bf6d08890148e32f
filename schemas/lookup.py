"""What a lookup asks and answers. Shapes only, no behaviour.

`LookupQuery` is the parsed form that every door produces: tokens are already one little-endian u32 image, so that no
door ever walks a token list in Python. `LookupAnswer` is encoded as it stands, to JSON or MessagePack, by msgspec.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec


class MmItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One multimodal item: its content hash as the engine names it, first prompt token and number of prompt tokens."""

    hash: str
    offset: int
    length: int


class TextPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt told as text: exactly one of `prompt` and `messages`, the rest only beside `messages`.

    `messages` and `tools` as an OpenAI chat request has them. `template_args`: further variables of the model's chat
    template (`chat_template_kwargs` of such a request), with `add_generation_prompt` and `continue_final_message`
    among them where the caller said so.
    """

    prompt: str | None = None
    messages: list[dict[str, object]] | None = None
    tools: list[dict[str, object]] | None = None
    template_args: dict[str, object] = {}
    add_special_tokens: bool | None = None
    """None: as the engines do it, which is yes for `prompt` and no for `messages`, whose template adds them."""


class TokenizerUsed(msgspec.Struct, frozen=True, kw_only=True):
    """What turned a text into tokens, and into how many.

    `source`: a local file, or the engine's own `/tokenize`. `name`: the model whose tokenizer it is, as configured;
    `cached`: the same text had been tokenized before.
    """

    source: Literal["file", "engine"]
    name: str
    tokens: int
    cached: bool


class LookupQuery(msgspec.Struct, kw_only=True):
    """One question. Exactly one of `tokens`, `block_hashes` and `text` is set; the core is asked without `text`.

    `tokenizer`: what made `tokens` out of a text. `overdue`: the deadline passed before the prompt was known, and
    `tokens` are empty; the answer then says `no_signal`, reason `deadline`.

    `tokens`: little-endian u32 image of the token ids. `block_hashes`: token hashes (or, with scheme `dynamo`, local
    hashes) from the start of the prompt; then `block_size` is set and `prompt_tokens` may be. `pods` names candidates
    as the caller calls them; `limit` 0 = all entries.

    `start`: digests of the prompt's first chunks (hashing/texts.py), where they are known; `tokens` are then those
    behind them, and `whole` gives the image of all.
    """

    tokens: bytes | None = None
    block_hashes: Sequence[int] | None = None
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
    text: TextPrompt | None = None
    tokenizer: TokenizerUsed | None = None
    overdue: bool = False


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
    tokenizer: TokenizerUsed | msgspec.UnsetType = msgspec.UNSET
    state: str
    reason: str | None
    pods: list[PodEntry | msgspec.Raw]  # some already encoded, in the format asked for
    shards: Shards
    took_us: int


class Holding(NamedTuple):
    """What one source holds of a prompt, in tokens: longest prefix in gpu; in gpu or cpu; in gpu, cpu or storage."""

    pod: str
    dp_rank: int
    gpu: int
    cpu: int
    storage: int


class Holdings(NamedTuple):
    """The bare facts of a lookup: the sources that hold something, in no order, and the state of the answer."""

    state: str
    held: list[Holding]
