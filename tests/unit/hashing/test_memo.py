"""Remembered beginnings: the same hashes as without, whatever was asked before, in bounded memory."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.hashing.chain import hash_prompt, local_seed
from indexer.hashing.memo import CHUNK_BLOCKS, CHUNK_TOKENS, CHUNKS_MAX, SPAN_CHUNKS, ChainMemo, chunk_digest
from tests.support.core_events import u32
from tests.support.core_hashing import item, naive_chain, naive_locals

STEP = CHUNK_BLOCKS * 4
"""Tokens in a chunk of blocks of four."""


def unpacked(image: bytes) -> list[int]:
    """Hashes of a little-endian u64 image."""
    return list(struct.unpack(f"<{len(image) // 8}Q", image))


@pytest.mark.parametrize("count", [0, 3, 4, STEP - 1, STEP, STEP + 1, 3 * STEP, 3 * STEP + 7])
def test_same_hashes_first_time_and_again(count: int) -> None:
    """Of a naive loop: chunks leave no seam, the rest is hashed, a partial tail is not."""
    ids = list(range(count))
    memo = ChainMemo(salt=5)

    expected = naive_chain(naive_locals(ids, 4), 4)

    assert expected == unpacked(memo.hash_image(u32(ids), 4))
    assert expected == unpacked(memo.hash_image(u32(ids), 4))


def test_whatever_was_asked_before() -> None:
    """Shared beginnings, other adapters, sizes and extras do not disturb each other."""
    draw = random.Random(3)
    memo = ChainMemo(salt=draw.getrandbits(64), secret=b"s")
    stems = [[draw.randrange(2**32) for _ in range(4 * STEP)] for _ in range(3)]

    for _ in range(200):
        stem = draw.choice(stems)[: draw.randrange(4 * STEP)]
        tokens = u32(stem + [draw.randrange(2**32) for _ in range(draw.randrange(20))])
        block_size = draw.choice([1, 4, 8, 16])
        lora_name = draw.choice([None, "ad", "ad2"])
        extras = draw.choice([None, {0: item(b"S", b"x")}, {1: b"y", 40: b"z"}])
        got = unpacked(memo.hash_image(tokens, block_size, lora_name, extras))
        assert got == hash_prompt(tokens, block_size, lora_name=lora_name, extras=extras, secret=b"s")


def test_memory_is_bounded() -> None:
    """When the younger half is full it becomes the older one; what is asked for again comes back young."""
    memo = ChainMemo(salt=1)
    first = u32(range(CHUNK_BLOCKS))
    expected = hash_prompt(first, 1)

    assert expected == unpacked(memo.hash_image(first, 1))
    for number in range(CHUNKS_MAX + 1):
        memo.hash_image(u32([number] * CHUNK_BLOCKS), 1)
    assert len(memo._chunks.young) <= 2
    assert CHUNKS_MAX == len(memo._chunks.old)
    assert expected == unpacked(memo.hash_image(first, 1))
    for number in range(2 * CHUNKS_MAX):
        memo.hash_image(u32([number, 7] * (CHUNK_BLOCKS // 2)), 1)

    assert len(memo._chunks.young) <= CHUNKS_MAX
    assert len(memo._chunks.old) <= CHUNKS_MAX
    assert expected == unpacked(memo.hash_image(first, 1))


def test_digests_differ_between_processes() -> None:
    """What one process remembers a prompt by is not known outside it."""
    one, other = ChainMemo(salt=1), ChainMemo(salt=2)
    one.hash_image(u32(range(CHUNK_BLOCKS)), 1)
    other.hash_image(u32(range(CHUNK_BLOCKS)), 1)

    assert set(one._chunks.young).isdisjoint(other._chunks.young)
    assert list(one._chunks.young.values()) == list(other._chunks.young.values())


@pytest.mark.parametrize("held", [0, 1, CHUNK_BLOCKS, 2 * CHUNK_BLOCKS - 1, 2 * CHUNK_BLOCKS, 4 * CHUNK_BLOCKS])
def test_hashing_may_end_where_nobody_holds_a_block(held: int) -> None:
    """Never before the first that is not held, whatever is remembered; remembered ends cost nothing and are told."""
    ids = list(range(3 * STEP + 9))
    expected = hash_prompt(u32(ids), 4)
    known = set(expected[:held])
    memo = ChainMemo(salt=5)

    first = unpacked(memo.hash_image(u32(ids), 4, go_on=known.__contains__))

    assert min(held + 1, len(expected)) <= len(first) < held + 1 + CHUNK_BLOCKS
    assert expected[: len(first)] == first
    assert expected == unpacked(memo.hash_image(u32(ids), 4))
    again = unpacked(memo.hash_image(u32(ids), 4, go_on=known.__contains__))
    assert expected[: len(again)] == again
    assert len(first) <= len(again)


def test_what_is_forgotten_is_hashed_anew() -> None:
    """And a start told by digests is not known any more."""
    ids = range(CHUNK_TOKENS)
    memo = ChainMemo()
    expected = memo.hash_image(u32(ids), 16)
    start = [chunk_digest(u32(ids), 0)]
    assert expected == memo.hash_image(b"", 16, start=start)

    memo.forget()

    assert memo.hash_image(b"", 16, start=start) is None
    assert expected == memo.hash_image(u32(ids), 16)


def test_a_start_that_nobody_holds_on_from_need_not_be_known() -> None:
    """A chunk that was never hashed, since nobody held its parent, is not asked for again by its tokens."""
    ids = range(3 * CHUNK_TOKENS)
    blocks = CHUNK_TOKENS // 16
    memo = ChainMemo()
    expected = hash_prompt(u32(ids), 16)
    first = memo.hash_image(u32(ids[:CHUNK_TOKENS]), 16)
    start = [chunk_digest(u32(ids[at : at + CHUNK_TOKENS]), 0) for at in (0, CHUNK_TOKENS)]

    def ask(held: int) -> bytes | None:
        return memo.hash_image(u32(ids[2 * CHUNK_TOKENS :]), 16, go_on=set(expected[:held]).__contains__, start=start)

    assert first == ask(blocks - 1)
    assert ask(blocks) is None
    assert memo.hash_image(b"", 16, start=start) is None


@pytest.mark.parametrize("count", [0, 1, CHUNK_BLOCKS - 1, CHUNK_BLOCKS, CHUNK_BLOCKS + 1, 3 * CHUNK_BLOCKS + 7])
def test_local_hashes_are_chained_as_those_of_tokens(count: int) -> None:
    """The first time, again, and never together with chunks of tokens."""
    ids = list(range(4 * count))
    memo = ChainMemo(salt=5, secret=b"s")
    locals_ = naive_locals(ids, 4)
    image = b"".join(local.to_bytes(8, "big") for local in locals_)
    expected = naive_chain(locals_, 4, b"s")

    memo.hash_image(image, 4)
    for _ in range(2):
        assert expected == unpacked(memo.chain_image(image, 4))
    for held in (0, CHUNK_BLOCKS, count):
        told = unpacked(ChainMemo(secret=b"s").chain_image(image, 4, set(expected[:held]).__contains__))
        assert min(held + 1, count) <= len(told)
        assert expected[: len(told)] == told


def test_no_adapter_can_be_chosen_so_that_chunks_meet() -> None:
    """The hash a chunk continues from and the adapter's seed are told apart, whatever they add up to."""
    ids = u32(range(2 * CHUNK_TOKENS))
    memo = ChainMemo()
    name, other = "adapter", "another"
    memo.hash_image(ids, 16, name)
    keys = list(memo._chunks.young)

    assert all(
        (digest, parent ^ local_seed(name) ^ local_seed(other), local_seed(other)) not in keys
        for digest, parent, _ in keys
    )
    assert {local_seed(name)} == {seed for _, _, seed in keys}
    assert hash_prompt(ids, 16, lora_name=other) == unpacked(memo.hash_image(ids, 16, other) or b"")


