"""What the originals' clients send. Shapes and limits only.

`model_name` makes a request Dynamo's, `model` (in a registration `modelname`) Mooncake's. Keys not named here are
passed over. An empty string means the same as leaving the key out, as Mooncake's clients have it.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from schemas.rest import TEXT_MAX, BlockSizeValue, Rank, TokenIdValue

Optional = Annotated[str, Meta(max_length=TEXT_MAX)] | None
HashValue = Annotated[int, Meta(description="a whole number, -2^63..2^64-1")]
NumericId = Annotated[int, Meta(ge=0, description="a whole number, 0..2^64-1")]
AnyId = NumericId | Annotated[str, Meta(max_length=TEXT_MAX)] | None


class Named(msgspec.Struct, kw_only=True):
    """Which of the two protocols a body is in."""

    model_name: msgspec.Raw = msgspec.Raw()
    model: msgspec.Raw = msgspec.Raw()
    modelname: msgspec.Raw = msgspec.Raw()


class Asked(msgspec.Struct, kw_only=True):
    """What every question may name."""

    model_name: Optional = None
    model: Optional = None
    routing_group: Optional = None
    tenant_id: Optional = None
    lora_name: Optional = None
    cache_salt: Optional = None
    instance_id: AnyId = None
    block_size: BlockSizeValue | None = None


class Query(Asked, kw_only=True):
    """Body of `POST /query`. In MessagePack `token_ids` may be one bin of little-endian int32."""

    token_ids: list[TokenIdValue] | bytes


class QueryByHash(Asked, kw_only=True):
    """Body of `POST /query_by_hash`: local hashes from Dynamo, rolling ones under two names from Mooncake."""

    block_hashes: list[HashValue] | None = None
    seq_hashes: list[HashValue] | None = None
    block_hash: list[HashValue] | None = None


class Lists(msgspec.Struct, kw_only=True):
    """What may be long in a question."""

    token_ids: msgspec.Raw = msgspec.Raw()
    block_hashes: msgspec.Raw = msgspec.Raw()
    seq_hashes: msgspec.Raw = msgspec.Raw()
    block_hash: msgspec.Raw = msgspec.Raw()


class Register(msgspec.Struct, kw_only=True):
    """Body of `POST /register`, of either protocol."""

    endpoint: str
    instance_id: AnyId = None
    block_size: BlockSizeValue
    model_name: Optional = None
    modelname: Optional = None
    routing_group: Optional = None
    tenant_id: Optional = None
    lora_name: Optional = None
    dp_rank: Rank | None = None
    replay_endpoint: str | None = None
    type: Optional = None
    additionalsalt: Optional = None


class Unregister(msgspec.Struct, kw_only=True):
    """Body of `POST /unregister`, of either protocol. Mooncake's newer clients name no model."""

    instance_id: AnyId = None
    model_name: Optional = None
    modelname: Optional = None
    routing_group: Optional = None
    tenant_id: Optional = None
    dp_rank: Rank | None = None
