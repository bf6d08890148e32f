"""Maps as fields and back: the forms, what cannot be read, slices, and what a follower shows."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from indexer.index.changes import Changes
from indexer.index.lane import SHARDS
from indexer.index.mirror import Mirror
from indexer.index.source import SourceIndex
from indexer.ingest import Ingest
from indexer.model import Descriptor, Tier
from indexer.store.copies import Copies
from indexer.store.facts import pack_facts, restore_facts, unpack_facts
from indexer.store.failures import DamagedValue
from indexer.store.lots import sorted_alike
from indexer.store.maps import (
    STEP_FIELDS,
    Restoring,
    Showing,
    encode_all,
    encode_changes,
    encode_presence,
    show_change,
)
from indexer.store.segments import (
    Field,
    Parked,
    Placed,
    Unnamed,
    Value,
    decode_field,
    decode_value,
    encode_field,
    encode_value,
)
from tests.support.core import Core, ManualClock, Speaker
from tests.support.core_events import BLOCK, placeholder, prompt, removed, stored

if TYPE_CHECKING:
    from collections.abc import Mapping

GPU: Copies = ((Tier.GPU, 1),)
LOCAL = b"12345678"
HASHES = b"1234567812345678"
"""A token hash and its parent's."""
LIFE_S = 100.0
AHEAD_S = 1_700_000_000.0
"""Of the wall clock, before the boot clock."""
STARTED = int(AHEAD_S) + 1_000
"""When a core of the tests starts, in seconds since 1970."""


@pytest.fixture
def engine() -> Speaker:
    """A source whose changes are noted."""
    engine = Core(tier_ttls={Tier.STORAGE: LIFE_S}).engine()
    engine.source.changes = Changes()
    return engine


def fields_of(engine: Speaker) -> dict[Field, Value | None]:
    """All that was noted so far, as it reads."""
    changes = engine.source.changes
    assert changes is not None
    out: dict[Field, Value | None] = {}
    for name, value in encode_changes(engine.source, changes, engine.core.mirror, AHEAD_S).items():
        field = decode_field(name)
        out[field] = None if value is None else decode_value(field, value)
    return out


def written(engine: Speaker) -> dict[bytes, bytes]:
    """The whole map."""
    return {
        change.field: change.value or b""
        for step in encode_all(engine.source, engine.core.mirror, AHEAD_S)
        for change in step
    }


class Restored:
    """A new source, to be filled; of `like` the facts are known already."""

    def __init__(
        self,
        like: SourceIndex | None = None,
        *,
        now: float = 0.0,
        ahead_s: float = AHEAD_S,
        ttls: Mapping[Tier, float] = MappingProxyType({Tier.STORAGE: LIFE_S}),
    ) -> None:
        self.mirror = Mirror()
        ingest = Ingest(self.mirror, ManualClock(), orphans_max=1_000_000, tier_ttls=ttls)
        self.source = ingest.open_source(Descriptor(pod="pod")).source
        if like is not None:
            restore_facts(self.source, unpack_facts(pack_facts(like, 1)), self.mirror)
        self.restoring = Restoring(self.source, self.mirror, now, ahead_s)

    def take(self, field: Field, value: Value) -> None:
        self.restoring.take({encode_field(field): encode_value(value)})


def tokens_of(core: Core, blocks: int, start: int = 0) -> list[int]:
    """Of a prompt of so many blocks."""
    return core.hashes(prompt(blocks, start))


# -- the forms ---------------------------------------------------------------------------------------------------------


def test_one_copy_and_none(engine: Speaker) -> None:
    """What is gone stands as None."""
    engine.say(stored([1, 2, 3], prompt(3)), removed(3))
    first, second, _ = tokens_of(engine.core, 3)

    assert {
        Field(1, 0): (Placed(first, GPU),),
        Field(2, 0): (Placed(second, GPU, 0, first),),
        Field(3, 0): None,
    } == fields_of(engine)


def test_copies_and_tiers_of_one_content_are_one_part(engine: Speaker) -> None:
    """Several on the GPU, one in the CPU's memory."""
    engine.say(stored([1], prompt(1)), stored([1], prompt(1)), placeholder([1]))
    (token,) = tokens_of(engine.core, 1)

    assert {Field(1, 0): (Placed(token, ((Tier.GPU, 2), (Tier.CPU, 1))),)} == fields_of(engine)


