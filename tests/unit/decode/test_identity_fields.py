"""Fields that say which block an event is about: one of a wrong type or range costs that event, and is never read over.

Taken for absent, a salt, an adapter or a lookahead token would leave a block that plain prompts find; a removal's tier
or group would leave a block that is gone.
"""

from __future__ import annotations

from typing import Any

import pytest

from indexer.decode import vllm
from indexer.decode.vllm import decode
from indexer.model import AllCleared, BlocksRemoved, BlocksStored, Skipped, Tier
from tests.support.core_decoded import flat, one
from tests.support.core_events import CLEARED, as_array, payload, removed, stored

PATHS = [decode, vllm._decode_tolerant]
ARRAY_FIELDS = {"lora_id", "medium", "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind"}
ARRAY_FIELDS |= {"kv_cache_spec_sliding_window"}
BAD_STORE = Skipped("stored_malformed", suspect=True)
BAD_REMOVAL = Skipped("removed_malformed", suspect=True)

ODD_STORES: list[dict[str, Any]] = [
    {"lora_id": "7"},
    {"lora_id": True},
    {"lora_id": 7.5},
    {"lora_name": 7},
    {"lora_name": ["ad"]},
    {"lora_name": {}},
    {"lora_name": {"salt": "s"}},
    {"lora_name": {"cache_salt": 5}},
    {"medium": 1},
    {"medium": ["GPU"]},
    {"extra_keys": "salt"},
    {"extra_keys": {"cache_salt": "s"}},
    {"extra_keys": {}},
    {"extra_keys": 5},
    {"extra_keys": ["salt", None]},
    {"extra_keys": ["", None]},
    {"extra_keys": [0, None]},
    {"extra_keys": [{"cache_salt": "s"}, None]},
    {"extra_keys": [["salt"]]},
    {"extra_keys": [["salt"], None, None]},
    {"group_idx": "x"},
    {"group_idx": 1.0},
    {"group_idx": False},
    {"group_idx": -1},
    {"group_idx": 2**64 - 1},
    {"kv_cache_spec_kind": 3},
    {"kv_cache_spec_kind": ["full_attention"]},
    {"kv_cache_spec_sliding_window": "128"},
    {"kv_cache_spec_sliding_window": 2.5},
    {"kv_cache_spec_kind": "sliding_window", "kv_cache_spec_sliding_window": 0},
    {"kv_cache_spec_kind": "sliding_window", "kv_cache_spec_sliding_window": -1},
    {"kv_cache_spec_kind": "sliding_window_mla", "kv_cache_spec_sliding_window": 2**63},
    {"locality": 5},
    {"locality": ["REMOTE"]},
    {"cache_salt": {"a": "s"}},
    {"cache_salt": 5},
    {"lookahead_token_ids": 5},
    {"lookahead_token_ids": {"0": [4]}},
    {"lookahead_token_ids": [[4]]},
    {"lookahead_token_ids": [[4], [8], [12]]},
    {"lookahead_token_ids": [[4], [8, 9]]},
    {"lookahead_token_ids": [[4], []]},
    {"lookahead_token_ids": [None, None]},
    {"lookahead_token_ids": [[4], "8"]},
    {"lookahead_token_ids": [["4"], ["8"]]},
    {"lookahead_token_ids": [[-1], [8]]},
    {"lookahead_token_ids": [[2**32], [8]]},
    {"lookahead_token_ids": [list(range(17))] * 2},
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("odd", ODD_STORES, ids=str)
def test_a_store_with_an_odd_field_is_skipped_alone(odd: dict[str, Any], path: Any) -> None:  # noqa: ANN401  either path
    """Its neighbours in the batch stay, and the source is suspect."""
    event = {**stored([5, 6], range(8)), **odd}

    for form in (event, as_array(event)) if odd.keys() <= ARRAY_FIELDS else (event,):
        batch = path(payload(removed(1), form, CLEARED))
        assert batch is not None
        assert [(1, Tier.GPU, 0), BAD_STORE, AllCleared()] == flat(batch.events)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "odd",
    [
        {"medium": 1},
        {"medium": ["GPU"]},
        {"medium": {}},
        {"group_idx": "x"},
        {"group_idx": 0.0},
        {"group_idx": False},
        {"group_idx": -1},
        {"group_idx": 2**64 - 1},
        {"locality": 5},
    ],
    ids=str,
)
def test_a_removal_with_an_odd_field_is_skipped_alone(odd: dict[str, Any], path: Any) -> None:  # noqa: ANN401  either path
    """It removes from no other tier or group; something believed to be held may be gone."""
    event = {**removed(5), **odd}

    for form in (event, as_array(event)) if odd.keys() <= ARRAY_FIELDS else (event,):
        batch = path(payload(removed(1), form, removed(2)))
        assert batch is not None
        assert [(1, Tier.GPU, 0), BAD_REMOVAL, (2, Tier.GPU, 0)] == flat(batch.events)


