"""Any bytes at all into `decode`: events or a count, never an exception; two paths, one meaning."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from indexer.decode import vllm
from indexer.decode.large import decode_large
from indexer.decode.vllm import decode
from indexer.model import Skipped
from tests.support.core import Core, check_mirror
from tests.support.core_events import as_array, payload, removed, stored
from tests.support.core_traces import recording
from tests.support.decoded import check, digest

if TYPE_CHECKING:
    from collections.abc import Callable

PAYLOADS = [
    bytes.fromhex(path.read_text())
    for path in sorted((Path(__file__).parents[1] / "golden" / "payloads").glob("*.hex"))
]

numbers = st.integers(-(2**63), 2**64 - 1)
scalars = st.one_of(
    st.none(), st.booleans(), numbers, st.floats(), st.text(max_size=8), st.binary(max_size=40), st.just("GPU")
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.one_of(st.text(max_size=6), numbers), inner, max_size=4)
    ),
    max_leaves=12,
)
hashes = st.lists(st.one_of(numbers, st.binary(min_size=8, max_size=32)), max_size=5)


def sometimes_anything(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The field as engines send it, mostly."""
    return st.one_of(usual, usual, usual, values)


STORED_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "block_hashes": sometimes_anything(hashes),
    "parent_block_hash": sometimes_anything(st.one_of(st.none(), numbers)),
    "token_ids": sometimes_anything(st.lists(st.integers(0, 2**32 - 1), max_size=20)),
    "block_size": sometimes_anything(st.integers(0, 8)),
    "medium": sometimes_anything(st.sampled_from([None, "GPU", "cpu", "STORAGE"])),
    "lora_name": sometimes_anything(st.sampled_from([None, "ad"])),
    "extra_keys": sometimes_anything(st.one_of(st.none(), st.lists(values, max_size=5))),
    "group_idx": sometimes_anything(st.sampled_from([None, 0, 1])),
    "kv_cache_spec_kind": sometimes_anything(st.sampled_from([None, "full_attention", "sliding_window", "mamba"])),
    "kv_cache_spec_sliding_window": sometimes_anything(st.sampled_from([None, 4, 9])),
}
MAP_ONLY: dict[str, st.SearchStrategy[Any]] = {
    "locality": sometimes_anything(st.sampled_from(["LOCAL", "REMOTE"])),
    "lookahead_token_ids": sometimes_anything(st.lists(st.lists(st.integers(0, 9), max_size=2), max_size=5)),
    "cache_salt": sometimes_anything(st.text(max_size=4)),
    "session_id": values,
}
REMOVED_FIELDS = {name: STORED_FIELDS[name] for name in ("block_hashes", "medium", "group_idx")}


@st.composite
def events(draw: Callable[..., Any]) -> object:
    """One event, mostly well formed, in either form."""
    kind = draw(st.sampled_from(["BlockStored", "BlockStored", "BlockRemoved", "AllBlocksCleared", "other"]))
    if kind == "other":
        return draw(values)
    fields = {"BlockStored": STORED_FIELDS, "BlockRemoved": REMOVED_FIELDS}.get(kind, {})
    event: dict[str, Any] = {"type": kind, **draw(st.fixed_dictionaries(fields))}
    if draw(st.booleans()):
        return as_array(event)
    event |= draw(st.fixed_dictionaries({}, optional=MAP_ONLY))
    return event


@given(st.binary(max_size=400))
@example(b"")
@example(b"\xc1")
@example(b"\x93\xcb" + bytes(8) + b"\x91" * 3_000)
def test_any_bytes(raw: bytes) -> None:
    """No exception, whatever comes."""
    check(decode(raw))


@given(values)
def test_any_message_pack(value: object) -> None:
    """Well-formed bytes that mean something else."""
    check(decode(msgspec.msgpack.encode(value)))


@pytest.mark.parametrize(
    "bad",
    [
        b"\xa1\xff",  # text that is none
        b"\x81\x90\x00",  # an array as a key
        msgspec.msgpack.encode({"type": "BlockRemoved", "x": 1}).replace(b"\xa1x", b"\xa1\xfe"),
        b"\x92\xacBlockRemoved\x91\xc7\x01\x7f\x00",
        b"\xd6\xff\xff\xff\xff\xff",  # a time
    ],
)
@pytest.mark.parametrize("form", [dict, as_array])
def test_an_event_that_is_no_value_costs_itself_alone(bad: bytes, form: Callable[[object], object]) -> None:
    """Its neighbours mean what they meant, and the stream is in doubt."""
    first, last = form(stored([1, 2], range(8))), form(removed(2))
    batch, whole = decode(payload(first, msgspec.Raw(bad), last)), decode(payload(first, last))

    assert batch is not None
    assert whole is not None
    assert [whole.events[0], whole.events[1]] == [batch.events[0], batch.events[2]]
    assert isinstance(batch.events[1], Skipped)
    large = decode_large(payload(first, msgspec.Raw(bad), last))
    assert large is not None
    assert batch.events == [event for piece in large.pieces for event in piece]


@given(st.lists(events(), max_size=5), st.one_of(st.floats(), numbers), st.one_of(st.none(), numbers))
def test_both_paths_agree(batch: list[object], ts: float, rank: int | None) -> None:
    """The path that decodes a whole batch at once means what the path means that looks at each event alone."""
    raw = payload(*batch, ts=ts, rank=rank)

    check(decode(raw))
    assert digest(vllm._decode_tolerant(raw)) == digest(decode(raw))