def test_tiers_may_name_different_contents(engine: Speaker) -> None:
    """What one tier holds under a hash is not what another does: both come back."""
    engine.say(stored([1], prompt(1)), placeholder([1]), stored([1], prompt(1, 40)))
    old, new = tokens_of(engine.core, 1)[0], tokens_of(engine.core, 1, 40)[0]

    assert {Field(1, 0): (Placed(new, GPU), Placed(old, ((Tier.CPU, 1),)))} == fields_of(engine)
    restored = Restored(engine.source)
    restored.restoring.take(written(engine))
    assert [[(1, new)], [(1, old)]] == [list(lane.items()) for lane in restored.source.map.lanes.values()]


def test_each_group_has_its_field(engine: Speaker) -> None:
    """Also where it holds nothing under that hash."""
    engine.say(stored([1], prompt(1), group_idx=0, kv_cache_spec_kind="full_attention"))
    engine.say(stored([2], prompt(1), group_idx=1, kv_cache_spec_kind="sliding_window", kv_cache_spec_sliding_window=8))

    assert {Field(1, 0), Field(1, 1)} == {field for field in fields_of(engine) if not field.waiting}
    assert {Field(2, 1, waiting=True): Unnamed(GPU)} == {f: v for f, v in fields_of(engine).items() if f.waiting and v}


def test_a_kept_gap_dates_what_is_written(engine: Speaker) -> None:
    """A 0 stands for what was announced before it, in an entry that is written after it."""
    engine.say(stored([1], prompt(1)), placeholder([1]))
    engine.lose()
    engine.gap()
    engine.say(stored([1], prompt(1)))
    (token,) = tokens_of(engine.core, 1)

    assert {Field(1, 0): (Placed(token, ((Tier.GPU, 1), (Tier.CPU, 0)), 1),)} == fields_of(engine)


def test_parked_blocks_keep_what_else_was_told(engine: Speaker) -> None:
    """A block whose parent is unknown, and announcements without tokens under the same hash."""
    engine.say(stored([2], prompt(1, BLOCK), 1), placeholder([2], "GPU"), placeholder([2]))
    value = fields_of(engine)[Field(2, 0, waiting=True)]

    assert isinstance(value, Parked)
    assert (1, GPU, ((Tier.GPU, 1), (Tier.CPU, 1))) == (value.parent, value.copies, value.others)


def test_the_whole_map_names_each_field_once(engine: Speaker) -> None:
    """In steps, also where a hash lies on several lanes, or waits in two ways."""
    count = STEP_FIELDS * 100
    source = engine.source
    for lane in (source.lane(0, Tier.GPU), source.lane(0, Tier.CPU)):
        assert lane is not None
        for number in range(count):
            lane.maps[number & 63][number] = number + 1
    engine.say(stored([2**40], prompt(1), 1), placeholder([2**40, 2**41], "GPU"))
    steps = list(encode_all(source, engine.core.mirror, AHEAD_S))

    assert STEP_FIELDS >= max(map(len, steps))
    names = [change.field for step in steps for change in step]
    assert count + 2 == len(names) == len(set(names))


def test_the_map_may_change_between_steps(engine: Speaker) -> None:
    """What went is left out, and noted."""
    engine.say(stored([1, 2], prompt(2)))
    steps = encode_all(engine.source, engine.core.mirror, AHEAD_S)
    first = next(steps)
    engine.say(removed(1), removed(2))

    assert 1 == len(first)
    assert [] == [change for step in steps for change in step]


# -- reading -----------------------------------------------------------------------------------------------------------


def test_fields_again_are_harmless(engine: Speaker) -> None:
    """A scan may return a field twice."""
    engine.say(stored([1, 2], prompt(2)), stored([1], prompt(1)), stored([3], prompt(1)))
    fields = written(engine)
    restored = Restored(engine.source)
    restored.restoring.take(fields)
    restored.restoring.take(fields)
    restored.restoring.take({})
    (lane,) = restored.source.map.lanes.values()

    assert (3, 4, 1) == (restored.source.pairs, restored.source.copies, lane.alias_count(tokens_of(engine.core, 1)[0]))
    steps = encode_all(restored.source, restored.mirror, AHEAD_S)
    assert written(engine) == {c.field: c.value for step in steps for c in step}


def test_copies_and_marks_come_back(engine: Speaker) -> None:
    """Two copies announced since the gap, and one entry of before it."""
    engine.say(stored([1, 2], prompt(2)))
    engine.lose()
    engine.gap()
    engine.say(stored([1], prompt(1)), stored([1], prompt(1)))
    restored = Restored(engine.source)
    restored.restoring.take(written(engine))
    (lane,) = restored.source.map.lanes.values()

    assert [(2, True), (1, False)] == [(lane.count(h), lane.announced(h)) for h in (1, 2)]
    assert (1, 3) == (restored.source.map.era, restored.source.copies)


