"""What the REST face takes and gives besides a lookup's answer. Shapes and limits only.

The limits stand in the types, so that the decoder, the OpenAPI document and the messages about bad input cannot differ.
Bodies refuse unknown keys; in every body `null` means the same as leaving the key out. 64-bit block hashes are
written as 16 lower-case hexadecimal digits, leading zeros kept; a `generation` as lower-case hexadecimal without
padding.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from schemas.lookup import TokenizerUsed

U32_MAX = 2**32 - 1
I64_MAX = 2**63 - 1

U64_MAX = 2**64 - 1

# A pattern's end: `$` alone would let a trailing newline pass in Python.
_END = r"$(?!\n)"

TokenIdValue = Annotated[int, msgspec.Meta(ge=0, le=U32_MAX)]
BlockHashValue = (
    Annotated[
        int,
        msgspec.Meta(
            description="a whole number, -2^63..2^64-1", extra_json_schema={"minimum": -(2**63), "maximum": U64_MAX}
        ),
    ]
    | Annotated[
        str,
        # Not as `pattern`: the decoder would run it on each of thousands; reading the digits checks them at once.
        msgspec.Meta(
            description="1..16 hexadecimal digits",
            extra_json_schema={"pattern": rf"^(0[xX])?[0-9a-fA-F]{{1,16}}{_END}"},
        ),
    ]
)
TEXT_MAX = 512
Text = Annotated[str, msgspec.Meta(min_length=1, max_length=TEXT_MAX)]
Name = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^[^\x00-\x1f\x7f-\x9f]{{1,512}}{_END}",
        max_length=512,
        description="1..512 characters, none of them a control character",
    ),
]
Count = Annotated[int, msgspec.Meta(ge=0, le=I64_MAX)]
Position = Annotated[int, msgspec.Meta(ge=0, le=U32_MAX)]
Rank = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
BlockSizeValue = Annotated[int, msgspec.Meta(ge=1, le=65_536)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=86_400_000)]
RequestIdText = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^[A-Za-z0-9._:/+=@~-]{{1,128}}{_END}",
        description="1..128 characters of A-Z a-z 0-9 . _ : / + = @ ~ -",
    ),
]
RoleName = Literal["prefill", "decode", "both"]
StateName = Literal["new", "syncing", "live", "suspect", "stale", "down"]

_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_OCTET = "(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])"
_WORD = "[0-9A-Fa-f]{1,4}"
_SIX = rf"\[(?!::\])(({_WORD}:){{7}}{_WORD}|({_WORD}(:{_WORD}){{0,5}})?::({_WORD}(:{_WORD}){{0,5}})?)\]"
_HOST = (
    rf"((?!0+\.0+\.0+\.0+:)({_OCTET}\.){{3}}{_OCTET}"
    rf"|{_SIX}"
    r"|(?![0-9.]+:)[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?)"
)
Endpoint = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^(tcp://{_HOST}:{_PORT}|ipc://[!-)+-~][!-~]{{0,99}}){_END}",
        description="tcp://HOST:PORT (IPv6 in brackets) or ipc://PATH, and no wildcard",
    ),
]


ContentObjects = Annotated[list[dict[str, Any]], msgspec.Meta(max_length=16_384)]
"""Messages, tools, documents: read by the model's chat template alone."""


Address = Annotated[
    str,
    # The pattern is for the document: registration checks it, which knows what to advise.
    msgspec.Meta(
        description="IP:PORT, an IPv6 address in brackets",
        extra_json_schema={"pattern": rf"^(({_OCTET}\.){{3}}{_OCTET}|{_SIX}):{_PORT}{_END}"},
    ),
]


class MmItemBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One multimodal item: content hash as the engine names it, first prompt token, number of prompt tokens."""

    hash: Text
    offset: Position
    length: Position


class LookupOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What every form of a lookup may carry besides the prompt itself; null = not given."""

    model: Text | None = None
    lora_name: Text | None = None
    cache_salt: Text | None = None
    tenant: Text | None = None
    mm_items: Annotated[list[MmItemBody], msgspec.Meta(max_length=4_096)] | None = None
    pods: Annotated[list[Text], msgspec.Meta(max_length=4_096)] | None = None
    pod_roles: Annotated[list[RoleName], msgspec.Meta(max_length=16)] | None = None
    max_lag_ms: Milliseconds | None = None
    partial: bool | None = None
    limit: Count | None = None
    group: Literal["rank", "pod"] | None = None
    min_sequence: Annotated[dict[str, Count], msgspec.Meta(max_length=64)] | None = None
    request_id: RequestIdText | None = None
    timeout_ms: Milliseconds | None = None
    block_size: BlockSizeValue | None = None
    prompt_tokens: Position | None = None
    scheme: Literal["kvi1", "dynamo"] | None = None