@pytest.mark.parametrize("path", PATHS)
def test_what_may_be_nil_may_be_nil(path: Any) -> None:  # noqa: ANN401  either path
    """Nil is what an absent field is."""
    nil = dict.fromkeys(vllm._OPTIONAL)

    assert one(stored([5], range(4)), path=path) == one({**stored([5], range(4)), **nil}, path=path)
    assert one(removed(5), path=path) == one(
        {**removed(5), "medium": None, "group_idx": None, "locality": None}, path=path
    )


@pytest.mark.parametrize("path", PATHS)
def test_a_removal_in_array_form_has_no_locality(path: Any) -> None:  # noqa: ANN401  either path
    """A fourth position is one of a later version, whatever stands there."""
    for later in ("REMOTE", 5):
        assert BlocksRemoved(hashes=(5,), tier=Tier.CPU) == one(["BlockRemoved", [5], "CPU", 0, later], path=path)


@pytest.mark.parametrize("path", PATHS)
def test_a_window_without_a_window_kind_means_nothing(path: Any) -> None:  # noqa: ANN401  either path
    """Full attention models that name one anyway keep all."""
    for window in (0, -1, 128, 2**63):
        got = one(
            stored([5], range(4), kv_cache_spec_kind="full_attention", kv_cache_spec_sliding_window=window), path=path
        )
        assert isinstance(got, BlocksStored)
        assert ("full_attention", None) == (got.kind, got.window)


@pytest.mark.parametrize("path", PATHS)
def test_extra_keys_of_events_that_place_nothing_by_tokens(path: Any) -> None:  # noqa: ANN401  either path
    """Sparse lists and placeholders are placed by equal engine hash: a list of another length spoils nothing."""
    for event in (
        stored([5], range(12), extra_keys=[None, None, ["s"]], group_idx=1),
        stored([5, 6], (), block_size=0, medium="CPU", extra_keys=[["s"]]),
    ):
        assert isinstance(one(event, path=path), BlocksStored)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("extra", "merged"),
    [
        ([[["img", 2]], None], ([["img", 2], "s"], None)),
        ([None, ["x"]], (["s"], ["x"])),
        ([["s"], None], (["s"], None)),
    ],
)
def test_a_salt_beside_extra_keys(path: Any, extra: list[Any], merged: object) -> None:  # noqa: ANN401  either path
    """Neither takes the other's place."""
    root = one(stored([5, 6], range(8), cache_salt="s", extra_keys=extra), path=path)
    later = one(stored([5, 6], range(8), 4, cache_salt="s", extra_keys=extra), path=path)

    assert isinstance(root, BlocksStored)
    assert isinstance(later, BlocksStored)
    assert (merged, tuple(extra)) == (root.extra_keys, later.extra_keys)


@pytest.mark.parametrize("path", PATHS)
def test_an_adapter_with_an_empty_name_is_known_by_its_number(path: Any) -> None:  # noqa: ANN401  either path
    """And never taken for the base model."""
    nameless = one(stored([5], range(4), lora_name="", lora_id=3), path=path)
    base = one(stored([5], range(4), lora_name=""), path=path)

    assert isinstance(nameless, BlocksStored)
    assert isinstance(base, BlocksStored)
    assert (one(stored([5], range(4), lora_id=3), path=path), None) == (nameless, base.lora_name)
