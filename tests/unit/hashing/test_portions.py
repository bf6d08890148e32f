"""Hashes a portion at a time: the same as all at once, and never many in one step."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from indexer.errors import BadRequestError
from indexer.hashing.chain import LOCAL_BYTES, chained, local_hashes, root_seed
from indexer.hashing.extra_keys import query_extras
from indexer.hashing.memo import CHUNK_TOKENS, ChainMemo, chunk_digest
from indexer.hashing.portions import CHUNKS, PORTION, Extras, of_locals, of_tokens, with_extras
from schemas.lookup import MmItem
from tests.support.core_events import u32

if TYPE_CHECKING:
    from collections.abc import Iterator

IDS: Final = list(range(100, 100 + 40_000))
TOKENS: Final = u32(IDS)
MOST: Final = 8_192
CHUNK_BLOCKS_MAX: Final = 64


def joined(images: Iterator[bytes], blocks_max: int) -> bytes:
    """All of it, of which no portion is longer than that."""
    parts = list(images)
    assert all(0 < len(part) <= blocks_max * LOCAL_BYTES for part in parts)
    return b"".join(parts)


@pytest.mark.parametrize("block_size", [1, 3, 8, 16, 512, 784])
@pytest.mark.parametrize("lora_name", [None, "ad"])
def test_tokens(block_size: int, lora_name: str | None) -> None:
    """In chunks of either kind, with a rest behind them; known ones are there at once."""
    expected = ChainMemo(5).hash_image(TOKENS, block_size, lora_name)
    assert expected is not None
    memo, whole = ChainMemo(5), partial(bytes, TOKENS)
    asked = partial(of_tokens, memo, TOKENS, block_size, lora_name, start=(), whole=whole)

    few = (CHUNKS + 2) * CHUNK_BLOCKS_MAX
    assert expected[: MOST * LOCAL_BYTES] == joined(asked(most=MOST), few)
    assert expected[: 7 * LOCAL_BYTES] == joined(asked(most=7), 7)
    if len(expected) <= MOST * LOCAL_BYTES:
        assert [expected] == list(asked(most=MOST))


def test_tokens_behind_a_known_start() -> None:
    """And where the memory has lost it, from the first token on."""
    digests = [
        chunk_digest(TOKENS[at * 4 : (at + CHUNK_TOKENS) * 4], 0) for at in range(0, 4 * CHUNK_TOKENS, CHUNK_TOKENS)
    ]
    memo = ChainMemo()
    expected = memo.hash_image(TOKENS, 16)
    for asked in (memo, ChainMemo()):
        for size in (16, 3):
            images = of_tokens(
                asked,
                TOKENS[len(digests) * CHUNK_TOKENS * 4 :],
                size,
                None,
                start=digests,
                whole=lambda: TOKENS,
                most=MOST,
            )
            full = ChainMemo().hash_image(TOKENS, size) or b""
            assert full[: MOST * LOCAL_BYTES] == b"".join(images)
    assert expected is not None


@pytest.mark.parametrize("blocks", [0, 1, 31, 32, 33, 5_000, 9_000])
def test_local_hashes(blocks: int) -> None:
    """Of as many as count."""
    locals_ = b"".join(number.to_bytes(LOCAL_BYTES, "big") for number in range(blocks))
    expected = ChainMemo().chain_image(locals_[: MOST * LOCAL_BYTES], 16)

    assert expected == joined(of_locals(ChainMemo(), locals_, 16, MOST), (CHUNKS + 2) * CHUNK_BLOCKS_MAX)


@pytest.mark.parametrize(
    "extras",
    [
        Extras(cache_salt="s"),
        Extras(lookahead=1),
        Extras(lookahead=5),
        Extras([MmItem(hash="a", offset=30, length=9_000), MmItem(hash="b", offset=9_050, length=70_000)], "s", 2),
    ],
    ids=["salt", "lookahead", "lookahead longer than a block", "all"],
)
@pytest.mark.parametrize("tokens", [0, 3, 4, 4 * PORTION, 4 * PORTION + 5, 20_001])
def test_extras(extras: Extras, tokens: int) -> None:
    """Items that begin in one portion and end in another have their places; a block without its lookahead is none."""
    image, size, root = u32(IDS[:tokens]), 4, root_seed(4, b"k")
    found = query_extras(tokens=image, block_size=size, **extras._asdict())
    short = image[: max(0, len(image) - 4 * extras.lookahead)]
    expected = chained(local_hashes(short, size, "ad", found), root)[:MOST]

    images = with_extras(image, size, "ad", extras, parent=root, most=MOST)
    assert b"".join(each.to_bytes(LOCAL_BYTES, "little") for each in expected) == joined(images, PORTION)


def test_items_on_top_of_each_other_are_refused_before_the_first_portion() -> None:
    """By the call itself."""
    items = [MmItem(hash="a", offset=0, length=5), MmItem(hash="b", offset=4, length=5)]
    with pytest.raises(BadRequestError):
        with_extras(TOKENS, 4, None, Extras(items), parent=0, most=MOST)
