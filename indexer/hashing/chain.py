"""Tokens to token hashes: scheme `kvi1`. Pure.

    local_i = XXH3-64(tokens of block i as little-endian u32 ‖ extras_i, seed s)
    s       = 1337, or 1337 ^ XXH3-64(adapter's name, seed 1337)
    h_0     = XXH3-64(local_0, seed root)
    h_i     = XXH3-64(local_i, seed h_{i-1})
    root    = XXH3-64("kvi1" ‖ 0x00 ‖ block size as u32 LE ‖ deployment secret, seed 0)

`local_i` enters the chain as 8 bytes in XXH3's canonical (big-endian) form. `extras_i` is empty for a plain block,
else what `hashing/extra_keys.py` makes of salt, multimodal keys and lookahead tokens. Without extras `local_i` equals
the local hash of Dynamo's indexer (checked against its wheel). Model, tenant and role
are not hashed: they are the mask a walk starts with. Test vectors: tests/unit/hashing/test_chain.py.

Cost: two XXH3 calls and one list append a block and nothing a token: 0.1 us a block (decisions/0003).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import chain as concat
from itertools import repeat
from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_digest, xxh3_64_intdigest

from indexer.model import TOKEN_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SCHEME: Final = "kvi1"
LOCAL_SEED: Final = 1337
LOCAL_BYTES: Final = 8
"""Of a local hash in canonical form."""
_CHUNK_BLOCKS: Final = 64
"""Blocks a compiled unpacker cuts at once. Bounded, since an unpacker costs memory for each of its fields."""


@lru_cache(maxsize=1024)
def root_seed(block_size: int, secret: bytes = b"") -> int:
    """The seed of the first block: keeps schemes, block sizes and deployments with different secrets apart."""
    return xxh3_64_intdigest(SCHEME.encode() + b"\0" + struct.pack("<I", block_size) + secret, 0)


@lru_cache(maxsize=4096)
def local_seed(lora_name: str | None) -> int:
    """The seed of local hashes: an adapter's name is folded in as Dynamo 1.6 does."""
    if not lora_name:
        return LOCAL_SEED
    return LOCAL_SEED ^ xxh3_64_intdigest(lora_name.encode("utf-8", "surrogatepass"), LOCAL_SEED)


def local_hashes(
    tokens: bytes, block_size: int, lora_name: str | None = None, extras: Mapping[int, bytes] | None = None
) -> Iterable[bytes]:
    """Canonical local hashes (8 bytes, big-endian) of the whole blocks in `tokens`; a partial tail is left out.

    `extras` maps block index to the bytes appended to that block's tokens.
    """
    seed = local_seed(lora_name)
    locals_ = map(xxh3_64_digest, _blocks(tokens, block_size * TOKEN_BYTES), repeat(seed))
    if not extras:
        return locals_
    return _with_extras(tokens, block_size * TOKEN_BYTES, seed, list(locals_), extras)


def chained(locals_: Iterable[bytes], parent: int) -> list[int]:
    """Token hashes of a run of blocks that follows `parent` (a token hash, or the root seed)."""
    hashes: list[int] = []
    append = hashes.append
    for local in locals_:
        parent = xxh3_64_intdigest(local, parent)
        append(parent)
    return hashes


def hash_prompt(
    tokens: bytes,
    block_size: int,
    *,
    lora_name: str | None = None,
    extras: Mapping[int, bytes] | None = None,
    secret: bytes = b"",
) -> list[int]:
    """Token hashes of a prompt from its first token on."""
    return chained(local_hashes(tokens, block_size, lora_name, extras), root_seed(block_size, secret))


def pieces(locals_: bytes) -> Iterator[bytes]:
    """Canonical local hashes, one after the other."""
    return _blocks(locals_, LOCAL_BYTES)


def _blocks(tokens: bytes, block_bytes: int) -> Iterator[bytes]:
    """The whole blocks as bytes objects, cut in C."""
    count = len(tokens) // block_bytes
    chunks, rest = divmod(count, _CHUNK_BLOCKS)
    cut = chunks * _CHUNK_BLOCKS * block_bytes
    tail = _unpacker(block_bytes, rest).unpack_from(tokens, cut)
    if not chunks:
        return iter(tail)
    whole = _unpacker(block_bytes, _CHUNK_BLOCKS).iter_unpack(memoryview(tokens)[:cut])
    return concat(concat.from_iterable(whole), tail)


@lru_cache(maxsize=2048)
def _unpacker(block_bytes: int, blocks: int) -> struct.Struct:
    return struct.Struct(f"{block_bytes}s" * blocks)


def _with_extras(
    tokens: bytes, block_bytes: int, seed: int, locals_: list[bytes], extras: Mapping[int, bytes]
) -> list[bytes]:
    for index, extra in extras.items():
        if 0 <= index < len(locals_):
            block = tokens[index * block_bytes : (index + 1) * block_bytes]
            locals_[index] = xxh3_64_digest(block + extra, seed)
    return locals_