@given(st.sampled_from(PAYLOADS), st.data())
def test_damaged_golden_payloads(raw: bytes, data: st.DataObject) -> None:
    """Flipped, cut, repeated and inserted bytes."""
    damaged = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(0, len(damaged) - 1)))
        what = data.draw(st.sampled_from(["flip", "cut", "insert", "double"]))
        if what == "flip" and damaged:
            damaged[at] ^= 1 << data.draw(st.integers(0, 7))
        elif what == "cut":
            del damaged[at : at + data.draw(st.integers(1, 8))]
        elif what == "insert":
            damaged[at:at] = data.draw(st.binary(max_size=4))
        else:
            damaged[at:at] = damaged[at : at + 16]

    check(decode(bytes(damaged)))


@given(st.lists(st.one_of(events(), st.sampled_from(PAYLOADS)), min_size=1, max_size=6))
def test_whatever_decodes_can_be_applied_and_asked_about(batches: list[object]) -> None:
    """No event of any kind stops the stream or a lookup, or makes the bookkeeping wrong; nothing is left behind."""
    core = Core()
    engine = core.engine()
    for batch in batches:
        engine.say_bytes(batch if isinstance(batch, bytes) else payload(batch))
        core.ask([1, 2, 3, 300])
        core.ask(range(16), lora_name="ad")
        check_mirror(core.mirror)
    assert not engine.source.counters["skipped.fault"]

    core.remove("pod")
    core.tidy()

    assert 0 == core.mirror.table.live
    assert 1 == len(core.mirror.book)


RIGHT: dict[str, tuple[type, ...]] = {
    "lora_id": (int,),
    "medium": (str,),
    "lora_name": (str, dict),  # a map of salts, E14
    "extra_keys": (),
    "group_idx": (int,),
    "kv_cache_spec_kind": (str,),
    "kv_cache_spec_sliding_window": (int,),
    "locality": (str,),
    "cache_salt": (str,),
    "lookahead_token_ids": (),
}


@st.composite
def wrong(draw: Callable[..., Any]) -> tuple[str, object]:
    """A field that says which block an event is about, with a value of a type it never has."""
    name = draw(st.sampled_from(sorted(RIGHT)))
    value = draw(values.filter(lambda v: v is not None and type(v) not in RIGHT[name] and not _is_list_of(name, v)))
    return name, value


def _is_list_of(name: str, value: object) -> bool:
    """Whether the value is a list as that field may have it, but for its length and ranges."""
    inner = {"extra_keys": (list, type(None)), "lookahead_token_ids": (list,)}.get(name)
    return inner is not None and isinstance(value, list) and all(isinstance(item, inner) for item in value)


@given(wrong(), st.booleans(), st.booleans())
@example(("extra_keys", "salt"), False, True)
@example(("extra_keys", [0, None]), False, True)
@example(("cache_salt", {"a": 1}), False, True)
@example(("lookahead_token_ids", [None, None]), True, True)
def test_a_wrong_identity_field_never_leaves_another_identity(
    field: tuple[str, object], later: bool, first: bool
) -> None:
    """Whatever else the event says, no question finds its blocks; what is held stays, and is in doubt."""
    core = Core()
    engine = core.engine()
    if first:
        engine.say(stored([1, 2], range(8)))
    tokens = list(range(100, 108))

    engine.say({**stored([5, 6], tokens, 2 if later else None), field[0]: field[1]})

    held = {"matched": 8 if first else 0, "skipped": 1, "doubts": {"stored_malformed"}}
    source = engine.source
    got = {
        "matched": core.ask(range(9))["pod"].matched_tokens,
        "skipped": source.counters["skipped.stored_malformed"],
        "doubts": source.facts.doubts,
    }
    assert held == got
    assert (2 if first else 0) == core.mirror.table.live == source.pairs
    assert not core.ask([*tokens, 1])["pod"].matched_tokens
    assert not core.ask([*range(8), *tokens, 1])["pod"].matched_tokens - held["matched"]


@given(wrong().filter(lambda field: field[0] in {"medium", "group_idx", "locality"}))
def test_a_wrong_lane_of_a_removal_removes_nothing_and_says_so(field: tuple[str, object]) -> None:
    """It may have been any block's."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2], range(8)), {**removed(2), field[0]: field[1]})

    entry = core.ask(range(9))["pod"]

    assert (8, "suspect", "estimate") == (entry.matched_tokens, entry.state, entry.bound)


def test_damaged_recorded_payloads() -> None:
    """Bits flipped all over real batches with many events: decoded or refused, applied without a fault."""
    draw = random.Random(7)
    messages = recording("eviction").messages[:600]
    core = Core()
    engine = core.engine()
    refused = 0

    for message in messages:
        damaged = bytearray(message.payload)
        for _ in range(draw.randrange(1, 4)):
            damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        refused += decode(bytes(damaged)) is None
        engine.say_bytes(bytes(damaged))

    assert 0 < refused < len(messages)
    assert refused == engine.source.counters["skipped.undecodable"]
    assert not engine.source.counters["skipped.fault"]
    assert "estimate" == core.ask([1])["pod"].bound
    check_mirror(core.mirror)
