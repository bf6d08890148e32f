"""Token hashes of prompts that begin like earlier ones. Pure, but for a bounded memory of digests.

This service exists because prompts share prefixes: a conversation comes back with every turn, a system prompt with
every user. Their hashes were computed before. A prompt is cut into chunks of 512 tokens; the 128-bit digest of a
chunk, with the hash that the chunk continues from, leads to the chunk's token hashes. A hit costs 0.6 us where hashing
32 blocks costs 3.5 (decisions/0003). Eight chunks in a row are remembered as one span, too: a long prompt begins with
many known ones, and a hit costs 1 us (decisions/0029). Digests are seeded with a number drawn once a process and not
known outside: callers cannot choose chunks that meet.

A walk ends where nobody holds a block, and the new end of a prompt is held by nobody: a caller that wants hashes for a
walk says whether there is any use in going on, and what was never seen before is hashed only as long as there is.

Whoever knows the digests of a prompt's first chunks from elsewhere (texts.py) needs their tokens only where this
memory has lost them.

Holds digests and hashes, never tokens (P10). Bounded (recent.py).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from xxhash import xxh3_128_digest

from indexer.hashing.chain import LOCAL_BYTES, chained, local_hashes, local_seed, pieces, root_seed
from indexer.model import TOKEN_BYTES
from indexer.recent import Recent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

CHUNK_TOKENS: Final = 512
CHUNK_BLOCKS: Final = 32
"""In a chunk of sources whose block size does not fit `CHUNK_TOKENS`."""
FITTING_MIN: Final = 8
"""Smaller blocks would be too many in a chunk."""
CHUNKS_MAX: Final = 8_192
"""In each of the two halves: up to 524,288 blocks, about 12 MB."""
SPAN_CHUNKS: Final = 8
"""Chunks in a row that are remembered together, too: one question for the eight of them, where all are known."""
SPANS_MAX: Final = 1_024
"""In each of the two halves: the hashes of as many blocks once more, about 5 MB."""
_OF_LOCALS: Final = -1
"""In the place of an adapter's seed, which is never negative: chunks of local hashes, not of tokens."""
_U64_MASK: Final = (1 << 64) - 1

Chunk = tuple[bytes, int]
"""Token hashes as a little-endian u64 image, and the last of them."""
_Key = tuple[bytes, int, int]
"""The digest of a chunk's tokens, the hash it continues from, and the adapter's seed. Never the two in one number: XXH3
of eight bytes can be turned round, so a caller could choose an adapter that makes its chunk fall on another's."""


def fits(block_size: int) -> bool:
    """Whether chunks of `CHUNK_TOKENS` hold whole blocks of that size."""
    return block_size >= FITTING_MIN and not CHUNK_TOKENS % block_size


def chunk_digest(tokens: bytes | memoryview, salt: int) -> bytes:
    """What stands for the tokens of a chunk, in one process."""
    return xxh3_128_digest(tokens, salt)


