"""Many fields at once: nearly all placed blocks differ in nothing but their hashes, and are read as one lot. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from indexer.store.copies import SECOND_BYTES, SECONDS_AT, copies_only, without_seconds
from indexer.store.failures import DamagedValue
from indexer.store.segments import HASH_BYTES, PLACED_BYTES, decode_field, decode_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from indexer.model import Tier
    from indexer.store.copies import Announced, Copies
    from indexer.store.segments import Field, Value


Hashes: TypeAlias = "NDArray[np.uint64]"


class Alike(NamedTuple):
    """Placed blocks that differ in nothing but their hashes, and the seconds at which they were announced.

    `announced`: of each tier on which they have a time to live, one second for each block.
    """

    group: int
    copies: Copies
    era: int
    engine_hashes: Hashes
    token_hashes: Hashes
    parents: Hashes
    announced: tuple[tuple[Tier, list[int]], ...] = ()


class _Texts(NamedTuple):
    """Texts of one length, one behind the other."""

    number: int
    joined: bytes

    def numbers(self, at: int, width: int = HASH_BYTES) -> NDArray[Any]:
        """The number of so many bytes that stands at this place in each text. Raises DamagedValue."""
        size = len(self.joined) // self.number
        if size < at + width:
            raise DamagedValue("value")
        return np.ndarray((self.number,), f"<u{width}", self.joined, at, (size,))


def sorted_alike(fields: Mapping[bytes, bytes]) -> tuple[list[Alike], list[tuple[Field, Value]]]:
    """Fields as lots of placed blocks, and what is of no lot. Nearly all are alike. Raises DamagedValue."""
    alike: list[Alike] = []
    others: list[tuple[Field, Value]] = []
    for names, values, joined in _lots(fields):
        first = decode_field(names[0])
        said = None if first.waiting else copies_only(values[0][PLACED_BYTES:])
        if said is None:
            for name, value in zip(names, values, strict=True):
                field = decode_field(name)
                others.append((field, decode_value(field, value)))
        else:
            copies, era, announced = said
            told, held = joined or (_texts(names), _texts(values))
            engine, token, parent = _hashes(told, 0), _hashes(held, 0), _hashes(held, HASH_BYTES)
            alike.append(Alike(first.group, copies, era, engine, token, parent, _seconds(held, announced)))
    return alike, others


_Lot: TypeAlias = "tuple[list[bytes], list[bytes], tuple[_Texts, _Texts] | None]"


def _lots(fields: Mapping[bytes, bytes]) -> list[_Lot]:
    """Fields and values that end alike behind their hashes, but for seconds of announcements."""
    names, values = list(fields), list(fields.values())
    if not names:
        return []
    told, held = _end_alike(names, HASH_BYTES), _end_alike(values, PLACED_BYTES)
    if told is not None and held is not None:
        return [(names, values, (told, held))]
    lots: dict[tuple[bytes, bytes], _Lot] = {}
    for name, value in zip(names, values, strict=True):
        key = name[HASH_BYTES:], without_seconds(value[PLACED_BYTES:])
        lot = lots.get(key)
        if lot is None:
            lot = lots[key] = [], [], None
        lot[0].append(name)
        lot[1].append(value)
    return list(lots.values())


def _end_alike(texts: Sequence[bytes], begins: int) -> _Texts | None:
    """The usual case, found without a look at each; None where it is not that."""
    first, count = texts[0], len(texts)
    if len(set(map(len, texts))) > 1:
        return None
    joined = b"".join(texts)
    ends = range(begins, len(first))
    is_so = all(joined[at :: len(first)] == first[at : at + 1] * count for at in ends)
    return _Texts(count, joined) if is_so else None


def _texts(texts: Sequence[bytes]) -> _Texts:
    joined = b"".join(texts)
    if len(joined) != len(texts[0]) * len(texts):
        raise DamagedValue("value")
    return _Texts(len(texts), joined)


def _hashes(texts: _Texts, at: int) -> Hashes:
    """Each hash beside the next, so that nothing of the texts is held by them."""
    return texts.numbers(at).astype(np.uint64)


def _seconds(values: _Texts, first: Announced) -> tuple[tuple[Tier, list[int]], ...]:
    """Of all values, whose announcements are of the tiers of the first one's."""
    begins = PLACED_BYTES + SECONDS_AT
    return tuple(
        (tier, values.numbers(begins + nth * SECOND_BYTES, SECOND_BYTES).tolist())
        for nth, (tier, _) in enumerate(first)
    )