def lives(restored: Restored, tier: Tier = Tier.STORAGE) -> dict[int, float]:
    """When each entry of a lane falls due."""
    pieces = restored.source.map.lanes[0, tier].deadlines or []
    return {engine_hash: due for piece in pieces for engine_hash, due in piece.items()}


def test_a_life_goes_on_after_the_restart(engine: Speaker) -> None:
    """Of each entry from its last announcement; on a machine that was started at another time."""
    engine.say(stored([1, 2], prompt(2), medium="STORAGE"))
    engine.core.clock.at += 40.4
    engine.say(placeholder([2], "STORAGE"))
    restored = Restored(engine.source, now=50.0, ahead_s=STARTED)
    restored.restoring.take(written(engine))

    assert {1: LIFE_S, 2: 40.0 + LIFE_S} == lives(restored)
    lane = restored.source.map.lanes[0, Tier.STORAGE]
    assert LIFE_S == lane.due_at
    assert lane.overdue_slice(LIFE_S - 1) is None
    assert not restored.restoring.is_undated


def test_what_fell_due_meanwhile_is_given_up_at_once(engine: Speaker) -> None:
    """Nobody was there to do it."""
    engine.say(stored([1], prompt(1), medium="STORAGE"))
    restored = Restored(engine.source, now=7.0, ahead_s=STARTED + 10 * LIFE_S)
    restored.restoring.take(written(engine))
    lane = restored.source.map.lanes[0, Tier.STORAGE]

    assert [1] == [h for _ in range(SHARDS) for h in lane.overdue_slice(7.0) or []]


def test_a_life_is_no_longer_than_a_whole_one(engine: Speaker) -> None:
    """Where the wall clock went back."""
    engine.say(stored([1], prompt(1), medium="STORAGE"))
    restored = Restored(engine.source, now=7.0, ahead_s=AHEAD_S - 1e6)
    restored.restoring.take(written(engine))

    assert {1: 7.0 + LIFE_S} == lives(restored)


def test_what_was_written_without_a_time_to_live_begins_one(engine: Speaker) -> None:
    """The configuration gives its tier one now; what has one no longer loses it."""
    engine.say(stored([1], prompt(1)), placeholder([1]), placeholder([1], "STORAGE"))
    restored = Restored(engine.source, now=7.0, ttls={Tier.CPU: LIFE_S})
    restored.restoring.take(written(engine))

    assert ({}, {1: 7.0 + LIFE_S}) == (lives(restored), lives(restored, Tier.CPU))
    assert restored.restoring.is_undated


def test_an_announcement_is_written(engine: Speaker) -> None:
    """Of tiers on which entries have a time to live, beside copies, also where tiers name different contents."""
    engine.say(stored([1], prompt(1)), placeholder([1], "STORAGE"), placeholder([1], "STORAGE"))
    old = tokens_of(engine.core, 1)[0]
    copies = ((Tier.GPU, 1), (Tier.STORAGE, 2))
    announced = ((Tier.STORAGE, STARTED),)

    assert {Field(1, 0): (Placed(old, copies, 0, 0, announced),)} == fields_of(engine)
    engine.say(stored([1], prompt(1, 40)))
    new = tokens_of(engine.core, 1, 40)[0]
    parts = (Placed(new, GPU), Placed(old, ((Tier.STORAGE, 2),), 0, 0, announced))
    assert {Field(1, 0): parts} == fields_of(engine)
    restored = Restored(engine.source, now=1_007.0)
    restored.restoring.take(written(engine))
    assert {1: 1_000.0 + LIFE_S} == lives(restored)


def test_each_tier_has_its_announcement() -> None:
    """A part for each, or one for both."""
    ttls = {Tier.CPU: 2 * LIFE_S, Tier.STORAGE: LIFE_S}
    engine = Core(tier_ttls=ttls).engine()
    engine.source.changes = Changes()
    engine.say(stored([1], prompt(1)), placeholder([1], "STORAGE"), removed(1))
    engine.core.clock.at += 10
    engine.say(placeholder([1]))
    token = tokens_of(engine.core, 1)[0]
    tiers = ((Tier.CPU, 1), (Tier.STORAGE, 1))
    announced = ((Tier.CPU, STARTED + 10), (Tier.STORAGE, STARTED))

    assert {Field(1, 0): (Placed(token, tiers, 0, 0, announced),)} == fields_of(engine)
    restored = Restored(engine.source, now=1_050.0, ttls=ttls)
    restored.restoring.take(written(engine))
    assert ({1: 1_210.0}, {1: 1_100.0}) == (lives(restored, Tier.CPU), lives(restored))


