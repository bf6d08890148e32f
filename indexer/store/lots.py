"""Many fields at once: nearly all placed blocks differ in nothing but their hashes, and are read as one lot. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from indexer.store.failures import DamagedValue
from indexer.store.segments import HASH_BYTES, PLACED_BYTES, copies_only, decode_field, decode_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from indexer.store.segments import Copies, Field, Value


class Alike(NamedTuple):
    """Placed blocks that differ in nothing but their hashes."""

    group: int
    copies: Copies
    era: int
    engine_hashes: list[int]
    token_hashes: list[int]
    parents: list[int]


def sorted_alike(fields: Mapping[bytes, bytes]) -> tuple[list[Alike], list[tuple[Field, Value]]]:
    """Fields as lots of placed blocks, and what is of no lot. Nearly all are alike. Raises DamagedValue."""
    alike: list[Alike] = []
    others: list[tuple[Field, Value]] = []
    for names, values in _lots(fields):
        first = decode_field(names[0])
        copies = None if first.waiting else copies_only(values[0][PLACED_BYTES:])
        if copies is None:
            for name, value in zip(names, values, strict=True):
                field = decode_field(name)
                others.append((field, decode_value(field, value)))
        else:
            alike.append(
                Alike(first.group, *copies, _numbers(names, 0), _numbers(values, 0), _numbers(values, HASH_BYTES))
            )
    return alike, others


def _lots(fields: Mapping[bytes, bytes]) -> list[tuple[list[bytes], list[bytes]]]:
    """Fields and values that end alike behind their hashes."""
    names, values = list(fields), list(fields.values())
    if not names:
        return []
    if _end_alike(names, HASH_BYTES) and _end_alike(values, PLACED_BYTES):
        return [(names, values)]
    lots: dict[tuple[bytes, bytes], tuple[list[bytes], list[bytes]]] = {}
    for name, value in zip(names, values, strict=True):
        key = name[HASH_BYTES:], value[PLACED_BYTES:]
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


def _numbers(texts: Sequence[bytes], at: int) -> list[int]:
    """The hash that stands at this place in each text; all are of one length."""
    size, joined = len(texts[0]), b"".join(texts)
    if size < at + HASH_BYTES or len(joined) != size * len(texts):
        raise DamagedValue("value")
    numbers: list[int] = np.ndarray((len(texts),), "<u8", joined, at, (size,)).tolist()
    return numbers
