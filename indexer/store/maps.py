"""A source's reverse map and the fields of its segments (segments.py): each made of the other. Pure.

Writing gives what changed, or all; absolute, so that order and repetition do not matter. Reading makes an owner's map
again as it was, or a follower's presence.

Entries fall due by a clock that begins anew with the machine, and are written by the wall clock: `wall_ahead_s` is what
the second is ahead of the first, in seconds.

What does not come back: mappings that went just before (`ReverseMap.gone`), what ghosts are told by, and copies above
255.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from indexer.index.lane import SHARDS
from indexer.index.reverse_map import Orphan, Waiting
from indexer.store.failures import DamagedValue
from indexer.store.lots import Alike, sorted_alike
from indexer.store.placed_values import placed_values
from indexer.store.segments import Change, Parked, Unnamed, encode_value, field_end

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from indexer.index.changes import Changes
    from indexer.index.lane import Lane
    from indexer.index.mirror import Mirror
    from indexer.index.records import LaneTable
    from indexer.index.reverse_map import ReverseMap
    from indexer.index.source import SourceIndex
    from indexer.model import Tier
    from indexer.store.copies import Copies
    from indexer.store.segments import Field

FEW: Final = 32
"""Token hashes up to which looking them up one by one is faster: 0.7 us each, or 16 us for all."""
STEP_FIELDS: Final = 1_000
"""Fields of the whole map made in one step."""
_MASK: Final = SHARDS - 1
_hash_image: Final = struct.Struct("<Q").pack


# -- writing -----------------------------------------------------------------------------------------------------------


def encode_changes(
    source: SourceIndex, changes: Changes, mirror: Mirror, wall_ahead_s: float
) -> dict[bytes, bytes | None]:
    """The noted fields as they are now; None where one is gone, or never was."""
    out = _placed_fields(source.map, changes.placed, mirror, wall_ahead_s)
    if changes.waiting:
        out.update(_waiting_fields(source.map, changes.waiting))
    return out


def encode_all(source: SourceIndex, mirror: Mirror, wall_ahead_s: float) -> Iterator[list[Change]]:
    """The whole map, some 1,000 fields a step, none of them twice and none without a value.

    The map may change between steps: what changes is noted in `source.changes` and must be written afterwards.
    """
    reverse = source.map
    for piece in range(SHARDS):
        for hashes in _steps([lane.maps[piece] for lane in reverse.lanes.values()]):
            yield _with_values(_placed_fields(reverse, hashes, mirror, wall_ahead_s))
    for hashes in _steps([reverse.orphans, reverse.unplaced]):
        yield _with_values(_waiting_fields(reverse, hashes))


def _steps(lots: Sequence[Mapping[int, object]]) -> Iterator[list[int]]:
    """The hashes of all lots, each once."""
    done: set[int] = set()
    for lot in lots:
        hashes = list(lot)
        for start in range(0, len(hashes), STEP_FIELDS):
            step = [engine_hash for engine_hash in hashes[start : start + STEP_FIELDS] if engine_hash not in done]
            if len(lots) > 1:
                done.update(step)
            yield step


def _with_values(fields: Mapping[bytes, bytes | None]) -> list[Change]:
    return [Change(field, value) for field, value in fields.items() if value is not None]


def _placed_fields(
    reverse: ReverseMap, hashes: Collection[int], mirror: Mirror, wall_ahead_s: float
) -> dict[bytes, bytes | None]:
    groups: dict[int, list[Lane]] = {}
    for lane in reverse.lanes.values():
        groups.setdefault(lane.group, []).append(lane)
    out: dict[bytes, bytes | None] = {}
    for group, lanes in groups.items():
        end = field_end(group, waiting=False)
        values = placed_values(lanes, hashes, reverse.era, mirror, wall_ahead_s)
        out.update(zip([_hash_image(engine_hash) + end for engine_hash in hashes], values, strict=True))
    return out


def _waiting_fields(reverse: ReverseMap, hashes: Iterable[int]) -> dict[bytes, bytes | None]:
    ends = {group: field_end(group, waiting=True) for group, _ in reverse.lanes}
    out: dict[bytes, bytes | None] = {}
    for engine_hash in hashes:
        for group, end in ends.items():
            out[_hash_image(engine_hash) + end] = _waiting_value(reverse, engine_hash, group)
    return out


def _waiting_value(reverse: ReverseMap, engine_hash: int, group: int) -> bytes | None:
    era = reverse.era
    lanes = reverse.unplaced.get(engine_hash, {})
    others = tuple((tier, reverse.copies_waited(lanes[g, tier])) for g, tier in sorted(lanes) if g == group)
    orphan = reverse.orphans.get(engine_hash)
    if orphan is not None and orphan.lane.group == group:
        own = ((orphan.lane.tier, reverse.copies_waited(orphan.waited)),)
        is_leaving = engine_hash in reverse.leaving
        return encode_value(Parked(orphan.parent, orphan.local, own, others, era, is_leaving))
    return encode_value(Unnamed(others, era)) if others else None


def encode_presence(source: SourceIndex, mirror: Mirror, token_hashes: Iterable[int]) -> dict[int, int]:
    """Token hash → lanes on which the source holds it, as bits; 0: on none."""
    hashes = list(token_hashes)
    return dict(zip(hashes, _lanes_held(mirror, source.slot, hashes), strict=True))


def _lanes_held(mirror: Mirror, slot: int, token_hashes: Sequence[int]) -> list[int]:
    table = mirror.table
    if len(token_hashes) < FEW:
        rids = [table.get(token_hash) for token_hash in token_hashes]
    else:
        rids = table.get_many(np.array(token_hashes, np.uint64)).tolist()
    lanes = {rid: mirror.book.records[rid].lanes_of(slot) for rid in set(rids)}
    return [lanes[rid] for rid in rids]


# -- reading -----------------------------------------------------------------------------------------------------------


class Restoring:
    """Fills the map of a new source, and the mirror, from fields. Its facts are restored already (`restore_facts`).

    What has a time to live goes on with it. None of it lasts longer than a whole one from `now` on, whatever became of
    the wall clock.
    """

    def __init__(self, source: SourceIndex, mirror: Mirror, now: float, wall_ahead_s: float) -> None:
        self._source = source
        self._mirror = mirror
        self._now = now
        self._wall_ahead_s = wall_ahead_s
        self.is_undated = False
        """Some that have a time to live were written when they had none: a whole one begins now."""
        self._era = source.map.era
        self._to_heal: Iterator[int] | None = None

    def take(self, fields: Mapping[bytes, bytes]) -> None:
        """Some fields; again is harmless. Raises DamagedValue."""
        alike, others = sorted_alike(fields)
        for lot in alike:
            self._place(lot)
        for field, value in others:
            if isinstance(value, Parked | Unnamed):
                self._wait(field, value)
                continue
            for part in value:
                announced = tuple((tier, [second]) for tier, second in part.announced)
                engine, token, parent = (
                    np.array([each], np.uint64) for each in (field.engine_hash, part.token_hash, part.parent)
                )
                self._place(Alike(field.group, part.copies, part.era, engine, token, parent, announced))

    def finish(self) -> None:
        """All fields are taken: what waits for something that is placed is to be placed next."""
        while self.finish_slice():
            pass

    def finish_slice(self) -> bool:
        """Part of `finish`, under a millisecond; True while there is more. Many blocks may wait."""
        reverse = self._source.map
        if self._to_heal is None:
            self._to_heal = iter([*reverse.children, *reverse.unplaced])
        for looked, engine_hash in enumerate(self._to_heal, 1):
            # What is placed and was parked by a later store holds its children back until its own parent comes.
            token_hash = None if engine_hash in reverse.orphans else reverse.resolve(engine_hash)
            if token_hash is not None:
                reverse.healing.append((engine_hash, token_hash))
            if looked == STEP_FIELDS:
                return True
        if not reverse.healing:
            if self._source.changes is not None:
                self._source.changes.waiting |= reverse.leaving
            reverse.let_go()
        return False

    def _place(self, lot: Alike) -> None:
        engine_hashes: list[int] = lot.engine_hashes.tolist()
        for tier, count in lot.copies:
            lane = self._lane(lot.group, tier)
            maps = lane.maps
            known: list[int] = []
            token_hashes, parents, position = lot.token_hashes, lot.parents, 0
            for engine_hash, token_hash in zip(engine_hashes, token_hashes.tolist(), strict=True):
                piece = maps[engine_hash & _MASK]
                if engine_hash in piece:
                    known.append(position)
                else:
                    piece[engine_hash] = token_hash
                position += 1
            lane.pairs += position - len(known)
            if known:
                token_hashes, parents = np.delete(token_hashes, known), np.delete(parents, known)
            for token_hash in self._mirror.add_array(self._source.slot, lane.number, token_hashes, parents):
                lane.one_alias_more(token_hash)
            self._mark(lane, lot, engine_hashes, count)

    def _mark(self, lane: Lane, lot: Alike, engine_hashes: Sequence[int], count: int) -> None:
        if self._is_of_now(lot.era) and count:
            if lane.fresh is not None:
                for engine_hash in engine_hashes:
                    lane.fresh[engine_hash & _MASK].add(engine_hash)
            if count > 1:
                for engine_hash in engine_hashes:
                    lane.set_copies(engine_hash, count)
        if lane.ttl_s is not None:
            self._go_on_living(lane, lot, engine_hashes)

    def _go_on_living(self, lane: Lane, lot: Alike, engine_hashes: Sequence[int]) -> None:
        seconds = dict(lot.announced).get(lane.tier)
        if seconds is None:
            self.is_undated = True
            lane.renew(engine_hashes, self._now)
        else:
            moments = [min(second - self._wall_ahead_s, self._now) for second in seconds]
            lane.resume(engine_hashes, moments)

    def _wait(self, field: Field, value: Parked | Unnamed) -> None:
        reverse, engine_hash = self._source.map, field.engine_hash
        others = value.copies
        if isinstance(value, Parked):
            ((tier, count),), others = value.copies, value.others
            lane = self._lane(field.group, tier)
            reverse.orphans[engine_hash] = Orphan(value.parent, value.local, lane, self._waiting(count, value.era))
            reverse.children.setdefault(value.parent, {})[engine_hash] = None
            if value.is_leaving:
                reverse.leaving.add(engine_hash)
        for tier, count in others:
            lane = self._lane(field.group, tier)
            reverse.unplaced.setdefault(engine_hash, {})[lane.group, lane.tier] = self._waiting(count, value.era)

    def _waiting(self, count: int, era: int) -> Waiting:
        self._is_of_now(era)
        return Waiting(count, era) if count else Waiting(1, era - 1)

    def _is_of_now(self, era: int) -> bool:
        if era > self._era:
            raise DamagedValue("value")
        return era == self._era

    def _lane(self, group: int, tier: Tier) -> Lane:
        lane = self._source.lane(group, tier)
        if lane is None:
            raise DamagedValue("value")
        if self._era and lane.fresh is None:
            lane.forget_counts()  # nothing yet; from here on it is marked what was announced since the last kept gap
        return lane


class Showing:
    """Fills a follower's slot of the mirror from fields: presence only.

    A lane that the facts do not name yet is left out: its blocks came after these facts were read, so the journal tells
    of them again.
    """

    def __init__(self, mirror: Mirror, slot: int, lanes: LaneTable) -> None:
        self._mirror = mirror
        self._slot = slot
        self._lanes = lanes

    def take(self, fields: Mapping[bytes, bytes]) -> None:
        """Some fields; again is harmless. Raises DamagedValue."""
        alike, others = sorted_alike(fields)
        for lot in alike:
            for number in self._numbers(lot.group, lot.copies):
                self._mirror.add_array(self._slot, number, lot.token_hashes, lot.parents)
        for field, value in others:
            if not isinstance(value, Parked | Unnamed):
                for part in value:
                    for number in self._numbers(field.group, part.copies):
                        self._mirror.add(self._slot, number, [part.token_hash], [part.parent])

    def _numbers(self, group: int, copies: Copies) -> list[int]:
        """Of the lanes that the facts name."""
        numbers = (self._lanes.known(group, tier) for tier, _ in copies)
        return [number for number in numbers if number is not None]


def show_change(mirror: Mirror, slot: int, lanes: LaneTable, presence: Sequence[tuple[int, int]]) -> None:
    """What a journal entry tells: from now on these lanes of the slot, as bits, hold each of these token hashes.

    Raises DamagedValue where it names a lane that the facts do not.
    """
    wanted = dict(presence)
    if any(bits >> len(lanes.lanes) for bits in set(wanted.values())):
        raise DamagedValue("entry")
    hashes = list(wanted)
    differ = [
        (token_hash, bits, held)
        for (token_hash, bits), held in zip(wanted.items(), _lanes_held(mirror, slot, hashes), strict=True)
        if bits != held
    ]
    for number in range(len(lanes.lanes)):
        bit = 1 << number
        added = [token_hash for token_hash, bits, held in differ if bits & ~held & bit]
        gone = [token_hash for token_hash, bits, held in differ if held & ~bits & bit]
        if added:
            mirror.add(slot, number, added, [0] * len(added))
        if gone:
            mirror.remove(slot, number, gone)
