"""Token hashes of a long prompt, a portion at a time: whoever computes them on the event loop lets others run between.

Pure. The same hashes as all at once; each step takes up to half a millisecond.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.hashing.chain import LOCAL_BYTES, chained, local_hashes
from indexer.hashing.extra_keys import query_extras
from indexer.hashing.memo import fits
from indexer.model import TOKEN_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from indexer.hashing.memo import ChainMemo
    from schemas.lookup import MmItem

PORTION: Final = 256
"""Blocks with something besides tokens, in one step."""
CHUNKS: Final = 32
"""Chunks that the memory does not know, in one step."""


class Extras(NamedTuple):
    """What besides its tokens is part of a prompt's blocks."""

    mm_items: Sequence[MmItem] = ()
    cache_salt: str | None = None
    lookahead: int = 0


class _Some:
    """Says that there is use in going on, for so many chunks."""

    __slots__ = ("left",)

    def __init__(self, chunks: int) -> None:
        self.left = chunks

    def __call__(self, _: int) -> bool:
        self.left -= 1
        return self.left >= 0


def of_tokens(
    memo: ChainMemo,
    tokens: bytes,
    block_size: int,
    lora_name: str | None,
    *,
    start: Sequence[bytes],
    whole: Callable[[], bytes],
    most: int,
) -> Iterator[bytes]:
    """Images of the first `most` whole blocks, as `ChainMemo.hash_image` has them. `whole`: all the tokens."""
    if start and not fits(block_size):
        tokens, start = whole(), ()

    def some(go_on: _Some) -> bytes:
        image = memo.hash_image(tokens, block_size, lora_name, None, go_on, start)
        return memo.hash_image(whole(), block_size, lora_name, None, go_on) or b"" if image is None else image

    return _remembered(some, most)


def of_locals(memo: ChainMemo, locals_: bytes, block_size: int, most: int) -> Iterator[bytes]:
    """The same from local hashes, as `ChainMemo.chain_image` has them."""
    locals_ = locals_[: most * LOCAL_BYTES]
    return _remembered(lambda go_on: memo.chain_image(locals_, block_size, go_on), most)


def with_extras(
    tokens: bytes, block_size: int, lora_name: str | None, extras: Extras, *, parent: int, most: int
) -> Iterator[bytes]:
    """The same of blocks with extras, which no memory holds. Raises BadRequestError at once, before the first."""
    query_extras(tokens=b"", block_size=block_size, mm_items=extras.mm_items)
    step = block_size * TOKEN_BYTES
    blocks = min(most, max(0, len(tokens) - extras.lookahead * TOKEN_BYTES) // step)
    return _chained(tokens, block_size, lora_name, extras, parent, blocks)


def _chained(
    tokens: bytes, block_size: int, lora_name: str | None, extras: Extras, parent: int, blocks: int
) -> Iterator[bytes]:
    step = block_size * TOKEN_BYTES
    for first in range(0, blocks, PORTION):
        last = min(blocks, first + PORTION)
        found = query_extras(tokens=tokens, block_size=block_size, within=range(first, last), **extras._asdict())
        of_portion = {index - first: extra for index, extra in found.items()}
        hashes = chained(local_hashes(tokens[first * step : last * step], block_size, lora_name, of_portion), parent)
        parent = hashes[-1]
        yield struct.pack(f"<{len(hashes)}Q", *hashes)


def _remembered(some: Callable[[_Some], bytes], most: int) -> Iterator[bytes]:
    """Each time from the start, which is remembered by then: a hit costs a tenth of hashing, and a span less."""
    done, most_bytes = 0, most * LOCAL_BYTES
    for _ in range(most // CHUNKS + 2):  # a chunk has one block at least
        go_on = _Some(CHUNKS)
        image = some(go_on)
        if len(image) > done:
            yield image[done:most_bytes]
            done = len(image)
        if go_on.left >= 0 or done >= most_bytes:
            return
