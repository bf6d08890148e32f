"""Map fields and values: everything survives the round trip, damage is told, the common case is small."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.model import Tier
from indexer.store.copies import COUNT_MAX, SECOND_MAX, Announced, Copies
from indexer.store.failures import DamagedValue
from indexer.store.layout import segment_of
from indexer.store.segments import (
    STEP_FIELDS,
    Change,
    Field,
    Parked,
    Placed,
    Unnamed,
    Value,
    by_segment,
    decode_field,
    decode_value,
    encode_field,
    encode_value,
    packed_in_steps,
)

u64 = st.integers(0, 2**64 - 1)
copies: st.SearchStrategy[Copies] = st.dictionaries(st.sampled_from(Tier), st.integers(0, COUNT_MAX), min_size=1).map(
    lambda counts: tuple(sorted(counts.items()))
)
eras = st.just(0) | st.integers(0, 300) | u64
own: st.SearchStrategy[Copies] = st.tuples(st.tuples(st.sampled_from(Tier), st.integers(0, COUNT_MAX)))


@st.composite
def parts(draw: st.DrawFn) -> Placed:
    """Of a placed block's value."""
    held = draw(copies)
    mortal = sorted(draw(st.sets(st.sampled_from([tier for tier, _ in held]))))
    announced = tuple((tier, draw(st.integers(0, SECOND_MAX))) for tier in mortal)
    return Placed(draw(u64), held, draw(eras), draw(u64), announced)


placed = st.lists(parts(), min_size=1, max_size=5).map(tuple)
waiting = st.builds(
    Parked, u64, st.binary(min_size=8, max_size=8), own, st.just(()) | copies, eras, st.booleans()
) | st.builds(Unnamed, copies, eras)
entries = st.one_of(
    st.tuples(st.builds(Field, u64, st.integers(0, 65_535), st.just(value=False)), placed),
    st.tuples(st.builds(Field, u64, st.integers(0, 65_535), st.just(value=True)), waiting),
)


@given(entries)
def test_everything_survives(entry: tuple[Field, Value]) -> None:
    """Field and value come back as they were."""
    field, value = entry

    assert field == decode_field(encode_field(field))
    assert value == decode_value(field, encode_value(value))


@given(st.sets(st.builds(Field, u64, st.integers(0, 65_535), st.booleans()), min_size=2))
def test_two_fields_are_never_one(fields: set[Field]) -> None:
    """Group and kind are part of the name."""
    assert len(fields) == len({encode_field(field) for field in fields})


@given(st.binary(max_size=40), st.booleans())
def test_any_bytes_are_a_value_or_damage(data: bytes, is_waiting: bool) -> None:
    """Never another error."""
    try:
        value = decode_value(Field(1, 0, is_waiting), data)
    except DamagedValue:
        return
    assert decode_value(Field(1, 0, is_waiting), encode_value(value)) == value


@pytest.mark.parametrize("value", [Parked(1, b"12345678", ((Tier.GPU, 1),)), Unnamed(((Tier.GPU, 1),))])
def test_a_byte_too_many_is_damage(value: Value) -> None:
    """Not passed over: it would be another version's."""
    field = Field(1, 0, waiting=True)
    assert value == decode_value(field, encode_value(value))
    with pytest.raises(DamagedValue):
        decode_value(field, encode_value(value) + b"\x00")


@pytest.mark.parametrize(
    "tiers",
    [b"\x00", b"\x20", b"\x40", b"\x80", b"\x24", b"\x24\x00", b"\x24\x08\x01\x02\x03\x04", b"\x24\x04\x01\x02\x03"],
)
def test_tiers_that_are_none_are_damage(tiers: bytes) -> None:
    """Nor is an era, a count or an announcement taken for granted that does not follow, or is of no tier."""
    with pytest.raises(DamagedValue):
        decode_value(Field(1, 0), b"12345678" * 2 + tiers)


def test_what_waits_has_no_announcement() -> None:
    """Its time to live begins when it is placed."""
    with pytest.raises(DamagedValue):
        decode_value(Field(1, 0, waiting=True), b"\x24\x04\x01\x02\x03\x04")


