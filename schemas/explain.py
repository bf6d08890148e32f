"""What `POST /v1/explain` takes beside a lookup's question, and gives. Shapes only."""

from __future__ import annotations

import msgspec

from schemas.lookup import TokenizerUsed
from schemas.rest import Rank, Text


class ExplainTarget(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Whom the question is about: in the body beside the lookup, or in the query string."""

    pod: Text | None = None
    dp_rank: Rank | None = None


class Finding(msgspec.Struct, kw_only=True):
    """One thing that is so: its code, what it means here, and what to do."""

    code: str
    why: str
    advice: str


class MissingBlock(msgspec.Struct, kw_only=True):
    """The first block that is not held. Its tokens are those from `first_token` up to `end_token`, not included."""

    block: int
    first_token: int
    end_token: int
    hash: str


class RemovedBlock(msgspec.Struct, kw_only=True):
    """When and from where that block went last."""

    at: str
    ago_ms: int
    tier: str
    group: int


class PodExplanation(msgspec.Struct, kw_only=True):
    """One source: what it holds of the prompt, and why it holds no more.

    `code`, `why` and `advice` are of what decides; `further` is what else should be known.
    """

    pod: str
    dp_rank: int
    state: str
    bound: str
    lag_ms: int | None
    generation: str
    sequence: int | None
    block_size: int | None
    prompt_blocks: int | None
    matched_tokens: int
    reusable_tokens: int
    missing: MissingBlock | None
    code: str
    why: str
    advice: str
    removed: RemovedBlock | None
    further: list[Finding]


class ExplainAnswer(msgspec.Struct, kw_only=True):
    """Answer of `POST /v1/explain`, in the order of the lookup's."""

    request_id: str
    model: str | None
    lora_name: str | None
    resolved_by: str | None
    nearest_model: str | msgspec.UnsetType | None = msgspec.UNSET
    prompt_tokens: int
    tokenizer: TokenizerUsed | msgspec.UnsetType = msgspec.UNSET
    state: str
    reason: str | None
    pods: list[PodExplanation]
    took_us: int
