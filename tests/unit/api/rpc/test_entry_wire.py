"""What the core writes by hand, the generated code reads."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from indexer import entry_wire
from schemas.lookup import PodEntry, PrefixTokens, TierTokens
from schemas.rest import SourceView
from schemas.rpc.kvindexer.v1 import kvindexer_pb2
from schemas.watch import SourceStatus

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
entries = st.builds(
    PodEntry,
    pod=text,
    dp_rank=u32,
    block_size=st.none() | u32,
    matched_tokens=st.integers(1, 2**32 - 1),
    reusable_tokens=u32,
    tiers=st.builds(TierTokens, u32, u32, u32, u32, u32),
    prefix=st.builds(PrefixTokens, u32, u32, u32, u32),
    speculative_tokens=u32,
    score=st.floats(0, 1),
    state=text,
    bound=text,
    lag_ms=st.none() | u64,
    event_age_ms=st.none() | u64,
    generation=text,
    sequence=st.none() | u64,
    reason=st.none() | text,
)


def as_builtins(message: kvindexer_pb2.PodEntry) -> dict[str, object]:
    """The message as the struct's own encoding has it."""
    out: dict[str, object] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is not None:
            value = {inner.name: getattr(value, inner.name) for inner in field.message_type.fields}
        out[field.name] = None if field.has_presence and not message.HasField(field.name) and value != {} else value
    for name in ("tiers", "prefix"):
        inner = getattr(message, name)
        out[name] = {field.name: getattr(inner, field.name) for field in inner.DESCRIPTOR.fields}
    return out


@given(st.lists(entries, max_size=4))
def test_entries_are_read_as_they_were_written(written: list[PodEntry]) -> None:
    """Whole entries, one behind the other."""
    answer = kvindexer_pb2.LookupResponse.FromString(b"".join(map(entry_wire.entry, written)))

    assert [msgspec.to_builtins(each) for each in written] == [as_builtins(each) for each in answer.pods]


@given(entries)
def test_a_frame_and_what_is_held_are_an_entry(written: PodEntry) -> None:
    """In two parts, as the core keeps them."""
    written.speculative_tokens = 0
    frame = entry_wire.frame_part(written)
    held = entry_wire.held_part(
        written.matched_tokens, written.reusable_tokens, written.tiers, written.prefix, written.score
    )

    assert entry_wire.entry(written) == entry_wire.framed(frame, held)


@given(u64)
def test_varints(value: int) -> None:
    """As protobuf has them."""
    assert kvindexer_pb2.LookupResponse(took_us=value or 1).SerializeToString() == b"\x60" + entry_wire.varint(
        value or 1
    )


def test_messages_have_the_fields_of_the_structs() -> None:
    """What REST tells gRPC tells, under the same names."""
    for struct, message in (
        (PodEntry, kvindexer_pb2.PodEntry),
        (TierTokens, kvindexer_pb2.TierTokens),
        (PrefixTokens, kvindexer_pb2.PrefixTokens),
        (SourceView, kvindexer_pb2.Source),
    ):
        assert set(struct.__struct_fields__) == {field.name for field in message.DESCRIPTOR.fields}
    assert SourceStatus._fields == tuple(field.name for field in kvindexer_pb2.SourceStatus.DESCRIPTOR.fields)