def test_what_waits_for_a_block_that_is_placed_is_placed_next() -> None:
    """Whatever the order in which the two are read."""
    restored = Restored()
    restored.take(Field(2, 0, waiting=True), Parked(1, LOCAL, GPU))
    restored.take(Field(3, 0, waiting=True), Parked(9, LOCAL, GPU))
    restored.take(Field(1, 0), (Placed(77, GPU),))
    restored.restoring.finish()

    assert [(1, 77)] == restored.source.map.healing


def test_what_is_parked_itself_holds_its_children_back() -> None:
    """It is placed, and a later store of it named a parent that is not known: its children wait for that one."""
    restored = Restored()
    restored.take(Field(1, 0), (Placed(77, GPU),))
    restored.take(Field(1, 0, waiting=True), Parked(9, LOCAL, GPU))
    restored.take(Field(2, 0, waiting=True), Parked(1, LOCAL, GPU))
    restored.restoring.finish()

    assert [] == restored.source.map.healing


def test_many_that_wait_are_looked_at_in_slices() -> None:
    """The loop is not held."""
    restored = Restored()
    for number in range(2 * STEP_FIELDS + 1):
        restored.take(Field(number, 0, waiting=True), Unnamed(GPU))
    restored.take(Field(STEP_FIELDS, 0), (Placed(77, GPU),))

    assert restored.restoring.finish_slice()
    assert [] == restored.source.map.healing
    restored.restoring.finish()
    assert [(STEP_FIELDS, 77)] == restored.source.map.healing


@pytest.mark.parametrize("is_noted", [False, True])
def test_what_was_leaving_leaves_where_nothing_is_placed(is_noted: bool) -> None:
    """Its parent went meanwhile; and that it left is noted."""
    restored = Restored()
    restored.source.changes = Changes() if is_noted else None
    restored.take(Field(2, 0, waiting=True), Parked(1, LOCAL, GPU, is_leaving=True))
    restored.restoring.finish()

    assert 0 == restored.source.map.waiting
    assert not is_noted or {2} == restored.source.changes.waiting  # type: ignore[union-attr]  # noted


def too_many_lanes() -> dict[Field, Value]:
    """One more than there are numbers."""
    return {Field(1, group): (Placed(7, GPU),) for group in range(17)}


@pytest.mark.parametrize(
    "fields",
    [
        {Field(1, 0): (Placed(7, GPU, 1),)},
        {Field(1, 0, waiting=True): Unnamed(GPU, 1)},
        {Field(1, 0, waiting=True): Parked(2, LOCAL, GPU, era=1)},
        too_many_lanes(),
    ],
)
def test_what_the_facts_do_not_allow_is_damage(fields: dict[Field, Value]) -> None:
    """An era that is yet to come, or more lanes than a source has."""
    restored = Restored()

    with pytest.raises(DamagedValue):
        restored.restoring.take({encode_field(field): encode_value(value) for field, value in fields.items()})


@pytest.mark.parametrize(
    "fields",
    [
        {b"1234567": HASHES + b"\x01"},
        {b"1234567": HASHES + b"\x01", b"12345678": HASHES + b"\x01"},
        {b"12345678": HASHES + b"\x01", b"1234567": HASHES + b"\x01"},
        {b"12345678": HASHES[1:] + b"\x01"},
        {b"12345678": HASHES},
        {b"12345678": HASHES + b"\x20"},
        {b"12345678": HASHES + b"\x24\x04\x01\x02\x03"},
        {b"12345678": HASHES + b"\x24\x04\x01\x02\x03\x04", b"12345679": HASHES + b"\x24\x04\x01\x02\x03"},
        {b"12345678": HASHES + b"\x24\x04\x01\x02\x03", b"12345679": HASHES + b"\x24\x04\x01\x02\x03\x04"},
        {b"12345678": HASHES + b"\x81"},
        {b"12345678": HASHES + b"\x01\x01"},
        {b"12345678\x00": HASHES + b"\x01"},
        {b"12345678\x01": b"\x00"},
    ],
)
def test_damage_is_told(fields: dict[bytes, bytes]) -> None:
    """Never another error, and nothing is guessed."""
    with pytest.raises(DamagedValue):
        sorted_alike(fields)


