"""Fields and values of map segments: what one engine hash of one group stands for. Pure.

    field    engine hash (8 bytes) ‖ group and kind as one number (LEB128; nothing for a placed block of group 0)
    placed   (token hash (8) ‖ copies)+           one part, or several where tiers name different contents
    parked   parent engine hash (8) ‖ local hash (8) ‖ tier (1) ‖ copies
    unnamed  copies                               held, but no event has told yet which block it is
    copies   tiers as bits (1); where bit 7 is set, one count byte for each, from the GPU down; else each has one copy

All numbers little-endian. A count saturates at 255; 0 says held, but announced before the last kept gap: a removal ends
it and a new announcement makes it 1. The common case, one copy on one tier, takes 8 + 9 bytes, and no case of one part
more than 14: in Redis's hash tables all of these cost the same (decisions/0013).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.model import Tier
from indexer.store.failures import DamagedValue
from indexer.store.layout import segment_of
from indexer.store.packing import array, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

COUNT_MAX: Final = 255
_COUNTED: Final = 0x80
_TIERS: Final = tuple(Tier)
_ALL: Final = sum(1 << tier for tier in _TIERS)
_U64: Final = struct.Struct("<Q")
_LEB: Final = 0x7F
_COMMON: Final = struct.Struct("<QB")
_PARKED: Final = struct.Struct("<Q8sB")

Copies = tuple[tuple[Tier, int], ...]
"""Copies on each tier that has any, from the GPU down."""


class Field(NamedTuple):
    """One engine hash in one group; `waiting` where it is not placed yet."""

    engine_hash: int
    group: int
    waiting: bool = False


class Placed(NamedTuple):
    """Copies of a block whose token hash is known."""

    token_hash: int
    copies: Copies


class Parked(NamedTuple):
    """A block whose parent is unknown: it was stored on `tier`; `copies` also of other tiers that wait with it."""

    parent: int
    local: bytes
    tier: Tier
    copies: Copies


class Unnamed(NamedTuple):
    """Copies of a block of which no event told the tokens yet."""

    copies: Copies


Value = tuple[Placed, ...] | Parked | Unnamed

_BY_TIERS: Final[dict[int, Copies]] = {
    tiers: tuple((tier, 1) for tier in _TIERS if tiers >> tier & 1) for tiers in range(1, _ALL + 1)
}
_PLAIN: Final[dict[Copies, bytes]] = {copies: bytes((tiers,)) for tiers, copies in _BY_TIERS.items()}
"""Almost all copies are one a tier: these are made once."""


def encode_field(field: Field) -> bytes:
    """The bytes of a field. One field has one form only."""
    number = field.group << 1 | field.waiting
    if not number:
        return _U64.pack(field.engine_hash)
    out = bytearray(_U64.pack(field.engine_hash))
    while number > _LEB:
        out.append(number & _LEB | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def decode_field(data: bytes) -> Field:
    """The field in these bytes. Raises DamagedValue."""
    if len(data) == _U64.size:
        return Field(_U64.unpack(data)[0], 0)
    number = 0
    for position, byte in enumerate(data[_U64.size :]):
        number |= (byte & _LEB) << 7 * position
    field = Field(_U64.unpack(data[: _U64.size])[0], number >> 1, bool(number & 1)) if len(data) > _U64.size else None
    if field is None or encode_field(field) != data:
        raise DamagedValue("field")
    return field


def encode_value(value: Value) -> bytes:
    """The bytes of a value. Raises ValueError for one that says nothing."""
    match value:
        case Parked(parent, local, tier, copies):
            return _PARKED.pack(parent, local, tier) + _encode_copies(copies)
        case Unnamed(copies):
            return _encode_copies(copies)
        case _:
            return b"".join(_U64.pack(placed.token_hash) + _encode_copies(placed.copies) for placed in value)


def decode_value(field: Field, data: bytes) -> Value:
    """The value of a field. Raises DamagedValue."""
    if len(data) == _COMMON.size and not field.waiting:  # a million of these in a rebuild
        token_hash, tiers = _COMMON.unpack(data)
        copies = _BY_TIERS.get(tiers)
        if copies is not None:
            return (Placed(token_hash, copies),)
    try:
        value, end = _decode_waiting(data) if field.waiting else _decode_placed(data)
    except (struct.error, IndexError, ValueError) as error:
        raise DamagedValue("value") from error
    if end != len(data):
        raise DamagedValue("value")
    return value


def _decode_placed(data: bytes) -> tuple[tuple[Placed, ...], int]:
    parts: list[Placed] = []
    position = 0
    while position < len(data) or not parts:
        (token_hash,) = _U64.unpack_from(data, position)
        copies, position = _decode_copies(data, position + _U64.size)
        parts.append(Placed(token_hash, copies))
    return tuple(parts), position


def _decode_waiting(data: bytes) -> tuple[Parked | Unnamed, int]:
    if len(data) <= 1 + len(_TIERS):
        copies, end = _decode_copies(data, 0)
        return Unnamed(copies), end
    parent, local, tier = _PARKED.unpack_from(data)
    copies, end = _decode_copies(data, _PARKED.size)
    return Parked(parent, local, Tier(tier), copies), end


def _encode_copies(copies: Copies) -> bytes:
    plain = _PLAIN.get(copies)
    if plain is not None:
        return plain
    tiers = 0
    for tier, _ in copies:
        tiers |= 1 << tier
    if not tiers or tiers.bit_count() != len(copies):
        raise ValueError("copies: each tier once, and at least one")
    if all(count == 1 for _, count in copies):  # in another order
        return bytes((tiers,))
    return bytes((tiers | _COUNTED, *(min(count, COUNT_MAX) for _, count in sorted(copies))))


def _decode_copies(data: bytes, position: int) -> tuple[Copies, int]:
    tiers = data[position]
    if not tiers & _ALL or tiers & ~(_ALL | _COUNTED):
        raise ValueError
    position += 1
    if not tiers & _COUNTED:
        return _BY_TIERS[tiers], position
    held = [tier for tier in _TIERS if tiers >> tier & 1]
    return tuple((tier, data[position + nth]) for nth, tier in enumerate(held)), position + len(held)


class Change(NamedTuple):
    """What a field is to hold from now on; None takes it out."""

    field: bytes
    value: bytes | None


class SegmentChanges(NamedTuple):
    """Changes of one segment, as scripts take them: field, value, field, value, … to set, and fields to take out.

    Absolute, so that applying them twice is harmless. Each field stands once: a script sets first and takes out then.
    """

    key: bytes
    sets: list[bytes]
    outs: list[bytes]

    @property
    def packed(self) -> bytes:
        """As one argument of a script, or a part of one."""
        return array((texts(self.sets), texts(self.outs)))


def by_segment(changes: Iterable[Change], keys: Sequence[bytes]) -> list[SegmentChanges]:
    """Changes sorted by the segment that holds them; `keys` are all segments of the copy, in order."""
    sorted_: dict[int, SegmentChanges] = {}
    count = len(keys)
    for field, value in changes:
        number = segment_of(int.from_bytes(field[: _U64.size], "little"), count)
        segment = sorted_.get(number)
        if segment is None:
            segment = sorted_[number] = SegmentChanges(keys[number], [], [])
        if value is None:
            segment.outs.append(field)
        else:
            segment.sets.append(field)
            segment.sets.append(value)
    return list(sorted_.values())
