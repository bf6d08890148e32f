"""vLLM batches: fields, spellings of hashes, media, and what becomes of an event that is not as it should be."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from indexer.decode import vllm
from indexer.decode.vllm import decode, pack_tokens, tier_of
from indexer.model import AllCleared, BlocksRemoved, BlocksStored, Event, Skipped, Tier
from tests.support.core_events import CLEARED, as_array, payload, removed, stored, u32

PATHS = [decode, vllm._decode_tolerant]
BIG = 2**64 - 1


def one(*events: object, path: Any = decode) -> Event:  # noqa: ANN401  either path
    """The only event of a batch."""
    batch = path(payload(*events))
    assert batch is not None
    (event,) = batch.events
    return event


def flat(events: list[Event]) -> list[object]:
    """Events with removals taken apart, as the two paths may join neighbours or not."""
    out: list[object] = []
    for event in events:
        if isinstance(event, BlocksRemoved):
            out += [(value, event.tier, event.group) for value in event.hashes]
        else:
            out.append(event)
    return out


# -- the envelope ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("envelope", "ts", "rank"),
    [
        ([1.5, [], 2], 1.5, 2),
        ([1.5, [], None], 1.5, None),
        ([1.5, []], 1.5, None),
        ([1.5, [], 2, "later field"], 1.5, 2),
        ([1_700_000_000_123, [], 0], 1_700_000_000_123.0, 0),  # Mooncake: integer milliseconds
        ([1.5, [], "rank"], 1.5, None),
        ({"ts": 1.5, "events": [], "data_parallel_rank": 3}, 1.5, 3),
        ({"events": [], "ts": 2}, 2.0, None),
    ],
)
def test_envelopes(envelope: object, ts: float, rank: int | None) -> None:
    """An array of two or more, or a map; the stamp an int or a float."""
    batch = decode(msgspec.msgpack.encode(envelope))

    assert batch is not None
    assert (ts, [], rank) == (batch.ts, batch.events, batch.dp_rank)


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\xc1",
        b"\x93",
        b"not msgpack at all",
        msgspec.msgpack.encode(5),
        msgspec.msgpack.encode([1.5]),
        msgspec.msgpack.encode([True, []]),
        msgspec.msgpack.encode(["1.5", []]),
        msgspec.msgpack.encode([1.5, {}]),
        msgspec.msgpack.encode({"events": []}),
        msgspec.msgpack.encode([1.5, []]) + b"\x00",
        b"\x93\xcb" + bytes(8) + b"\x91" * 100_000,
        b"\x92\xcb" + bytes(8) + b"\x91" * 5_000 + b"\xc0",
    ],
    ids=lambda raw: raw[:12].hex() or "empty",
)
def test_what_is_no_batch_at_all(garbage: bytes) -> None:
    """None, never an exception: also for cut, trailing and absurdly nested bytes."""
    assert decode(garbage) is None


def test_nesting_inside_one_field_costs_no_exception() -> None:
    """A field whose type is open may hold anything, also ten thousand lists in each other."""
    mark = "nest here"
    deep = payload(stored([1], [1, 2, 3, 4], extra_keys=[mark])).replace(
        msgspec.msgpack.encode(mark), b"\x91" * 10_000 + b"\xc0"
    )

    assert decode(deep) is None


@pytest.mark.parametrize("count", [1, 2, 15, 16, 40, 70_000])
@pytest.mark.parametrize("form", ["map", "array"])
def test_any_number_of_events(form: str, count: int) -> None:
    """Short, 16-bit and 32-bit lists of events, in both forms."""
    event: object = as_array(removed(7)) if form == "array" else removed(7)

    batch = decode(payload(*[event] * count))

    assert batch is not None
    assert [(7, Tier.GPU, 0)] * count == flat(batch.events)
    assert count == sum(event.events for event in batch.events if isinstance(event, BlocksRemoved))


# -- stores ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("form", ["map", "array"])
def test_every_field_of_a_store(form: str, path: Any) -> None:  # noqa: ANN401  either path
    """Both forms and both paths say the same."""
    event = stored(
        [5, BIG],
        range(8),
        parent=4,
        medium="CPU",
        lora_id=3,
        lora_name="ad",
        extra_keys=[["ad", "s"], None],
        group_idx=2,
        kv_cache_spec_kind="sliding_window",
        kv_cache_spec_sliding_window=128,
    )

    got = one(as_array(event) if form == "array" else event, path=path)

    assert got == BlocksStored(
        hashes=(5, BIG),
        parent=4,
        tokens=u32(range(8)),
        tokens_ok=True,
        block_size=4,
        tier=Tier.CPU,
        lora_name="ad",
        extra_keys=(["ad", "s"], None),
        group=2,
        kind="sliding_window",
        window=128,
    )


@pytest.mark.parametrize("length", [5, 6, 7, 8, 9, 10, 11, 12])
def test_arrays_of_every_age(length: int) -> None:
    """Releases appended fields; what is not there counts as nil."""
    event = as_array(stored([5], [1, 2, 3, 4], lora_name="ad", group_idx=1), length=length)

    got = one(event)

    assert isinstance(got, BlocksStored)
    assert ((5,), 4, Tier.GPU) == (got.hashes, got.block_size, got.tier)
    assert ("ad" if length > 7 else None) == got.lora_name
    assert (1 if length > 9 else 0) == got.group


def test_later_fields_are_stepped_over() -> None:
    """Unknown keys of a map and extra positions of an array mean nothing."""
    event = stored([5], [1, 2, 3, 4])

    assert one(event) == one({**event, "session_id": "x", "ownership": "kvcr", "new": [1, {"a": 2}]})
    assert one(as_array(event)) == one([*as_array(event), "more", 7])


def test_a_missing_medium_is_gpu() -> None:
    """The field is younger than the events."""
    event = stored([5], [1, 2, 3, 4])
    del event["medium"]

    assert one(event) == one(stored([5], [1, 2, 3, 4], medium="GPU"))


def test_remote_locality_outweighs_the_medium() -> None:
    """What lies elsewhere is remote, whatever it lies on; LOCAL and unspecified change nothing."""
    assert Tier.REMOTE == getattr(one(stored([5], (), block_size=0, medium="CPU", locality="REMOTE")), "tier", None)
    assert Tier.CPU == getattr(one(stored([5], (), block_size=0, medium="CPU", locality="LOCAL")), "tier", None)
    assert Tier.REMOTE == getattr(one(removed(5, medium="CPU", locality="REMOTE")), "tier", None)


@pytest.mark.parametrize("path", PATHS)
def test_lookahead_tokens(path: Any) -> None:  # noqa: ANN401  either path
    """One list a block; all empty is none."""
    with_tokens = one(stored([5, 6], range(8), lookahead_token_ids=[[4], [8]]), path=path)
    without = one(stored([5, 6], range(8), lookahead_token_ids=[[], []]), path=path)

    assert isinstance(with_tokens, BlocksStored)
    assert isinstance(without, BlocksStored)
    assert (([4], [8]), None) == (with_tokens.lookahead, without.lookahead)


@pytest.mark.parametrize("extra_keys", [None, [], [None, None], [[], None]])
def test_extra_keys_that_say_nothing(extra_keys: object) -> None:
    """Are none."""
    got = one(stored([5, 6], range(8), extra_keys=extra_keys))

    assert isinstance(got, BlocksStored)
    assert got.extra_keys is None


@pytest.mark.parametrize("token_ids", [[[1, 2], [2, 3]], ["a"], [1, -1], [2**32], [1.5], [None]])
def test_tokens_that_are_no_u32(token_ids: list[object]) -> None:
    """SGLang's pairs, TensorRT-LLM's strings: the event stays, usable by its hashes alone."""
    for event in (stored([5], token_ids), as_array(stored([5], token_ids))):
        got = one(event)
        assert isinstance(got, BlocksStored)
        assert ((5,), b"", False) == (got.hashes, got.tokens, got.tokens_ok)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("parent", "extra"), [(None, (["s"], None)), (4, None)])
def test_sglang_salts_the_first_block_of_a_prompt(path: Any, parent: int | None, extra: object) -> None:  # noqa: ANN401
    """It names the salt beside every event; it enters the block at token 0 and the chain carries it."""
    got = one(stored([5, 6], range(8), parent, cache_salt="s"), path=path)

    assert isinstance(got, BlocksStored)
    assert extra == got.extra_keys


def test_a_salted_event_without_hashes() -> None:
    """Has no block to salt."""
    got = one(stored([], range(4), cache_salt="s"))

    assert isinstance(got, BlocksStored)
    assert got.extra_keys is None


@pytest.mark.parametrize(
    "broken",
    [
        {"block_hashes": "x"},
        {"block_hashes": None},
        {"block_hashes": ["x"]},
        {"block_hashes": [1.5]},
        {"block_hashes": [True]},
        {"block_hashes": [None]},
        {"block_hashes": [b"short"]},
        {"parent_block_hash": 1.5},
        {"parent_block_hash": "x"},
        {"parent_block_hash": b"short"},
        {"token_ids": None},
        {"token_ids": 5},
        {"block_size": None},
        {"block_size": -1},
        {"block_size": 4.0},
    ],
    ids=str,
)
def test_a_broken_store_is_skipped_alone(broken: dict[str, object]) -> None:
    """Its neighbours in the batch stay. What it would have added is missing, nothing held becomes false."""
    event = {**stored([5], [1, 2, 3, 4]), **broken}

    for form in (event, as_array(event)):
        batch = decode(payload(removed(1), form, CLEARED))
        assert batch is not None
        assert [(1, Tier.GPU, 0), Skipped("stored_malformed", suspect=False), AllCleared()] == flat(batch.events)


def test_a_store_without_a_parent_field_is_broken() -> None:
    """A parent that was not told is not "no parent": taken for a root, the blocks would be found in wrong prompts."""
    event = stored([5], [1, 2, 3, 4])
    del event["parent_block_hash"]

    assert Skipped("stored_malformed", suspect=False) == one(event)


@pytest.mark.parametrize(
    "odd",
    [
        {"lora_name": 7},
        {"extra_keys": "x"},
        {"group_idx": "1"},
        {"kv_cache_spec_kind": ["x"]},
        {"kv_cache_spec_sliding_window": 2.5},
        {"lookahead_token_ids": 5},
    ],
    ids=str,
)
def test_an_optional_field_of_another_kind_counts_as_absent(odd: dict[str, object]) -> None:
    """The block is real all the same."""
    assert one(stored([5], [1, 2, 3, 4])) == one({**stored([5], [1, 2, 3, 4]), **odd})


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


def test_a_medium_that_is_no_string_is_an_unknown_tier() -> None:
    """Never taken for GPU."""
    assert BlocksRemoved(hashes=(5,), tier=Tier.UNKNOWN) == one({**removed(5), "medium": 7})


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