def test_lots_are_told_apart() -> None:
    """By group, copies and era; and several parts are read one by one."""
    fields: dict[Field, Value] = {
        Field(1, 0): (Placed(11, GPU),),
        Field(2, 0): (Placed(12, GPU),),
        Field(3, 1): (Placed(13, GPU),),
        Field(4, 0): (Placed(14, GPU, 2, 13),),
        Field(5, 0): (Placed(15, GPU), Placed(16, ((Tier.CPU, 1),))),
        Field(6, 0, waiting=True): Unnamed(GPU),
    }
    alike, others = sorted_alike({encode_field(field): encode_value(value) for field, value in fields.items()})

    assert [
        (0, GPU, 0, [1, 2], [11, 12], [0, 0], ()),
        (1, GPU, 0, [3], [13], [0], ()),
        (0, GPU, 2, [4], [14], [13], ()),
    ] == [tuple(each.tolist() if isinstance(each, np.ndarray) else each for each in lot) for lot in alike]
    assert [Field(5, 0), Field(6, 0, waiting=True)] == [field for field, _ in others]


@pytest.mark.parametrize("era", [0, 1])
@pytest.mark.parametrize("second", [7, 8])
def test_what_was_announced_at_different_times_is_alike(era: int, second: int) -> None:
    """Each has its own second: lots would be many and small otherwise."""
    tiers: Copies = ((Tier.CPU, 1), (Tier.STORAGE, 3))
    seconds = [((Tier.CPU, 9), (Tier.STORAGE, 7)), ((Tier.CPU, 9), (Tier.STORAGE, second))]
    fields = {Field(n, 0): (Placed(10 + n, tiers, era, 5, seconds[n]),) for n in range(2)}
    ((lot,), others) = sorted_alike({encode_field(field): encode_value(value) for field, value in fields.items()})

    assert (0, tiers, era) == lot[:3]
    assert [[0, 1], [10, 11], [5, 5]] == [hashes.tolist() for hashes in lot[3:6]]
    assert ((Tier.CPU, [9, 9]), (Tier.STORAGE, [7, second])) == lot.announced
    assert [] == others


# -- followers ---------------------------------------------------------------------------------------------------------


class Follower:
    """A slot with two lanes."""

    def __init__(self) -> None:
        self.mirror = Mirror()
        self.source = SourceIndex(Descriptor(pod="pod"), self.mirror, generation=1, orphans_max=0)
        self.lanes = self.source.lane_table
        for tier in (Tier.GPU, Tier.CPU):
            self.lanes.number(0, tier)

    def change(self, *presence: tuple[int, int]) -> None:
        show_change(self.mirror, self.source.slot, self.lanes, presence)

    def held(self, *token_hashes: int) -> dict[int, int]:
        return encode_presence(self.source, self.mirror, token_hashes)


def show(follower: Follower, fields: dict[Field, Value]) -> None:
    """As a loader reads them."""
    showing = Showing(follower.mirror, follower.source.slot, follower.lanes)
    showing.take({encode_field(field): encode_value(value) for field, value in fields.items()})


def test_a_change_is_absolute() -> None:
    """Whatever was shown before; the last word on a hash counts."""
    follower = Follower()
    follower.change((11, 1), (12, 3), (13, 2))
    follower.change((11, 2), (12, 1), (13, 0), (14, 0), (15, 1), (15, 3))

    assert {11: 2, 12: 1, 13: 0, 14: 0, 15: 3} == follower.held(11, 12, 13, 14, 15)
    assert 3 == follower.mirror.table.live


def test_a_lane_that_no_facts_name_is_damage() -> None:
    """Its bit would mean something else later."""
    follower = Follower()

    with pytest.raises(DamagedValue):
        follower.change((11, 4))


def test_a_follower_shows_what_is_placed() -> None:
    """And leaves out what waits, and lanes of which the journal is yet to tell."""
    follower = Follower()
    show(
        follower,
        {
            Field(1, 0): (Placed(11, ((Tier.GPU, 1), (Tier.CPU, 0)), 1),),
            Field(2, 0): (Placed(12, GPU), Placed(13, ((Tier.CPU, 1),))),
            Field(3, 0, waiting=True): Unnamed(GPU),
            Field(4, 1): (Placed(14, GPU),),
        },
    )

    assert {11: 3, 12: 1, 13: 2, 14: 0} == follower.held(11, 12, 13, 14)
    assert 2 == len(follower.lanes.lanes)


def test_presence_of_nothing_is_nothing(engine: Speaker) -> None:
    """A batch may change no presence at all."""
    nothing: Any = ()

    assert {} == encode_presence(engine.source, engine.core.mirror, nothing)
