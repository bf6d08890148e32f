"""The hash formula: frozen values, and the same values from a naive loop over the xxhash package.

Routers may hash by themselves, and stored hashes outlive a release: a value that changes here is a new scheme.
"""

from __future__ import annotations

from typing import Any

import pytest

from indexer.hashing.chain import SCHEME, chained, hash_prompt, local_hashes, local_seed, root_seed
from tests.support.core_events import u32
from tests.support.core_hashing import item, naive_chain, naive_locals

IDS = list(range(1, 33))
AD1: dict[str, Any] = {"lora_name": "ad1"}
SALT = {0: item(b"S", b"s1")}
IMAGE = {0: item(b"M", b"12:img"), 1: item(b"M", b"-4:img")}
LOOKAHEAD = {0: item(b"L", u32([17])), 1: item(b"L", u32([33]))}
ALL = {block: IMAGE[block] + SALT.get(block, b"") + LOOKAHEAD[block] for block in (0, 1)}
VECTORS: list[tuple[list[int], int, dict[str, Any], list[int], list[int]]] = [
    (IDS, 16, {}, [0xEA06FC71A5EE6E88, 0x1FBF39BD106BE0B5], [0x1FE1295D855E39DD, 0x6EBE1D0C3C89815C]),
    (list(range(8)), 4, {}, [0x7EE2CBEDC694AB46, 0xA8416CFD935BDB13], [0x3384B86B651E9129, 0xF382C4E46C1E84FF]),
    (IDS, 16, AD1, [0xF9D2359DB6D8036B, 0x83111545CDFF5798], [0xF7CD5F4AAC470D70, 0xC9717E155AD8C3DC]),
    (IDS, 16, {"extras": SALT}, [0xBE3D0CDF2B955ACD, 0x1FBF39BD106BE0B5], [0x62F264515B38B5D0, 0xA0605ADD8975266D]),
    (IDS, 16, {"extras": IMAGE}, [0x2213DA777170CE35, 0x47401345D6CC1BDF], [0x90595E6685A61DB5, 0x6499C8370905EA64]),
    (
        IDS,
        16,
        {"extras": LOOKAHEAD},
        [0x48D5165FF88394DF, 0xB567EF086E1E905B],
        [0xE654E7734207D840, 0x02A52F49534EC2AE],
    ),
    (
        IDS,
        16,
        {**AD1, "extras": ALL},
        [0x356525F0284FAFD0, 0xD6F906A16603A486],
        [0x23FA1F27A673774B, 0x4583E04EC7195A8E],
    ),
    (
        [2**32 - 1] * 4 + [0] * 4,
        4,
        {},
        [0xAC3B1B1159A1E879, 0xB841D0DF72B4A1B8],
        [0x8242BEB8C83FC375, 0xC22A5D2F6CC21D38],
    ),
]


@pytest.mark.parametrize(("token_ids", "block_size", "extra", "locals_", "chain"), VECTORS)
def test_vectors(
    token_ids: list[int], block_size: int, extra: dict[str, Any], locals_: list[int], chain: list[int]
) -> None:
    """Local hashes, token hashes, and the naive loop agree with the frozen values."""
    tokens = u32(token_ids)

    assert locals_ == [int.from_bytes(each, "big") for each in local_hashes(tokens, block_size, **extra)]
    assert chain == hash_prompt(tokens, block_size, **extra)
    assert locals_ == naive_locals(token_ids, block_size, **extra)
    assert chain == naive_chain(locals_, block_size)


def test_a_deployment_secret_keys_the_chain() -> None:
    """Not the local hashes: these leave no process with a secret."""
    tokens = u32(IDS)

    assert [0x99D44B3F4F3269E0, 0xB478F2A17978AD2C] == hash_prompt(tokens, 16, secret=b"pepper")
    assert naive_chain(naive_locals(IDS, 16), 16, b"pepper") == hash_prompt(tokens, 16, secret=b"pepper")


def test_roots_and_seeds() -> None:
    """Root: scheme, block size, secret. Local seed: 1337, an adapter's name folded in as Dynamo does."""
    assert "kvi1" == SCHEME
    assert 0xE2F091993F29595E == root_seed(16)
    assert 0x083D2D141B5A8F3F == root_seed(16, b"pepper")
    assert 1337 == local_seed(None) == local_seed("")
    assert 0xEDCEC53386B9D01D == local_seed("ad1")
    assert 3 == len({root_seed(16), root_seed(32), root_seed(16, b"x")})


def test_an_adapter_name_need_not_be_text_that_anyone_can_write() -> None:
    """A lone surrogate is a name like any other."""
    assert local_seed("\ud800") != local_seed("\ud801")


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 63 * 16, 64 * 16, 64 * 16 + 15, 65 * 16, 129 * 16 + 1])
def test_only_whole_blocks_of_any_number(count: int) -> None:
    """A partial tail has no hash; chunks in which blocks are cut leave no seam."""
    ids = [7 * number % 2**32 for number in range(count)]

    got = hash_prompt(u32(ids), 16)

    assert naive_chain(naive_locals(ids, 16), 16) == got
    assert count // 16 == len(got)


def test_extras_of_blocks_that_are_not_there() -> None:
    """Are left alone: an image may begin in the partial tail."""
    assert hash_prompt(u32(IDS), 16) == hash_prompt(u32(IDS), 16, extras={2: b"x", -1: b"y"})


def test_a_run_goes_on_from_its_parent() -> None:
    """Chaining piece by piece gives the hashes of the whole: what a store with a parent does."""
    whole = hash_prompt(u32(range(64)), 16)
    locals_ = list(local_hashes(u32(range(64)), 16))

    head = chained(locals_[:2], root_seed(16))
    assert whole == head + chained(locals_[2:], head[-1])
    assert [] == chained([], 5)


def test_equal_blocks_at_two_places_are_two_hashes() -> None:
    """The chain tells position: no middle block is taken for another prompt's first."""
    same = [5] * 16

    assert 3 == len(set(hash_prompt(u32(same * 3), 16)))
    assert 1 == len(set(local_hashes(u32(same * 3), 16)))