class ChainMemo:
    """`salt`: any 64-bit number, not known outside."""

    def __init__(self, salt: int = 0, secret: bytes = b"") -> None:
        self._salt = salt & _U64_MASK
        self._secret = secret
        self._chunks: Recent[_Key, Chunk] = Recent(CHUNKS_MAX)
        self._spans: Recent[_Key, Chunk] = Recent(SPANS_MAX)

    def hash_image(  # noqa: C901  one chunk after the other: calls would cost more than what they do
        self,
        tokens: bytes,
        block_size: int,
        lora_name: str | None = None,
        extras: Mapping[int, bytes] | None = None,
        go_on: Callable[[int], object] | None = None,
        start: Sequence[bytes] = (),
    ) -> bytes | None:
        """Token hashes of the whole blocks of a prompt, as a little-endian u64 image.

        With `go_on`: it may end after any block of whose token hash `go_on` says no. `start`: digests of the chunks
        before `tokens` (only where the block size `fits`, and without extras); None where a chunk is not remembered
        that there is any use in.
        """
        parent = root_seed(block_size, self._secret)
        if extras:
            hashes = chained(local_hashes(tokens, block_size, lora_name, extras), parent)
            return struct.pack(f"<{len(hashes)}Q", *hashes)
        adapter = local_seed(lora_name)
        parts: list[bytes] = []
        if start:
            parts, parent = self._remembered(start, parent, adapter)
            if len(parts) < len(start):
                return None if not parts or go_on is None or go_on(parent) else b"".join(parts)
        step = TOKEN_BYTES * (CHUNK_TOKENS if fits(block_size) else CHUNK_BLOCKS * block_size)
        span = step * SPAN_CHUNKS
        whole = len(tokens) // step * step
        view, young = memoryview(tokens), self._chunks.young  # most are there: a call a chunk would cost as much again
        at, parent = self._remembered_spans(view[:whole], span, parent, adapter, parts)
        before = parent
        for begin in range(at, whole, step):
            part = view[begin : begin + step]
            key = xxh3_128_digest(part, self._salt), parent, adapter
            chunk = young.get(key) or self._chunks.get(key)
            if chunk is None:
                if parts and go_on is not None and not go_on(parent):
                    return b"".join(parts)
                chunk = _chunk(chained(local_hashes(bytes(part), block_size, lora_name), parent))
                self._chunks.keep(key, chunk)
            image, parent = chunk
            parts.append(image)
            if begin + step == at + span:
                key = xxh3_128_digest(view[at : at + span], self._salt), before, adapter
                self._spans.keep(key, (b"".join(parts[-SPAN_CHUNKS:]), parent))
                at, before = at + span, parent
        if parts and go_on is not None and not go_on(parent):
            return b"".join(parts)
        if len(tokens) - whole >= block_size * TOKEN_BYTES:
            rest = chained(local_hashes(tokens[whole:], block_size, lora_name), parent)
            parts.append(struct.pack(f"<{len(rest)}Q", *rest))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def forget(self) -> None:
        """Remember nothing any more."""
        self._chunks.forget()
        self._spans.forget()

    def _remembered_spans(
        self, tokens: memoryview, span: int, parent: int, adapter: int, parts: list[bytes]
    ) -> tuple[int, int]:
        """Append the images of the leading spans that are known; where they end, and the last hash."""
        known = self._spans.young
        for begin in range(0, len(tokens) - span + 1, span):
            key = xxh3_128_digest(tokens[begin : begin + span], self._salt), parent, adapter
            chunk = known.get(key) or self._spans.get(key)
            if chunk is None:
                return begin, parent
            parts.append(chunk[0])
            parent = chunk[1]
        return len(tokens) // span * span, parent

    def chain_image(self, locals_: bytes, block_size: int, go_on: Callable[[int], object] | None = None) -> bytes:
        """The same from the canonical local hashes of the blocks, each 8 bytes."""
        parent = root_seed(block_size, self._secret)
        parts: list[bytes] = []
        step = LOCAL_BYTES * CHUNK_BLOCKS
        whole = len(locals_) // step * step
        salt, young = self._salt, self._chunks.young
        for begin in range(0, whole, step):
            part = locals_[begin : begin + step]
            key = xxh3_128_digest(part, salt), parent, _OF_LOCALS
            chunk = young.get(key) or self._chunks.get(key)
            if chunk is None:
                if parts and go_on is not None and not go_on(parent):
                    return b"".join(parts)
                chunk = _chunk(chained(pieces(part), parent))
                self._chunks.keep(key, chunk)
            image, parent = chunk
            parts.append(image)
        if len(locals_) > whole:
            parts.append(_chunk(chained(pieces(locals_[whole:]), parent))[0])
        return b"".join(parts)

    def _remembered(self, start: Sequence[bytes], parent: int, adapter: int) -> tuple[list[bytes], int]:
        """The images of chunks told by their digests and the last hash, up to the first that is forgotten."""
        images: list[bytes] = []
        young = self._chunks.young
        for digest in start:
            key = digest, parent, adapter
            chunk = young.get(key) or self._chunks.get(key)
            if chunk is None:
                break
            images.append(chunk[0])
            parent = chunk[1]
        return images, parent


def _chunk(hashes: list[int]) -> Chunk:
    return struct.pack(f"<{len(hashes)}Q", *hashes), hashes[-1]
