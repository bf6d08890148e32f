"""Golden payloads, byte for byte: what each of them means, whichever path decodes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from indexer.decode import vllm
from indexer.decode.vllm import decode
from indexer.model import AllCleared, BlocksRemoved, BlocksStored, Event, Tier
from tests.support.core import Core
from tests.support.core_events import TS, u32

PAYLOADS = Path(__file__).parents[2] / "golden" / "payloads"
H = 0x1122334455667788
OFFLOADED = 0x27D3D9DE7BD66F25
SGLANG = 0xF945989605C9F45F
FULL = "full_attention"


def raw(name: str) -> bytes:
    """The bytes of a golden payload."""
    return bytes.fromhex((PAYLOADS / f"{name}.hex").read_text())


def store(hashes: tuple[int, ...], token_ids: tuple[int, ...], block_size: int, **fields: object) -> BlocksStored:
    """A store as the core reads it."""
    told = {"parent": None, "tokens_ok": True, "tier": Tier.GPU, **fields}
    return BlocksStored(hashes=hashes, tokens=u32(token_ids), block_size=block_size, **told)  # type: ignore[arg-type]


MEANINGS: dict[str, tuple[list[Event], int | None]] = {
    "E1": ([store((H,), (1, 2, 3, 300), 4, kind=FULL)], 0),
    "E2": ([BlocksRemoved(hashes=(H,), tier=Tier.GPU)], 1),
    "E3": ([AllCleared()], 0),
    "E4": ([store((H,), (1, 2, 3, 300), 4, kind=FULL)], 0),
    "E5": ([BlocksRemoved(hashes=(H,), tier=Tier.GPU), AllCleared()], None),
    "E6": ([store((2**64 - 5,), (1, 2, 3, 4), 4)], None),
    "E7": ([store((OFFLOADED,), (), 0, tier=Tier.CPU)], 0),
    "E8": ([store((OFFLOADED,), (), 0, tier=Tier.CPU)], 0),
    "E9": ([store((0x5C4C2942A367378D,), tuple(range(100, 112)), 4, group=1, kind="sliding_window", window=4)], 0),
    "E10": ([store((), (200, 201, 202, 203), 4, group=1)], 0),
    "E11": (
        [
            store(
                (0x3D2C51C8C4F5D7C7, 0x0C3ED5281CEBF1D4),
                tuple(range(8)),
                4,
                lora_name="ad1",
                extra_keys=(["ad1", "s1"], ["ad1"]),
                kind=FULL,
            )
        ],
        0,
    ),
    "E12": ([store((0x563A343729B362E8,), (0, 1, 2, 3), 4, kind=FULL, lookahead=([4],))], 0),
    "E13": ([store((SGLANG,), (1, 2, 3, 4), 4), BlocksRemoved(hashes=(SGLANG,), tier=Tier.CPU)], 0),
    "E14": ([store((2**64 - 5,), (1, 2), 2, extra_keys=(["s1"],))], 1),
}


@pytest.mark.parametrize("name", sorted(MEANINGS, key=lambda name: int(name[1:])))
def test_meaning_of_a_payload(name: str) -> None:
    """Time stamp, rank and every field of every event; the path that looks at each event alone says the same."""
    events, rank = MEANINGS[name]

    for path in (decode, vllm._decode_tolerant):
        batch = path(raw(name))
        assert batch is not None
        assert (TS, events, rank) == (batch.ts, batch.events, batch.dp_rank)


def test_map_and_array_form_are_one_block() -> None:
    """E1 and E4 come from releases with different wire shapes and index the same block."""
    core = Core()
    core.engine("map").say_bytes(raw("E1"))
    core.engine("array").say_bytes(raw("E4"))

    assert {"map": 4, "array": 4} == core.ask([1, 2, 3, 300]).matched


@pytest.mark.parametrize(("ends", "matched"), [("E2", 0), ("E3", 0), ("E5", 0)])
def test_what_was_stored_goes(ends: str, matched: int) -> None:
    """A removal of the one copy, and a clear, end what E1 stored."""
    core = Core()
    engine = core.engine()
    engine.say_bytes(raw("E1"))
    engine.say_bytes(raw(ends))

    assert matched == core.ask([1, 2, 3, 300])["pod"].matched_tokens
    assert "exact" == core.ask([1, 2, 3, 300]).state


@pytest.mark.parametrize("name", ["E7", "E8"])
def test_a_placeholder_without_a_known_hash_waits(name: str) -> None:
    """No tokens, no mapping: nothing can be said of it yet, and the answer admits that more may be held."""
    core = Core()
    engine = core.engine()
    engine.say_bytes(raw(name))

    assert 0 == core.mirror.table.live
    assert (1, "lower") == (engine.source.map.waiting, core.ask([1, 2, 3, 4])["pod"].bound)


@pytest.mark.parametrize("name", ["E9", "E10"])
def test_sparse_and_empty_events_index_no_tokens(name: str) -> None:
    """Their tokens do not say which block the hash is."""
    core = Core()
    core.engine().say_bytes(raw(name))

    assert 0 == core.mirror.table.live
    assert core.unreachable([range(100, 112), range(200, 204), range(108, 112)])


def test_adapter_and_salt_enter_identity_once_each() -> None:
    """E11: both blocks under the adapter; the salt is asked for, and enters through the first block."""
    core = Core()
    core.engine().say_bytes(raw("E11"))

    assert 8 == core.ask(range(9), lora_name="ad1", cache_salt="s1")["pod"].matched_tokens
    for wrong in ({}, {"lora_name": "ad1"}, {"cache_salt": "s1"}, {"lora_name": "ad1", "cache_salt": "s2"}):
        assert 0 == core.ask(range(9), **wrong)["pod"].matched_tokens


def test_a_lookahead_hash_needs_the_next_token() -> None:
    """E12: the block is held before token 4 and before no other."""
    core = Core()
    core.engine().say_bytes(raw("E12"))

    assert 4 == core.ask([0, 1, 2, 3, 4])["pod"].matched_tokens
    assert 0 == core.ask([0, 1, 2, 3, 5])["pod"].matched_tokens
    assert "lookahead" == core.ask([0, 1, 2, 3])["pod"].reason


def test_sglang_maps_without_lora_name() -> None:
    """E13: stored on GPU; the removal names another tier and takes nothing."""
    core = Core()
    core.engine().say_bytes(raw("E13"))

    assert 4 == core.ask([1, 2, 3, 4])["pod"].prefix.gpu


def test_sglang_array_with_a_map_behind() -> None:
    """E14: the salt is part of the block."""
    core = Core()
    core.engine(dp_rank=1).say_bytes(raw("E14"))

    assert 2 == core.ask([1, 2], cache_salt="s1")["pod"].matched_tokens
    assert 0 == core.ask([1, 2])["pod"].matched_tokens
