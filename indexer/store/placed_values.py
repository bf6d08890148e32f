"""What the lanes of one group hold under many engine hashes, as values of fields (segments.py). Pure.

Most blocks have one copy on one lane, and nearly all others differ from these only in their copies. So they are looked
up together, and what copies look like is encoded once for all that have them alike.
"""

from __future__ import annotations

import struct
from itertools import repeat
from typing import TYPE_CHECKING, Final

from indexer.index.lane import SHARDS
from indexer.store.copies import COUNT_MAX, SECOND_BYTES, SECOND_MAX, encode_copies
from indexer.store.segments import encode_placed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from indexer.index.lane import Lane
    from indexer.index.mirror import Mirror
    from indexer.model import Tier
    from indexer.store.copies import Announced

_MASK: Final = SHARDS - 1
_LANE_BITS: Final = COUNT_MAX.bit_length() + 1
_LANE: Final = (1 << _LANE_BITS) - 1
_SECOND_BITS: Final = 8 * SECOND_BYTES
_hashes_image: Final = struct.Struct("<QQ").pack


def placed_values(
    lanes: Sequence[Lane], hashes: Collection[int], era: int, mirror: Mirror, wall_ahead_s: float
) -> Iterable[bytes | None]:
    """One value for each engine hash, None where no lane holds it. `lanes`: all of one group, at least one.

    `wall_ahead_s`: seconds since 1970 less seconds on the clock by which entries fall due.
    """
    if len(lanes) == 1:
        token_hashes = _looked_up(lanes[0], hashes)
        forms = [count + 1 for count in _counts(lanes[0], hashes)]
        odd: dict[int, bytes] = {}
    else:
        token_hashes, forms, odd = _merged(lanes, hashes, era, mirror, wall_ahead_s)
    for shift, lane in _mortal(lanes):
        for position, second in enumerate(_seconds(lane, hashes, wall_ahead_s)):
            forms[position] |= second << shift
    parents = mirror.table.parents_of(token_hashes)
    ends = {form: _end(lanes, form, era) for form in set(forms)}
    values = [
        _hashes_image(token_hash, parent) + ends[form] if token_hash else None
        for token_hash, parent, form in zip(token_hashes, parents, forms, strict=True)
    ]
    for position, value in odd.items():
        values[position] = value
    return values


def _looked_up(lane: Lane, hashes: Collection[int]) -> list[int]:
    """Token hashes; 0 where the lane does not hold one."""
    maps = lane.maps
    return [maps[engine_hash & _MASK].get(engine_hash, 0) for engine_hash in hashes]


def _counts(lane: Lane, hashes: Collection[int]) -> Iterable[int]:
    """Copies of each, were it held; 0: announced before the last kept gap."""
    if lane.fresh is None and not lane.extra_copies:
        return repeat(1, len(hashes))
    return [
        min(lane.count(engine_hash) or 1, COUNT_MAX) if lane.announced(engine_hash) else 0 for engine_hash in hashes
    ]


def _mortal(lanes: Sequence[Lane]) -> list[tuple[int, Lane]]:
    """Lanes whose entries have a time to live, and where in a form the seconds of their announcements stand."""
    begins = len(lanes) * _LANE_BITS
    mortal = [lane for lane in lanes if lane.ttl_s is not None]
    return [(begins + nth * _SECOND_BITS, lane) for nth, lane in enumerate(mortal)]


def _seconds(lane: Lane, hashes: Collection[int], wall_ahead_s: float) -> list[int]:
    """Since 1970, of the last announcement of each; 0 where the lane does not hold one.

    The nearest, so that a second that was read and is written again stays what it was.
    """
    deadlines, ttl_s = lane.deadlines, lane.ttl_s
    if deadlines is None or ttl_s is None:
        return [0] * len(hashes)
    later = wall_ahead_s - ttl_s
    falls_due = [deadlines[engine_hash & _MASK].get(engine_hash) for engine_hash in hashes]
    seconds = {due: 0 if due is None else min(max(round(due + later), 1), SECOND_MAX) for due in set(falls_due)}
    return [seconds[due] for due in falls_due]


def _merged(
    lanes: Sequence[Lane], hashes: Collection[int], era: int, mirror: Mirror, wall_ahead_s: float
) -> tuple[list[int], list[int], dict[int, bytes]]:
    """Token hashes, forms, and by position the values of those of which lanes hold different contents.

    A form says what copies look like: in nine bits for each lane one more than its count, or 0 where it has none.
    """
    token_hashes, forms = [0] * len(hashes), [0] * len(hashes)
    unlike: list[int] = []
    for number, lane in enumerate(lanes):
        shift = number * _LANE_BITS
        for position, (token_hash, count) in enumerate(
            zip(_looked_up(lane, hashes), _counts(lane, hashes), strict=True)
        ):
            if token_hash:
                forms[position] |= count + 1 << shift
                if not token_hashes[position]:
                    token_hashes[position] = token_hash
                elif token_hashes[position] != token_hash:
                    unlike.append(position)
    by_position = list(hashes) if unlike else []
    return token_hashes, forms, {n: _in_parts(lanes, by_position[n], era, mirror, wall_ahead_s) for n in unlike}


def _end(lanes: Sequence[Lane], form: int, era: int) -> bytes:
    if not form:
        return b""
    counts = [(lane.tier, form >> number * _LANE_BITS & _LANE) for number, lane in enumerate(lanes)]
    seconds = [(lane.tier, form >> shift & SECOND_MAX) for shift, lane in _mortal(lanes)]
    announced = tuple((tier, second) for tier, second in sorted(seconds) if second)
    return encode_copies(tuple((tier, count - 1) for tier, count in sorted(counts) if count), era, announced)


def _in_parts(lanes: Sequence[Lane], engine_hash: int, era: int, mirror: Mirror, wall_ahead_s: float) -> bytes:
    """Of a hash that stands for different contents: which lane holds which."""
    parts: dict[int, list[tuple[Tier, int]]] = {}
    announced: dict[int, Announced] = {}
    for lane in lanes:
        token_hash = lane.get(engine_hash)
        if token_hash is not None:
            (count,) = _counts(lane, (engine_hash,))
            parts.setdefault(token_hash, []).append((lane.tier, count))
            (second,) = _seconds(lane, (engine_hash,), wall_ahead_s)
            if second:
                announced[token_hash] = (*announced.get(token_hash, ()), (lane.tier, second))
    parent_of = mirror.table.parent
    return b"".join(
        [
            encode_placed(token_hash, tuple(copies), era, parent_of(token_hash), announced.get(token_hash, ()))
            for token_hash, copies in parts.items()
        ]
    )
