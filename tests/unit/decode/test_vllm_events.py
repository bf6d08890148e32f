"""vLLM batches: spellings of hashes, removals, clears, unknown events, media."""

from __future__ import annotations

from typing import Any

import pytest

from indexer.decode import vllm
from indexer.decode.vllm import decode, pack_tokens, tier_of
from indexer.model import AllCleared, BlocksRemoved, BlocksStored, Skipped, Tier
from tests.support.core_decoded import flat, one
from tests.support.core_events import CLEARED, as_array, payload, removed, stored, u32

PATHS = [decode, vllm._decode_tolerant]
BIG = 2**64 - 1


# -- hashes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spelt", "value"),
    [
        (0, 0),
        (BIG, BIG),
        (-1, BIG),
        (-5, 2**64 - 5),
        (-(2**63), 2**63),
        (bytes(24) + BIG.to_bytes(8, "big"), BIG),
        (b"\xff" * 24 + (5).to_bytes(8, "big"), 5),
        ((5).to_bytes(16, "big"), 5),
        ((5).to_bytes(8, "big"), 5),
    ],
)
def test_hashes_become_u64(spelt: int | bytes, value: int) -> None:
    """Signed, unsigned and digests: the last eight bytes, big-endian."""
    for path in PATHS:
        for form in (stored([spelt, 3], range(8), spelt), as_array(stored([spelt, 3], range(8), spelt))):
            got = one(form, path=path)
            assert isinstance(got, BlocksStored)
            assert ((value, 3), value) == (got.hashes, got.parent)
        gone = one(removed(spelt, 3), path=path)
        assert isinstance(gone, BlocksRemoved)
        assert (value, 3) == gone.hashes


# -- removals and the rest ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
def test_every_field_of_a_removal(path: Any) -> None:  # noqa: ANN401  either path
    """Both forms; no hash at all is none removed."""
    event = removed(5, 6, medium="STORAGE", group_idx=3)

    for form in (event, as_array(event)):
        assert BlocksRemoved(hashes=(5, 6), tier=Tier.STORAGE, group=3) == one(form, path=path)
    assert BlocksRemoved(hashes=(), tier=Tier.GPU) == one(removed(), path=path)


def test_neighbouring_removals_of_one_lane_are_one_event() -> None:
    """GPU pools send a hash an event; order against everything else is kept."""
    batch = decode(
        payload(
            removed(1), removed(2), removed(3, group_idx=1), removed(4, medium="CPU"), CLEARED, removed(5), removed(6)
        )
    )

    assert batch is not None
    assert [
        BlocksRemoved(hashes=(1, 2), tier=Tier.GPU, events=2),
        BlocksRemoved(hashes=(3,), tier=Tier.GPU, group=1),
        BlocksRemoved(hashes=(4,), tier=Tier.CPU),
        AllCleared(),
        BlocksRemoved(hashes=(5, 6), tier=Tier.GPU, events=2),
    ] == batch.events


@pytest.mark.parametrize(
    "broken",
    [{"block_hashes": "x"}, {"block_hashes": [1.5]}, {"block_hashes": [b"short"]}, {"block_hashes": None}],
    ids=str,
)
def test_a_broken_removal_makes_the_source_suspect(broken: dict[str, object]) -> None:
    """Something that is still believed to be held may be gone."""
    event = {**removed(5), **broken}

    for form in (event, as_array(event)):
        assert Skipped("removed_malformed", suspect=True) == one(form)


def test_one_broken_removal_among_neighbours() -> None:
    """The others count."""
    batch = decode(payload(removed(1), removed(b"short"), removed(2)))

    assert batch is not None
    assert [(1, Tier.GPU, 0), Skipped("removed_malformed", suspect=True), (2, Tier.GPU, 0)] == flat(batch.events)


@pytest.mark.parametrize(
    "form", [CLEARED, ["AllBlocksCleared"], ["AllBlocksCleared", "later"], {**CLEARED, "later": 1}]
)
def test_a_clear(form: object) -> None:
    """In both forms, with later fields or without."""
    for path in PATHS:
        assert AllCleared() == one(form, path=path)


@pytest.mark.parametrize(
    ("unknown", "reason"),
    [
        ({"type": "TierBlocksCleared", "medium": "GPU"}, "unknown_kind"),
        (["BlockInactive", [1]], "unknown_kind"),
        ({"block_hashes": [1]}, "unknown_kind"),
        ({"type": ["BlockStored"]}, "unknown_kind"),
        ([], "event_malformed"),
        (7, "event_malformed"),
        (None, "event_malformed"),
        ("AllBlocksCleared", "event_malformed"),
    ],
)
def test_an_unknown_event_may_have_been_a_removal(unknown: object, reason: str) -> None:
    """It is skipped and counted alone, and the source is suspect."""
    batch = decode(payload(stored([5], [1, 2, 3, 4]), unknown, as_array(removed(6))))

    assert batch is not None
    assert [one(stored([5], [1, 2, 3, 4])), Skipped(reason, suspect=True), (6, Tier.GPU, 0)] == flat(batch.events)


def test_arrays_and_maps_in_one_batch() -> None:
    """No engine does it; no event is lost by it."""
    mixed = [as_array(stored([5], [1, 2, 3, 4])), removed(5), ["AllBlocksCleared"]]

    batch = decode(payload(*mixed))
    turned = decode(payload(*reversed(mixed)))

    assert batch is not None
    assert turned is not None
    assert flat(batch.events) == flat(turned.events)[::-1]
    assert 3 == len(batch.events)


# -- parts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("medium", "tier"),
    [
        (None, Tier.GPU),
        ("GPU", Tier.GPU),
        ("gpu", Tier.GPU),
        ("CPU", Tier.CPU),
        ("cpu", Tier.CPU),
        ("CPU_PINNED", Tier.CPU),
        ("CPU_TIER1", Tier.CPU),
        ("CPU_TIER2", Tier.CPU),
        ("STORAGE", Tier.STORAGE),
        ("DISK", Tier.STORAGE),
        ("disk", Tier.STORAGE),
        ("FS", Tier.STORAGE),
        ("OBJ", Tier.STORAGE),
        ("EXTERNAL", Tier.REMOTE),
        ("REMOTE", Tier.REMOTE),
        ("cuda:0", Tier.UNKNOWN),
        ("", Tier.UNKNOWN),
    ],
)
def test_tiers_of_media(medium: str | None, tier: Tier) -> None:
    """In any letter case; what nobody knows is unknown, never GPU."""
    assert tier == tier_of(medium)


def test_packing_tokens_needs_no_room_for_every_length() -> None:
    """Compiled packers are kept for so many lengths; beyond, packing goes on without keeping more."""
    for count in range(vllm._TOKEN_STRUCTS_MAX + 10):
        pack_tokens([0] * count)

    assert len(vllm._token_structs) <= vllm._TOKEN_STRUCTS_MAX
    assert u32(range(5_000)) == pack_tokens(list(range(5_000)))
    assert u32([2**32 - 1]) == pack_tokens([2**32 - 1])
    assert pack_tokens([2**32]) is None
