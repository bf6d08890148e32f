"""What outlives a process of a source's facts: comes back as it was; damage is told; times alone are no difference."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.index.mirror import Mirror
from indexer.index.source import SourceIndex
from indexer.index.states import SourceFacts, bound_of
from indexer.model import BlocksStored, Descriptor, GroupInfo, Tier
from indexer.store.facts import (
    Lasting,
    StoredFacts,
    TickFacts,
    pack_facts,
    restore_facts,
    same_facts,
    seen_us,
    unpack_facts,
)
from indexer.store.failures import DamagedValue

ages = st.none() | st.integers(0, 2**40)
ticks = st.builds(TickFacts, st.booleans(), ages, ages, st.lists(st.text(max_size=8), max_size=3))


class Source:
    """A source and its mirror; it may know something."""

    def __init__(self, *stores: BlocksStored) -> None:
        self.mirror = Mirror()
        self.index = SourceIndex(Descriptor(pod="pod"), self.mirror, generation=1, orphans_max=10)
        for event in stores:
            self.index.learn(event, self.mirror)

    def restore(self, data: bytes) -> None:
        restore_facts(self.index, unpack_facts(data), self.mirror)


def store(group: int, kind: str | None, window: int | None = None) -> BlocksStored:
    """What a store says of its group."""
    return BlocksStored(
        hashes=(),
        parent=None,
        tokens=b"",
        tokens_ok=True,
        block_size=4,
        tier=Tier.GPU,
        group=group,
        kind=kind,
        window=window,
    )


def lanes_only(*lanes: tuple[int, Tier], used: tuple[int, ...] = ()) -> bytes:
    """Facts that name these lanes."""
    source = Source()
    packed = pack_facts(source.index, 1)
    return packed[:16] + msgspec.msgpack.encode(Lasting(lanes=list(lanes), open_lanes=list(used)))


def test_everything_comes_back() -> None:
    """And is written the same again."""
    known = Source(store(0, "full_attention"), store(0, "full_attention"), store(1, "sliding_window", 9))
    source, facts = known.index, known.index.facts
    assert source.lane(1, Tier.CPU)
    assert source.lane(0, Tier.GPU)
    source.lane_table.number(0, Tier.STORAGE)  # of an earlier generation
    source.learn(store(0, "mamba"), known.mirror)
    facts.complete, facts.missed_stores, facts.stamp = True, True, 12.5
    facts.shortfalls, facts.doubts, facts.suspicions = {"waiting"}, {"gap"}, {"dropped"}
    source.block_size, source.lookahead, source.other_lookahead = 4, 1, 2
    source.adapters = {"b": None, "a": None}
    source.evicted, source.most_copies, source.map.era = True, 77, 3

    packed = pack_facts(source, 5_000_000)
    new = Source()
    new.restore(packed)

    assert packed == pack_facts(new.index, 5_000_000)
    assert (5_000_000, 12.5) == unpack_facts(packed)[:2]
    assert source.lane_table.lanes == new.index.lane_table.lanes
    assert list(source.map.lanes) == list(new.index.map.lanes)
    assert source.groups == new.index.groups
    assert ((1, GroupInfo("sliding_window", 9, 4)),) == new.index.rules
    assert (0,) == new.index.lane_table.main_groups
    assert {0: "mamba"} == {group: claim.kind for group, claim in new.index.claims.rivals.items()}
    assert ["b", "a"] == list(new.index.adapters)
    assert bound_of(facts) == bound_of(new.index.facts)


def test_of_an_empty_text_nothing_is_known() -> None:
    """As of a source that was never heard."""
    source = Source()
    source.restore(b"")

    assert StoredFacts() == unpack_facts(b"")
    assert pack_facts(Source().index, 0) == pack_facts(source.index, 0)


def test_times_alone_are_no_difference() -> None:
    """When it was written, and what the engine's clock says."""
    source = Source().index
    first = pack_facts(source, 1)
    source.facts.stamp = 5.0

    assert same_facts(first, pack_facts(source, 2))
    source.facts.doubts.add("gap")
    assert not same_facts(first, pack_facts(source, 1))
    assert not same_facts(first, b"")


