"""Copies of one engine hash on each tier, as a part of the values of fields (segments.py). Pure.

    copies     tiers as bits (1) ‖ announced or nothing ‖ era or nothing ‖ counts or nothing
    announced  where bit 5 of the tiers is set: some of these as bits (1), and for each of them, from the GPU down, the
               second since 1970 of its last announcement (4)
    era        LEB128, where bit 6 of the tiers is set: kept gaps before this was written; else none
    counts     where bit 7 of the tiers is set, one byte for each tier, from the GPU down; else each has one copy

All numbers little-endian. A kept gap makes every entry doubtful at once and must cost no more than a number in the
source's facts, so each value says in which era it was written. In a later era all of it was announced before the last
kept gap; in its own, a count 0 says so of one tier. Such an entry counts as one copy: a removal ends it and a new
announcement makes it 1. A count saturates at 255.

Seconds are written of placed blocks, for tiers on which entries have a time to live, and of nothing else.
"""

from __future__ import annotations

from typing import Final

from indexer.model import Tier
from indexer.store.failures import DamagedValue

COUNT_MAX: Final = 255
_COUNTED: Final = 0x80
_DATED: Final = 0x40
_ANNOUNCED: Final = 0x20
_TIERS: Final = tuple(Tier)
_ALL: Final = sum(1 << tier for tier in _TIERS)
SECONDS_AT: Final = 2
"""In copies: where the seconds of announcements begin."""
SECOND_BYTES: Final = 4
SECOND_MAX: Final = (1 << 8 * SECOND_BYTES) - 1
LEB: Final = 0x7F
LEB_BYTES_MAX: Final = 10
"""Of a number of 64 bits."""

Copies = tuple[tuple[Tier, int], ...]
"""Copies on each tier that has any, from the GPU down."""
Announced = tuple[tuple[Tier, int], ...]
"""The second since 1970 of the last announcement, of each tier on which the entry has a time to live."""

BY_TIERS: Final[dict[int, Copies]] = {
    tiers: tuple((tier, 1) for tier in _TIERS if tiers >> tier & 1) for tiers in range(1, _ALL + 1)
}
_PLAIN: Final[dict[Copies, bytes]] = {copies: bytes((tiers,)) for tiers, copies in BY_TIERS.items()}
"""Almost all copies are one a tier: these are made once."""


def copies_only(data: bytes) -> tuple[Copies, int, Announced] | None:
    """What these bytes say, where they are copies and nothing else; None where more follows. Raises DamagedValue."""
    try:
        copies, era, announced, end = decode_copies(data, 0)
    except (IndexError, ValueError) as error:
        raise DamagedValue("value") from error
    return (copies, era, announced) if end == len(data) else None


def without_seconds(data: bytes) -> bytes:
    """Copies, and what follows, as bytes that are alike wherever nothing but the seconds differs."""
    if len(data) < SECONDS_AT or not data[0] & _ANNOUNCED:
        return data
    return data[:SECONDS_AT] + data[SECONDS_AT + SECOND_BYTES * data[1].bit_count() :]


def encode_copies(copies: Copies, era: int = 0, announced: Announced = ()) -> bytes:
    """A part of a value. Raises ValueError where there are none."""
    if not era and not announced:
        plain = _PLAIN.get(copies)
        if plain is not None:
            return plain
    tiers = 0
    for tier, _ in copies:
        tiers |= 1 << tier
    if not tiers or tiers.bit_count() != len(copies):
        raise ValueError("copies: each tier once, and at least one")
    mark, dates = 0, b""
    if announced:
        mark, dates = _ANNOUNCED, _encode_announced(announced, tiers)
    if era:
        mark, dates = mark | _DATED, dates + leb(era)
    if all(count == 1 for _, count in copies):
        return bytes((tiers | mark,)) + dates
    return bytes((tiers | mark | _COUNTED,)) + dates + bytes([min(count, COUNT_MAX) for _, count in sorted(copies)])


def _encode_announced(announced: Announced, tiers: int) -> bytes:
    """Raises ValueError where a tier has no copies, or stands there twice."""
    mortal = 0
    for tier, _ in announced:
        mortal |= 1 << tier
    if mortal & ~tiers or mortal.bit_count() != len(announced):
        raise ValueError("announced: each tier once, and only where copies are")
    seconds = [second.to_bytes(SECOND_BYTES, "little") for _, second in sorted(announced)]
    return bytes((mortal,)) + b"".join(seconds)


def _decode_announced(data: bytes, position: int, tiers: int) -> tuple[Announced, int]:
    """And where it ends. Raises IndexError and ValueError."""
    mortal = data[position]
    begin = position + 1
    end = begin + SECOND_BYTES * mortal.bit_count()
    if not mortal or mortal & ~(tiers & _ALL) or end > len(data):
        raise ValueError
    held = [tier for tier in _TIERS if mortal >> tier & 1]
    starts = range(begin, end, SECOND_BYTES)
    seconds = [int.from_bytes(data[start : start + SECOND_BYTES], "little") for start in starts]
    return tuple(zip(held, seconds, strict=True)), end


def decode_copies(data: bytes, position: int) -> tuple[Copies, int, Announced, int]:
    """Copies, era, announcements, and where they end. Raises IndexError and ValueError."""
    tiers = data[position]
    if not tiers & _ALL:
        raise ValueError
    position += 1
    era = 0
    announced: Announced = ()
    if tiers & _ANNOUNCED:
        announced, position = _decode_announced(data, position, tiers)
    if tiers & _DATED:
        end = position
        while data[end] & 0x80:
            end += 1
        end += 1
        era = sum((byte & LEB) << 7 * nth for nth, byte in enumerate(data[position:end]))
        if not era or leb(era) != data[position:end] or end - position > LEB_BYTES_MAX:
            raise ValueError
        position = end
    if not tiers & _COUNTED:
        return BY_TIERS[tiers & _ALL], era, announced, position
    held = [tier for tier in _TIERS if tiers >> tier & 1]
    counts = tuple((tier, data[position + nth]) for nth, tier in enumerate(held))
    return counts, era, announced, position + len(held)


def leb(number: int) -> bytes:
    """LEB128."""
    out = bytearray()
    while number > LEB:
        out.append(number & LEB | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
