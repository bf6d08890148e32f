"""The prompt that a report tells, if it does: ids or hashes, within what is left of a request's tokens. Pure."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from api.rest.lookup_request import token_image, told_hashes
from indexer.errors import BadRequestError, FieldIssue
from indexer.model import TOKEN_BYTES

Hashes = bytes | list[int | str] | None


def reported_prompt(
    ids: bytes | list[int] | None, hashes: Hashes, tokens_left: int
) -> tuple[bytes | None, Sequence[int] | None]:
    """Image of the ids, and hashes as u64. Raises `BadRequestError`."""
    tokens = _image(ids)
    if len(tokens or b"") > tokens_left * TOKEN_BYTES:
        rule = "at most limits.tokens tokens in all prompts of a request together"
        raise BadRequestError("token_ids.too_many", [FieldIssue("token_ids", rule)])
    return tokens, None if hashes is None else told_hashes(hashes)


def _image(ids: bytes | list[int] | None) -> bytes | None:
    if ids is None or isinstance(ids, bytes):
        return None if ids is None else token_image(ids, "token_ids")
    return struct.pack(f"<{len(ids)}I", *ids)
