"""The hash formula once more, naively: one loop, the `xxhash` package, nothing of ours."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from tests.support.core_events import u32

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def item(kind: bytes, body: bytes) -> bytes:
    """What one extra key appends to a block's tokens."""
    return kind + struct.pack("<I", len(body)) + body


def naive_locals(
    token_ids: Sequence[int], block_size: int, lora_name: str | None = None, extras: Mapping[int, bytes] | None = None
) -> list[int]:
    """Local hashes of the whole blocks."""
    seed = 1337 ^ xxh3_64_intdigest(lora_name.encode(), 1337) if lora_name else 1337
    return [
        xxh3_64_intdigest(
            u32(token_ids[block * block_size : (block + 1) * block_size]) + (extras or {}).get(block, b""), seed
        )
        for block in range(len(token_ids) // block_size)
    ]


def naive_chain(locals_: Sequence[int], block_size: int, secret: bytes = b"") -> list[int]:
    """Token hashes of blocks with these local hashes, from the root on."""
    before = xxh3_64_intdigest(b"kvi1\x00" + struct.pack("<I", block_size) + secret, 0)
    out = []
    for local in locals_:
        before = xxh3_64_intdigest(local.to_bytes(8, "big"), before)
        out.append(before)
    return out
