"""What the lanes of one group hold under many engine hashes, as values of fields (segments.py). Pure.

Most blocks have one copy on one lane, and nearly all others differ from these only in their copies. So they are looked
up together, and what copies look like is encoded once for all that have them alike.
"""

from __future__ import annotations

import struct
from itertools import repeat
from typing import TYPE_CHECKING, Final

from indexer.index.lane import SHARDS
from indexer.store.segments import COUNT_MAX, encode_copies, encode_placed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from indexer.index.lane import Lane
    from indexer.index.mirror import Mirror
    from indexer.model import Tier

_MASK: Final = SHARDS - 1
_LANE_BITS: Final = COUNT_MAX.bit_length() + 1
_LANE: Final = (1 << _LANE_BITS) - 1
_hashes_image: Final = struct.Struct("<QQ").pack


def placed_values(lanes: Sequence[Lane], hashes: Collection[int], era: int, mirror: Mirror) -> Iterable[bytes | None]:
    """One value for each engine hash, None where no lane holds it. `lanes`: all of one group, at least one."""
    if len(lanes) == 1:
        token_hashes = _looked_up(lanes[0], hashes)
        forms = [count + 1 for count in _counts(lanes[0], hashes)]
        odd: dict[int, bytes] = {}
    else:
        token_hashes, forms, odd = _merged(lanes, hashes, era, mirror)
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


def _merged(
    lanes: Sequence[Lane], hashes: Collection[int], era: int, mirror: Mirror
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
    return token_hashes, forms, {n: _in_parts(lanes, by_position[n], era, mirror) for n in unlike}


def _end(lanes: Sequence[Lane], form: int, era: int) -> bytes:
    if not form:
        return b""
    counts = [(lane.tier, form >> number * _LANE_BITS & _LANE) for number, lane in enumerate(lanes)]
    return encode_copies(tuple((tier, count - 1) for tier, count in sorted(counts) if count), era)


def _in_parts(lanes: Sequence[Lane], engine_hash: int, era: int, mirror: Mirror) -> bytes:
    """Of a hash that stands for different contents: which lane holds which."""
    parts: dict[int, list[tuple[Tier, int]]] = {}
    for lane in lanes:
        token_hash = lane.get(engine_hash)
        if token_hash is not None:
            (count,) = _counts(lane, (engine_hash,))
            parts.setdefault(token_hash, []).append((lane.tier, count))
    parent_of = mirror.table.parent
    return b"".join(
        [encode_placed(token_hash, tuple(copies), era, parent_of(token_hash)) for token_hash, copies in parts.items()]
    )
