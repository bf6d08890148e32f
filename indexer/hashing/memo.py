"""Token hashes of prompts that begin like earlier ones. Pure, but for a bounded memory of digests.

This service exists because prompts share prefixes: a conversation comes back with every turn, a system prompt with
every user. Their hashes were computed before. A prompt is cut into chunks of 32 blocks; the 128-bit digest of a
chunk, keyed by the hash the chunk continues from and a number drawn once a process, leads to the chunk's token
hashes. A hit costs 0.5 us for 32 blocks where hashing costs 3.5 (decisions/0003).

A walk ends where nobody holds a block, and the new end of a prompt is held by nobody: a caller that wants hashes for a
walk says whether there is any use in going on, and what was never seen before is hashed only as long as there is.

Holds digests and hashes, never tokens (P10). Bounded: when the younger half is full it becomes the older one, and
what was not asked for since the last change is gone.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from xxhash import xxh3_128_digest

from indexer.hashing.chain import TOKEN_BYTES, chained, local_hashes, local_seed, root_seed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

CHUNK_BLOCKS: Final = 32
CHUNKS_MAX: Final = 8_192
"""In each of the two halves: 262,144 blocks, about 6 MB."""
_U64_MASK: Final = (1 << 64) - 1
_pack_chunk: Final = struct.Struct(f"<{CHUNK_BLOCKS}Q").pack

Chunk = tuple[bytes, int]
"""Token hashes as a little-endian u64 image, and the last of them."""


class ChainMemo:
    """`salt`: any 64-bit number, not known outside: keeps callers from choosing digests that meet."""

    def __init__(self, salt: int = 0, secret: bytes = b"") -> None:
        self._salt = salt & _U64_MASK
        self._secret = secret
        self._young: dict[bytes, Chunk] = {}
        self._old: dict[bytes, Chunk] = {}

    def hash_image(
        self,
        tokens: bytes,
        block_size: int,
        lora_name: str | None = None,
        extras: Mapping[int, bytes] | None = None,
        go_on: Callable[[int], object] | None = None,
    ) -> bytes:
        """Token hashes of the whole blocks of a prompt, as a little-endian u64 image.

        With `go_on`: it may end after any block of whose token hash `go_on` says no.
        """
        parent = root_seed(block_size, self._secret)
        if extras:
            hashes = chained(local_hashes(tokens, block_size, lora_name, extras), parent)
            return struct.pack(f"<{len(hashes)}Q", *hashes)
        step = CHUNK_BLOCKS * block_size * TOKEN_BYTES
        whole = len(tokens) // step * step
        salt = self._salt ^ local_seed(lora_name)
        view = memoryview(tokens)
        parts: list[bytes] = []
        for start in range(0, whole, step):
            part = view[start : start + step]
            key = xxh3_128_digest(part, parent ^ salt)
            chunk = self._young.get(key)
            if chunk is None:
                if parts and go_on is not None and not go_on(parent):
                    return b"".join(parts)
                chunk = self._missed(key, part, block_size, lora_name, parent)
            parts.append(chunk[0])
            parent = chunk[1]
        if parts and go_on is not None and not go_on(parent):
            return parts[0] if len(parts) == 1 else b"".join(parts)
        if len(tokens) - whole >= block_size * TOKEN_BYTES:
            rest = chained(local_hashes(tokens[whole:], block_size, lora_name), parent)
            parts.append(struct.pack(f"<{len(rest)}Q", *rest))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _missed(self, key: bytes, part: memoryview, block_size: int, lora_name: str | None, parent: int) -> Chunk:
        chunk = self._old.get(key)
        if chunk is None:
            hashes = chained(local_hashes(bytes(part), block_size, lora_name), parent)
            chunk = _pack_chunk(*hashes), hashes[-1]
        if len(self._young) >= CHUNKS_MAX:
            self._young, self._old = {}, self._young
        self._young[key] = chunk
        return chunk
