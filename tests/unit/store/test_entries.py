"""Journal entries: everything survives the round trip, damage is told, a block takes eight bytes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.store.entries import (
    START,
    Changed,
    Entry,
    Moved,
    Position,
    Reasserted,
    SourceChange,
    SourceTick,
    Ticked,
    Turned,
    decode_entry,
    encode_entry,
    pack_presence,
    pack_presence_in_steps,
    presence_pieces,
    unpack_presence,
)
from indexer.store.failures import DamagedValue

u64 = st.integers(0, 2**64 - 1)
names = st.binary(min_size=1, max_size=40)
sequences = st.none() | u64
facts = st.binary(max_size=40)
presences = st.lists(st.tuples(u64, st.integers(0, 0xFFFF)), max_size=40)


def change(source: bytes, generation: int, sequence: int | None, presence: list[tuple[int, int]]) -> SourceChange:
    """What a source's change looks like with this presence."""
    return SourceChange(source, generation, sequence, b"f", *pack_presence(presence))


entries: st.SearchStrategy[Entry] = st.one_of(
    st.builds(Changed, st.lists(st.builds(change, names, u64, sequences, presences), max_size=4)),
    st.builds(Turned, names, u64),
    st.builds(Reasserted, names, u64, u64),
    st.builds(Moved, names, u64, u64),
    st.builds(
        Ticked,
        u64,
        st.lists(st.builds(SourceTick, names, u64, sequences, u64, st.booleans(), facts), max_size=4),
    ),
)


@given(entries)
def test_everything_survives(entry: Entry) -> None:
    """An entry comes back as it was."""
    assert entry == decode_entry(encode_entry(entry))


@given(presences)
def test_presence_survives(presence: list[tuple[int, int]]) -> None:
    """In order, with each hash's own lanes."""
    assert presence == unpack_presence(change(b"s", 1, 0, presence))


@given(st.binary(max_size=60))
def test_any_bytes_are_an_entry_or_damage(data: bytes) -> None:
    """Never another error."""
    try:
        entry = decode_entry(data)
    except DamagedValue:
        return
    assert entry == decode_entry(encode_entry(entry))


@pytest.mark.parametrize(("hashes", "lanes"), [(b"1234567", b"11"), (b"12345678", b"1"), (b"12345678" * 2, b"111111")])
def test_presence_that_does_not_add_up_is_damage(hashes: bytes, lanes: bytes) -> None:
    """Whole hashes, and a mask for each or one for all."""
    with pytest.raises(DamagedValue):
        decode_entry(encode_entry(Changed([SourceChange(b"s", 1, 0, b"", hashes, lanes)])))


def test_an_unknown_kind_is_damage() -> None:
    """A reader that skipped it would go on with less than it was told."""
    with pytest.raises(DamagedValue):
        decode_entry(b"\x93\xa1z\x01\x02")


def test_a_block_takes_eight_bytes() -> None:
    """Where a run of blocks lies on the same lanes, as blocks of one step do."""
    small = len(encode_entry(Changed([change(b"pod-1#0", 1, 5, [(2**63, 1)] * 16)])))
    large = len(encode_entry(Changed([change(b"pod-1#0", 1, 5, [(2**63, 1)] * 1016)])))

    assert 8_010 > large - small


def test_positions_are_in_order() -> None:
    """Written as Redis writes stream ids; an epoch's entries come before the next epoch's."""
    assert Position(7, 12) == Position.parse(b"7-12")
    assert "7-12" == str(Position(7, 12))
    assert START < Position(7, 12) < Position(7, 12).next < Position(8, 1)


@pytest.mark.parametrize("text", [b"", b"7", b"7-", b"-1", b"7-x", b"7-1-1", b"+7-1", b" 7-1"])
def test_damaged_positions_are_told(text: bytes) -> None:
    """Whoever reads one must not go on from a guess."""
    with pytest.raises(DamagedValue):
        Position.parse(text)


@given(st.dictionaries(u64, st.integers(0, 2**16 - 1), max_size=20), st.integers(0, 2_500))
def test_presence_of_many_is_packed_in_steps(few: dict[int, int], more: int) -> None:
    """A step for each thousand."""
    presence = {**dict.fromkeys(range(more), 3), **few}
    steps = pack_presence_in_steps(presence)

    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            hashes, lanes = end.value
            break
        count += 1

    change = SourceChange(b"a#0", 1, None, b"", hashes, lanes)
    assert list(presence.items()) == unpack_presence(change)
    assert list(presence.items()) == [one for piece in presence_pieces(change, 512) for one in piece]
    alike = msgspec.structs.replace(change, lanes=b"\x05\x00")
    assert unpack_presence(alike) == [one for piece in presence_pieces(alike, 7) for one in piece]
    assert -(-len(presence) // 1_000) == count


def test_a_tick_tells_the_command_obeyed_last() -> None:
    """One of an earlier version does not; what is no id of a stream is damage."""
    earlier = msgspec.msgpack.encode(["t", 5, []])
    assert Ticked(5, [], b"") == decode_entry(earlier)
    assert Ticked(5, [], b"7-1") == decode_entry(encode_entry(Ticked(5, [], b"7-1")))
    for damaged in (b"7", b"x-1"):
        with pytest.raises(DamagedValue):
            decode_entry(encode_entry(Ticked(5, [], damaged)))
