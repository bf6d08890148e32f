"""vLLM batches: envelopes, stores, and what becomes of a store that is not as it should be."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from indexer.decode import vllm
from indexer.decode.vllm import decode
from indexer.model import AllCleared, BlocksRemoved, BlocksStored, Skipped, Tier
from tests.support.core_decoded import flat, one
from tests.support.core_events import CLEARED, as_array, payload, removed, stored, u32

PATHS = [decode, vllm._decode_tolerant]
BIG = 2**64 - 1


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
    """Its neighbours in the batch stay. What it meant to say nobody knows: the source is suspect."""
    event = {**stored([5], [1, 2, 3, 4]), **broken}

    for form in (event, as_array(event)):
        batch = decode(payload(removed(1), form, CLEARED))
        assert batch is not None
        assert [(1, Tier.GPU, 0), Skipped("stored_malformed", suspect=True), AllCleared()] == flat(batch.events)


def test_a_store_without_a_parent_field_is_broken() -> None:
    """A parent that was not told is not "no parent": taken for a root, the blocks would be found in wrong prompts."""
    event = stored([5], [1, 2, 3, 4])
    del event["parent_block_hash"]

    assert Skipped("stored_malformed", suspect=True) == one(event)
