"""Many fields at once: nearly all placed blocks differ in nothing but their hashes, and are read as one lot. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from indexer.store.copies import SECOND_BYTES, SECONDS_AT, copies_only, without_seconds
from indexer.store.failures import DamagedValue
from indexer.store.segments import HASH_BYTES, PLACED_BYTES, decode_field, decode_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from indexer.model import Tier
    from indexer.store.copies import Announced, Copies
    from indexer.store.segments import Field, Value


class Alike(NamedTuple):
    """Placed blocks that differ in nothing but their hashes, and the seconds at which they were announced.

    `announced`: of each tier on which they have a time to live, one second for each block.
    """

    group: int
    copies: Copies
    era: int
    engine_hashes: list[int]
    token_hashes: list[int]
    parents: list[int]
    announced: tuple[tuple[Tier, list[int]], ...] = ()


def sorted_alike(fields: Mapping[bytes, bytes]) -> tuple[list[Alike], list[tuple[Field, Value]]]:
    """Fields as lots of placed blocks, and what is of no lot. Nearly all are alike. Raises DamagedValue."""
    alike: list[Alike] = []
    others: list[tuple[Field, Value]] = []
    for names, values in _lots(fields):
        first = decode_field(names[0])
        said = None if first.waiting else copies_only(values[0][PLACED_BYTES:])
        if said is None:
            for name, value in zip(names, values, strict=True):
                field = decode_field(name)
                others.append((field, decode_value(field, value)))
        else:
            copies, era, announced = said
            hashes = _numbers(names, 0), _numbers(values, 0), _numbers(values, HASH_BYTES)
            alike.append(Alike(first.group, copies, era, *hashes, _seconds(values, announced)))
    return alike, others


def _lots(fields: Mapping[bytes, bytes]) -> list[tuple[list[bytes], list[bytes]]]:
    """Fields and values that end alike behind their hashes, but for seconds of announcements."""
    names, values = list(fields), list(fields.values())
    if not names:
        return []
    if _end_alike(names, HASH_BYTES) and _end_alike(values, PLACED_BYTES):
        return [(names, values)]
    lots: dict[tuple[bytes, bytes], tuple[list[bytes], list[bytes]]] = {}
    for name, value in zip(names, values, strict=True):
        key = name[HASH_BYTES:], without_seconds(value[PLACED_BYTES:])
        lot = lots.get(key)
        if lot is None:
            lot = lots[key] = [], []
        lot[0].append(name)
        lot[1].append(value)
    return list(lots.values())


def _end_alike(texts: Sequence[bytes], begins: int) -> bool:
    """The usual case, found without a look at each."""
    first, count = texts[0], len(texts)
    if len(set(map(len, texts))) > 1:
        return False
    joined = b"".join(texts)
    ends = range(begins, len(first))
    return all(joined[at :: len(first)] == first[at : at + 1] * count for at in ends)


def _seconds(values: Sequence[bytes], first: Announced) -> tuple[tuple[Tier, list[int]], ...]:
    """Of all values, whose announcements are of the tiers of the first one's."""
    begins = PLACED_BYTES + SECONDS_AT
    return tuple(
        (tier, _numbers(values, begins + nth * SECOND_BYTES, SECOND_BYTES)) for nth, (tier, _) in enumerate(first)
    )


def _numbers(texts: Sequence[bytes], at: int, width: int = HASH_BYTES) -> list[int]:
    """The number of so many bytes that stands at this place in each text; all are of one length."""
    size, joined = len(texts[0]), b"".join(texts)
    if size < at + width or len(joined) != size * len(texts):
        raise DamagedValue("value")
    numbers: list[int] = np.ndarray((len(texts),), f"<u{width}", joined, at, (size,)).tolist()
    return numbers