def test_ghosts_are_looked_for_again() -> None:
    """What was seen of late is not stored: they are told anew, once."""
    source = Source(store(0, None))
    source.index.most_copies, source.index.evicted = 5, True
    source.index.lane(0, Tier.GPU)
    source.index.keep_gap()
    packed = pack_facts(source.index, 1)
    new = Source()
    new.restore(packed)
    ghosts = new.index.ghosts
    new.restore(packed)

    assert ghosts is not None
    assert new.index.ghosts is ghosts


def test_older_facts_name_the_first_lanes() -> None:
    """A follower reads a state and then the entries that led to it."""
    source = Source()
    source.restore(lanes_only((0, Tier.GPU), (0, Tier.CPU), used=(1,)))
    source.restore(lanes_only((0, Tier.GPU), used=(0,)))

    assert [(0, Tier.GPU), (0, Tier.CPU)] == source.index.lane_table.lanes


@pytest.mark.parametrize(
    "other",
    [
        lanes_only((0, Tier.CPU)),
        lanes_only((0, Tier.GPU), (0, Tier.GPU)),
        lanes_only((0, Tier.GPU), used=(1,)),
        lanes_only(*((0, Tier.GPU), *((group, Tier.GPU) for group in range(1, 17)))),
    ],
)
def test_other_lanes_are_damage(other: bytes) -> None:
    """What stands in the mirror would mean something else."""
    source = Source()
    source.restore(lanes_only((0, Tier.GPU)))

    with pytest.raises(DamagedValue):
        source.restore(other)


@given(st.binary(max_size=60))
def test_any_bytes_are_facts_or_damage(data: bytes) -> None:
    """Never another error."""
    try:
        facts = unpack_facts(data)
    except DamagedValue:
        return
    assert data[:1] == b"" or facts.wall_us == int.from_bytes(data[:8], "little")


@given(ticks)
def test_tick_facts_come_back(tick: TickFacts) -> None:
    """And anything else is damage."""
    assert tick == TickFacts.unpack(tick.pack())
    with pytest.raises(DamagedValue):
        TickFacts.unpack(tick.pack()[:-1])


def test_ages_are_rounded_up() -> None:
    """Never told younger than they are; None where nothing was heard."""
    source = Source().index
    source.facts = SourceFacts(1, syncing=True, message_at=2.0, suspicions={"dropped"})

    assert TickFacts(True, None, 501, ["dropped"], source.holdings) == TickFacts.of(source, 2.5005)
    assert 0 == TickFacts.of(source, 1.0).message_age_ms


def test_the_engines_time_may_be_missing() -> None:
    """NaN stands for none; engines have been seen to send what is no number."""
    source = Source().index
    source.facts.stamp = math.nan

    assert unpack_facts(pack_facts(source, 1)).stamp is None


def test_of_which_life_it_is_comes_back() -> None:
    """And whether a restart that the stream showed is still to be told."""
    source, other = Source(store(0, "full_attention")), Source()
    source.index.life, source.index.life_is_due, source.index.began_by_life = "uid/1", True, True

    other.restore(pack_facts(source.index, 7))

    assert ("uid/1", True, True) == (other.index.life, other.index.life_is_due, other.index.began_by_life)


def test_of_a_source_without_a_life_the_bytes_are_those_of_before() -> None:
    """A replica of 0.6 reads as many fields as it knows, and no more."""
    source, told = Source(store(0, "full_attention")), Source()
    told.index.life = "1"
    plain, longer = (msgspec.msgpack.decode(pack_facts(each.index, 7)[16:]) for each in (source, told))

    assert (19, 22) == (len(plain), len(longer))
    kept = Source()
    kept.index.life = "2"
    kept.restore(pack_facts(source.index, 7))  # by an owner that knew of none
    assert "2" == kept.index.life


@pytest.mark.parametrize(("alive_at", "seen"), [(None, 0), (10.0, 1_990_000_000), (30.0, 2_010_000_000)])
def test_until_when_the_engine_was_seen(alive_at: float | None, seen: int) -> None:
    """In wall time, whatever the other clock began with; an engine that was never seen, at no time."""

    class Clock:
        def now(self) -> float:
            return 20.0

        def wall_us(self) -> int:
            return 2_000_000_000

    source = Source().index
    source.facts.alive_at = alive_at
    assert seen == seen_us(source, Clock())