@given(st.integers(0, 3), st.integers(0, 600), st.integers(0, 40))
def test_spans_change_nothing(prefix: int, length: int, cut: int) -> None:
    """Prompts of many chunks, asked again with other ends: as if nothing had been remembered."""
    memo = ChainMemo(7)
    chunks = [struct.pack(f"<{CHUNK_TOKENS}I", *[number % 11] * CHUNK_TOKENS) for number in range(2 * SPAN_CHUNKS + 1)]
    whole = b"".join(chunks[prefix:])
    tail = struct.pack(f"<{length}I", *range(length))
    for tokens in (whole, whole + tail, whole[: -cut * 64 or None], b"".join(chunks[: prefix + SPAN_CHUNKS]) + tail):
        for _ in range(2):
            hashes = hash_prompt(tokens, 16)
            assert struct.pack(f"<{len(hashes)}Q", *hashes) == memo.hash_image(tokens, 16)
    held = set(hash_prompt(whole, 16)[:-1])
    hashes = hash_prompt(whole + tail, 16)
    image = ChainMemo().hash_image(whole + tail, 16, go_on=held.__contains__)
    assert image is not None
    assert unpacked(image) == hashes[: len(image) // 8]
    assert len(image) // 8 >= len(held)


def test_spans_are_bounded() -> None:
    """And forgotten with the rest."""
    memo = ChainMemo()
    span = CHUNK_TOKENS * SPAN_CHUNKS
    tokens = struct.pack(f"<{3 * span}I", *range(3 * span))
    memo.hash_image(tokens, 16)
    assert 3 == len(memo._spans.young)

    memo.forget()
    assert not memo._spans.young
