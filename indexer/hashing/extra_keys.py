"""What besides its tokens is part of a block's identity: salt, multimodal keys, prompt embeddings, lookahead tokens.

Pure.

Engines publish these untyped; we give each a type and a length, so that a salt can never
equal an image (vLLM #44701, SGLang #24568). Both sides end here: events through `event_extras`, questions through
`query_extras`; `tests/unit/hashing/test_extra_keys.py` holds them to the same bytes for the same content.

    item   = type (1 byte) ‖ length (u32 LE) ‖ body
    extras = items in the engine's order: multimodal, salt, embeddings; then lookahead
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import msgspec

from indexer.errors import BadRequestError, FieldIssue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.lookup import MmItem

_SALT: Final = b"S"
_MM: Final = b"M"
_MM_UNPLACED: Final = b"m"
"""Up to 0.18.1 an image came as a bare string without its offset: no question can name that block, which is safe."""
_EMBEDS: Final = b"E"
_LOOKAHEAD: Final = b"L"
_OTHER: Final = b"?"


def event_extras(
    extra_keys: Sequence[Any] | None,
    lookahead: Sequence[Any] | None,
    *,
    blocks: int,
    lora_name: str | None,
    at_root: bool,
) -> dict[int, bytes]:
    """Block index within the event to the bytes its local hash takes in; blocks without extras are absent.

    `lora_name` leads every block's list when set and is left out (it is in the seed). `at_root`: the first block of
    the event is the block at token 0, where a bare string is the salt.
    """
    out: dict[int, bytes] = {}
    if extra_keys is not None:
        for index, keys in enumerate(extra_keys[:blocks]):
            body = _event_block(keys, lora_name, salted=at_root and index == 0)
            if body:
                out[index] = body
    if lookahead is not None:
        for index, tokens in enumerate(lookahead[:blocks]):
            if tokens:
                out[index] = out.get(index, b"") + lookahead_item(_u32(tokens))
    return out


def is_salted(extra_keys: Sequence[Any] | None, lora_name: str | None) -> bool:
    """Whether what an event says of its first block, that at token 0, has a cache salt in it."""
    keys = extra_keys[0] if extra_keys else None
    if not isinstance(keys, list | tuple):
        return False
    rest = keys[1:] if keys and lora_name is not None and keys[0] == lora_name else keys
    return any(isinstance(key, str) for key in rest)


def query_extras(
    *,
    tokens: bytes,
    block_size: int,
    mm_items: Sequence[MmItem] = (),
    cache_salt: str | None = None,
    lookahead: int = 0,
    within: range | None = None,
) -> dict[int, bytes]:
    """The same for a prompt: `lookahead` is the number of tokens beyond a block that the engine's hash covers.

    `within`: of these blocks of it alone.

    Raises BadRequestError where multimodal items overlap: no prompt has such, and thousands of them on top of each
    other would hold the event loop for seconds (P9).
    """
    out: dict[int, bytes] = {}
    within = range(len(tokens) // (4 * block_size)) if within is None else within
    end = 0
    for item in sorted(mm_items, key=lambda item: item.offset):
        if item.offset < end:
            raise BadRequestError(
                "mm_items.overlap", [FieldIssue("mm_items", "items that lie side by side", str(item.offset))]
            )
        end = item.offset + item.length
        first = item.offset // block_size
        last = (item.offset + item.length - 1) // block_size
        for index in range(max(first, within.start), min(last + 1, within.stop)):
            out[index] = out.get(index, b"") + _mm(item.hash, item.offset - index * block_size)
    if cache_salt and 0 in within:
        out[0] = out.get(0, b"") + _item(_SALT, _text(cache_salt))
    if lookahead:
        step = 4 * block_size
        for index in within:
            body = tokens[(index + 1) * step : (index + 1) * step + 4 * lookahead]
            out[index] = out.get(index, b"") + lookahead_item(body)
    return out


def lookahead_item(body: bytes) -> bytes:
    """Lookahead tokens (little-endian u32 image) as an item."""
    return _item(_LOOKAHEAD, body)


def _event_block(keys: Any, lora_name: str | None, *, salted: bool) -> bytes:  # noqa: ANN401  wire value
    if not isinstance(keys, list | tuple) or not keys:
        return b""
    rest = keys[1:] if lora_name is not None and keys[0] == lora_name else keys
    return b"".join(_event_item(key, salted=salted) for key in rest)


def _event_item(key: Any, *, salted: bool) -> bytes:  # noqa: ANN401  wire value
    if isinstance(key, str):
        return _item(_SALT if salted else _MM_UNPLACED, _text(key))
    if isinstance(key, list | tuple) and len(key) == 2 and isinstance(key[0], str) and type(key[1]) is int:  # noqa: PLR2004
        return _mm(key[0], key[1])
    if isinstance(key, bytes):
        return _item(_EMBEDS, key)
    return _item(_OTHER, msgspec.msgpack.encode(key))  # as it came: the same bytes in every process


def _mm(identifier: str, offset: int) -> bytes:
    """An image is its identifier and where it lies relative to the block's start (negative when it began before)."""
    return _item(_MM, b"%d:" % offset + _text(identifier))


def _item(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("<I", len(body)) + body


def _text(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _u32(tokens: Any) -> bytes:  # noqa: ANN401  wire value
    try:
        return struct.pack(f"<{len(tokens)}I", *tokens)
    except (struct.error, TypeError):
        return msgspec.msgpack.encode(tokens)