class PromptTexts(LookupOptions, kw_only=True, forbid_unknown_fields=True):
    """A prompt told as text, in the names of OpenAI's and the engines' own requests."""

    prompt: str | None = None
    messages: ContentObjects | None = None
    tools: ContentObjects | None = None
    documents: ContentObjects | None = None
    chat_template_kwargs: Annotated[dict[str, Any], msgspec.Meta(max_length=64)] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None


class LookupBody(PromptTexts, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/lookup`: exactly one of `token_ids`, `block_hashes`, `prompt` and `messages`."""

    token_ids: list[TokenIdValue] | None = None
    block_hashes: list[BlockHashValue] | None = None


class PackedLookupBody(PromptTexts, kw_only=True, forbid_unknown_fields=True):
    """The same in MessagePack, where token ids may also be one bin of little-endian u32, and hashes one of u64."""

    token_ids: bytes | list[TokenIdValue] | None = None
    block_hashes: bytes | list[BlockHashValue] | None = None


class BatchBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of `POST /v1/lookup/batch`; each item is decoded by itself."""

    items: list[LookupBody]


class HashResult(msgspec.Struct, frozen=True, kw_only=True):
    """The core's answer to a hash request: one 64-bit token hash for each whole block."""

    scheme: str
    block_size: int
    hashes: list[int]
    prompt_tokens: int


class HashAnswer(msgspec.Struct, kw_only=True):
    """Answer of `POST /v1/hash`: 16 hexadecimal digits for each whole block of the prompt."""

    scheme: str
    block_size: int
    hashes: list[str]
    prompt_tokens: int
    tokenizer: TokenizerUsed | msgspec.UnsetType = msgspec.UNSET


class SourceBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A registration of one source. `blocks_total` is the engine's capacity in blocks, where known."""

    pod: Name
    endpoint: Endpoint | None = None
    dp_rank: Rank | None = None
    replay_endpoint: Endpoint | None = None
    model: Name | None = None
    lora_name: Name | None = None
    tenant: Name | None = None
    role: RoleName | None = None
    address: Address | None = None
    aliases: Annotated[list[Name], msgspec.Meta(max_length=64)] | None = None
    labels: Annotated[dict[str, Annotated[str, msgspec.Meta(max_length=512)]], msgspec.Meta(max_length=64)] | None = (
        None
    )
    engine: Literal["vllm", "sglang"] | None = None
    blocks_total: Annotated[int, msgspec.Meta(ge=1, le=U32_MAX)] | None = None


class CordonBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of `PATCH /v1/sources/{pod}`."""

    cordoned: bool


class SourceSet(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of `PUT /v1/sources`, which also takes the bare array."""

    sources: list[SourceBody]


class SourceFilters(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Query of `GET /v1/sources`. `limit` 0 = all; `after` is the `next` of the answer before."""

    state: StateName | None = None
    model: Text | None = None
    limit: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] | None = None
    after: Text | None = None


class RankFilter(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Query of the paths of one pod: one rank of it; without, all."""

    dp_rank: Rank | None = None


class ReplaceOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Query of `PUT /v1/sources`."""

    max_removals: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] | None = None


Effect = Literal["done", "accepted"]
"""Of a command: in force (then the answer leaves it out), or recorded and in force when the owner comes to it."""


class SourceRegistered(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Answer of `POST /v1/sources`: `created` with 201, `same` (nothing changed) with 200; 202 if not in force yet.

    `warnings`: what should be looked at, as far as the registration tells; left out where there is nothing.
    """

    pod: str
    dp_rank: int
    result: Literal["created", "same"]
    effect: Effect = "done"
    warnings: list[str] = []


class SourcesReplaced(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Answer of `PUT /v1/sources`: how many sources of origin `api` came, stayed as they were, and went."""

    added: int
    kept: int
    removed: int
    effect: Effect = "done"


class SourcesTouched(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How many sources (ranks) of the pod the command reached."""

    pod: str
    sources: int
    effect: Effect = "done"


class GroupView(msgspec.Struct, kw_only=True):
    """One KV-cache group that a source has shown; `kind` and `window` as the engine names them, where it does."""

    group: int
    kind: str | None
    window: int | None


class SourceLoad(msgspec.Struct, kw_only=True):
    """How busy a source's engine is, as far as it is known."""

    source: Literal["metrics", "receipts"]
    running: float | None
    waiting: float | None
    kv_usage: float | None
    unseen: int
    age_ms: int | None


class SourceView(msgspec.Struct, kw_only=True):
    """All that is known of one source.

    `since`: when the present state began, UTC, RFC 3339. `why`: what made it so, in a sentence. `sequence`: last
    applied batch. `lag_ms`, `event_age_ms`: as in a lookup's answer. `blocks`: distinct blocks held in each tier;
    `copies`: announced copies over all tiers; neither is known where another replica applies its events and has not
    told yet. `blocks_total`: the engine's capacity. `counters`: since this source was registered.
    """

    pod: str
    dp_rank: int
    state: StateName
    since: str | None
    why: str | None
    bound: str
    generation: str
    sequence: int | None
    lag_ms: int | None
    event_age_ms: int | None
    counters: dict[str, int]
    blocks: dict[str, int]
    copies: int | None
    blocks_total: int | None
    owner: str | None
    origin: str
    endpoint: str | None
    replay_endpoint: str | None
    model: str | None
    lora_name: str | None
    engine: str
    block_size: int | None
    groups: list[GroupView]
    role: str
    tenant: str
    address: str | None
    aliases: list[str]
    labels: dict[str, str]
    cordoned: bool
    warnings: list[str]
    load: SourceLoad | None = None
    ready: bool = True


class SourceList(msgspec.Struct, kw_only=True):
    """Answer of `GET /v1/sources`, ordered by pod and rank.

    `next` goes into `after` for the rest; null = that was all. `models_followed`: of a replica that follows sources of
    these models alone (`models.follow`); left out where all are.
    """

    sources: list[SourceView]
    next: str | None
    models_followed: list[str] | msgspec.UnsetType = msgspec.UNSET


class BlockView(msgspec.Struct, kw_only=True):
    """One entry of a source's reverse map, both directions: the engine's own hash and the hash of the content.

    `token_hash` is null while the parent is not known (an orphan). `copies` per tier. `parent`: the engine's hash of
    the block before, where it is kept.
    """

    pod: str
    dp_rank: int
    engine_hash: str
    token_hash: str | None
    group: int
    tiers: list[str]
    copies: dict[str, int]
    parent: str | None


class BlockList(msgspec.Struct, kw_only=True):
    """Answer of `GET /v1/sources/{pod}/blocks/{hash}`: never empty, a hash that nobody holds is a 404."""

    blocks: list[BlockView]


PartitionRole = Literal["owner", "standby", "follower", "none"]
PartitionState = Literal["waiting", "loading", "live", "asserting", "stale"]
ReplicaState = Literal["live", "draining", "leaving", "silent"]


class PartitionView(msgspec.Struct, kw_only=True):
    """One partition of the store, as this replica sees it.

    `role`: what this replica does with it. `owner`: the replica that writes it, where known; `epoch` is its term;
    `standby` listens along and takes it over. `position`: newest journal entry written (owner) or applied (others), as
    EPOCH-NUMBER; `age_ms`: how old it is. `pending_bytes`: what waits to be written, here or as the owner last told.
    `sources`: registered in it. `standby_*`: messages of its engines that are kept here unread, and how many found no
    room; null where this replica does not listen along.
    """

    partition: int
    role: PartitionRole
    state: PartitionState
    owner: str | None = None
    standby: str | None = None
    epoch: int | None = None
    position: str | None = None
    age_ms: int | None = None
    pending_bytes: int | None = None
    sources: int = 0
    standby_bytes: int | None = None
    standby_batches: int | None = None
    standby_dropped: int | None = None


class ReplicaView(msgspec.Struct, kw_only=True):
    """One replica of the deployment, as it told of itself `age_ms` ago. `me`: the one that answers.

    `owned`: partitions that it owns; `standby`: that it would take over.
    """

    name: str
    address: str
    state: ReplicaState
    owned: int
    standby: int
    age_ms: int
    me: bool


class PartitionList(msgspec.Struct, kw_only=True):
    """Answer of `GET /v1/partitions`, in their order. In mode `memory` there is no store, hence no partition.

    `trouble`: why the store cannot be used now; then what is told of others is of before.
    """

    mode: Literal["memory", "redis"]
    trouble: str | None = None
    partitions: list[PartitionView]
    replicas: list[ReplicaView]


class ReplicaDrained(msgspec.Struct, kw_only=True):
    """Answer of `POST` and `DELETE /v1/replicas/{name}/drain`: partitions it owns still, `done` once none."""

    name: str
    draining: bool
    owned: int
    effect: Effect


Progress = int | float | str | bool | None


class Readiness(msgspec.Struct, kw_only=True):
    """Answer of `GET /readyz`: 200 when `ready`, else 503.

    `detail` is the progress: sources by state, and with a store `redis` and `partitions`, one level deeper. Where
    chosen models are followed, `models_followed` has the sources of each, `sources_passed_over` the number of others.
    """

    ready: bool
    detail: dict[str, Progress | dict[str, Progress]]


class Health(msgspec.Struct, kw_only=True):
    """Answer of `GET /healthz`."""

    status: Literal["ok"] = "ok"


class VersionAnswer(msgspec.Struct, kw_only=True):
    """Answer of `GET /v1/version`. `layout`: version of the stored layout."""

    version: str
    hash_scheme: str
    layout: str


class ProblemItem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing wrong with one field. `got` is cut short and never holds a prompt, a salt or a secret."""

    field: str
    rule: str
    got: str | None = None
    hint: str | None = None


class Problem(msgspec.Struct, kw_only=True):
    """Every answer that is no success: `application/problem+json` (RFC 9457). `code` is stable, for programs."""

    type: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str
    errors: list[ProblemItem]
    request_id: str
