"""What a question tells of its prompt before anybody hashes it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.hashing.memo import CHUNK_TOKENS
from indexer.model import TOKEN_BYTES

if TYPE_CHECKING:
    from schemas.lookup import LookupQuery


def prompt_tokens(query: LookupQuery) -> int:
    """Its length: of tokens and those that digests stand for, or of the blocks whose hashes are told."""
    if query.block_hashes is None:
        return len(query.start) * CHUNK_TOKENS + len(query.tokens or b"") // TOKEN_BYTES
    return query.prompt_tokens or len(query.block_hashes) * (query.block_size or 0)