@pytest.mark.parametrize("announced", [((Tier.CPU, 1),), ((Tier.GPU, 1), (Tier.GPU, 1))])
def test_an_announcement_is_of_a_tier_that_holds_it(announced: Announced) -> None:
    """Once."""
    with pytest.raises(ValueError, match="announced"):
        encode_value((Placed(9, ((Tier.GPU, 1),), announced=announced),))


def test_a_parked_block_lies_on_one_tier() -> None:
    """Where it was stored; what else was told of it stands beside."""
    with pytest.raises(ValueError, match="copies"):
        encode_value(Parked(1, b"12345678", ((Tier.GPU, 1), (Tier.CPU, 1))))


@given(st.binary(max_size=12))
def test_any_bytes_are_a_field_or_damage(data: bytes) -> None:
    """And what is a field is written one way only."""
    try:
        field = decode_field(data)
    except DamagedValue:
        return
    assert data == encode_field(field)


def test_the_common_case_is_small() -> None:
    """One copy on one tier of group 0; with counts on all tiers it still fits Redis's smallest string.

    So does a copy with the second of its announcement, whichever other tier has one, too.
    """
    every = tuple((tier, 2) for tier in Tier)
    stored_away = ((Tier.GPU, 1), (Tier.STORAGE, 1))

    assert (8, 17) == (len(encode_field(Field(7, 0))), len(encode_value((Placed(9, ((Tier.GPU, 1),)),))))
    assert 22 == len(encode_value((Placed(9, every),)))
    assert 22 == len(encode_value((Placed(9, stored_away, announced=((Tier.STORAGE, SECOND_MAX),)),)))


def test_a_count_saturates() -> None:
    """More copies than a byte holds are 255."""
    value = encode_value((Placed(9, ((Tier.CPU, 300),)),))

    assert (Placed(9, ((Tier.CPU, 255),)),) == decode_value(Field(7, 0), value)


@pytest.mark.parametrize("nothing", [(), ((Tier.GPU, 1), (Tier.GPU, 2))])
def test_no_value_says_nothing(nothing: Copies) -> None:
    """A field without copies is taken out instead."""
    with pytest.raises(ValueError, match="copies"):
        encode_value(Unnamed(nothing))


def test_changes_are_sorted_by_segment() -> None:
    """Each into the segment that holds its engine hash; without a value it is taken out."""
    keys = [b"s0", b"s1", b"s2", b"s3"]
    fields = [encode_field(Field(number, number % 3)) for number in range(100)]
    changes = [Change(field, None if number % 2 else b"v") for number, field in enumerate(fields)]

    sorted_ = by_segment(changes, keys)

    assert set(keys) == {segment.key for segment in sorted_}
    for segment in sorted_:
        mine = [change for n, change in enumerate(changes) if segment_of(n, 4) == keys.index(segment.key)]
        assert [word for change in mine if change.value for word in change] == segment.sets
        assert [change.field for change in mine if change.value is None] == segment.outs


def test_the_order_of_tiers_does_not_matter() -> None:
    """One set of copies has one form."""
    there, back = ((Tier.GPU, 1), (Tier.CPU, 1)), ((Tier.CPU, 1), (Tier.GPU, 1))

    assert encode_value(Unnamed(there)) == encode_value(Unnamed(back))


def test_many_changes_are_packed_as_few() -> None:
    """In steps; sets and fields that go, each in its segment."""
    fields = {encode_field(Field(n * 2**40 + n, n % 3)): None if n % 7 == 0 else b"v" * (n % 40) for n in range(5_003)}
    keys = [b"0", b"1", b"2"]
    steps = packed_in_steps(fields, keys)

    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            packed = end.value
            break
        count += 1

    changes = [Change(field, value) for field, value in fields.items()]
    assert {part.key: part.packed for part in by_segment(changes, keys)} == dict(packed)
    assert count > len(fields) // STEP_FIELDS


def test_no_changes_are_packed_as_none() -> None:
    """As where only facts or a cursor changed."""
    with pytest.raises(StopIteration) as end:
        next(packed_in_steps({}, [b"0"]))

    assert [] == end.value.value
