"""Fields and values of map segments: what one engine hash of one group stands for. Pure.

    field    engine hash (8 bytes) ‖ group and kind as one number (LEB128; nothing for a placed block of group 0)
    placed   (token hash (8) ‖ parent (8) ‖ copies)+   one part, or several where tiers name different contents
    parent   token hash of the block before; 0 for a first block, or where that is not known
    parked   parent engine hash (8) ‖ local hash (8) ‖ is leaving (1) ‖ copies of one tier ‖ copies or nothing
    unnamed  copies                               held, but no event has told yet which block it is
    copies   tiers as bits (1) ‖ era or nothing ‖ counts or nothing
    era      LEB128, where bit 6 of the tiers is set: kept gaps before this was written; else none
    counts   where bit 7 of the tiers is set, one byte for each tier, from the GPU down; else each has one copy

All numbers little-endian. A kept gap makes every entry doubtful at once and must cost no more than a number in the
source's facts, so each value says in which era it was written. In a later era all of it was announced before the last
kept gap; in its own, a count 0 says so of one tier. Such an entry counts as one copy: a removal ends it and a new
announcement makes it 1. A count saturates at 255.

The common case, one copy on one tier, takes 8 + 17 bytes, and no case of one part without an era more than 22: in
Redis's hash tables all of these cost the same (decisions/0013, 0015).
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
_DATED: Final = 0x40
_TIERS: Final = tuple(Tier)
_ALL: Final = sum(1 << tier for tier in _TIERS)
HASH_BYTES: Final = 8
PLACED_BYTES: Final = 16
"""Of a part of a placed block's value: what stands before its copies."""
_U64: Final = struct.Struct("<Q")
_LEB: Final = 0x7F
_PLACED: Final = struct.Struct("<QQ")
_COMMON: Final = struct.Struct("<QQB")
_PARKED: Final = struct.Struct("<Q8s?")
_ERA_BYTES: Final = 10
_UNNAMED_MAX: Final = 1 + _ERA_BYTES + len(_TIERS)
"""Bytes; a parked block's value has more."""

Copies = tuple[tuple[Tier, int], ...]
"""Copies on each tier that has any, from the GPU down."""


class Field(NamedTuple):
    """One engine hash in one group; `waiting` where it is not placed yet."""

    engine_hash: int
    group: int
    waiting: bool = False


class Placed(NamedTuple):
    """Copies of a block whose token hash is known; 0 where its parent's is not, or it has none."""

    token_hash: int
    copies: Copies
    era: int = 0
    parent: int = 0


class Parked(NamedTuple):
    """A block whose parent is unknown, stored on one tier: `copies`; `others` were announced without tokens.

    `is_leaving`: its removal came while it was about to be placed.
    """

    parent: int
    local: bytes
    copies: Copies
    others: Copies = ()
    era: int = 0
    is_leaving: bool = False


class Unnamed(NamedTuple):
    """Copies of a block of which no event told the tokens yet."""

    copies: Copies
    era: int = 0


Value = tuple[Placed, ...] | Parked | Unnamed

_BY_TIERS: Final[dict[int, Copies]] = {
    tiers: tuple((tier, 1) for tier in _TIERS if tiers >> tier & 1) for tiers in range(1, _ALL + 1)
}
_PLAIN: Final[dict[Copies, bytes]] = {copies: bytes((tiers,)) for tiers, copies in _BY_TIERS.items()}
"""Almost all copies are one a tier: these are made once."""


def encode_field(field: Field) -> bytes:
    """The bytes of a field. One field has one form only."""
    return _U64.pack(field.engine_hash) + field_end(field.group, waiting=field.waiting)


def field_end(group: int, *, waiting: bool) -> bytes:
    """What follows the engine hash in a field."""
    number = group << 1 | waiting
    return _leb(number) if number else b""


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
        case Parked(parent, local, copies, others, era, is_leaving):
            if len(copies) != 1:
                raise ValueError("copies: a parked block was stored on one tier")
            behind = encode_copies(others, era) if others else b""
            return _PARKED.pack(parent, local, is_leaving) + encode_copies(copies, era) + behind
        case Unnamed(copies, era):
            return encode_copies(copies, era)
        case _:
            return b"".join(encode_placed(*placed) for placed in value)


def encode_placed(token_hash: int, copies: Copies, era: int, parent: int) -> bytes:
    """One part of a placed block's value."""
    return _PLACED.pack(token_hash, parent) + encode_copies(copies, era)


def decode_value(field: Field, data: bytes) -> Value:
    """The value of a field. Raises DamagedValue."""
    if len(data) == _COMMON.size and not field.waiting:
        token_hash, parent, tiers = _COMMON.unpack(data)
        copies = _BY_TIERS.get(tiers)
        if copies is not None:
            return (Placed(token_hash, copies, 0, parent),)
    try:
        return _decode_waiting(data) if field.waiting else _decode_placed(data)
    except (struct.error, IndexError, ValueError) as error:
        raise DamagedValue("value") from error


def copies_only(data: bytes) -> tuple[Copies, int] | None:
    """Copies and era, where these bytes are nothing else; None where more follows. Raises DamagedValue."""
    try:
        copies, era, end = _decode_copies(data, 0)
    except (IndexError, ValueError) as error:
        raise DamagedValue("value") from error
    return (copies, era) if end == len(data) else None


def _decode_placed(data: bytes) -> tuple[Placed, ...]:
    parts: list[Placed] = []
    position = 0
    while position < len(data) or not parts:
        token_hash, parent = _PLACED.unpack_from(data, position)
        copies, era, position = _decode_copies(data, position + PLACED_BYTES)
        parts.append(Placed(token_hash, copies, era, parent))
    return tuple(parts)


def _decode_waiting(data: bytes) -> Parked | Unnamed:
    value: Parked | Unnamed
    if len(data) <= _UNNAMED_MAX:
        copies, era, end = _decode_copies(data, 0)
        value = Unnamed(copies, era)
    else:
        parent, local, is_leaving = _PARKED.unpack_from(data)
        copies, era, end = _decode_copies(data, _PARKED.size)
        others: Copies = ()
        if end < len(data):
            others, _, end = _decode_copies(data, end)
        value = Parked(parent, local, copies, others, era, is_leaving)
    if end != len(data) or encode_value(value) != data:
        raise ValueError
    return value


def encode_copies(copies: Copies, era: int = 0) -> bytes:
    """A part of a value. Raises ValueError where there are none."""
    if not era:
        plain = _PLAIN.get(copies)
        if plain is not None:
            return plain
    tiers = 0
    for tier, _ in copies:
        tiers |= 1 << tier
    if not tiers or tiers.bit_count() != len(copies):
        raise ValueError("copies: each tier once, and at least one")
    dated = b"" if not era else _leb(era)
    mark = _DATED if era else 0
    if all(count == 1 for _, count in copies):
        return bytes((tiers | mark,)) + dated
    return bytes((tiers | mark | _COUNTED,)) + dated + bytes([min(count, COUNT_MAX) for _, count in sorted(copies)])


def _decode_copies(data: bytes, position: int) -> tuple[Copies, int, int]:
    """Copies, era, and where they end. Raises IndexError and ValueError."""
    tiers = data[position]
    if not tiers & _ALL or tiers & ~(_ALL | _DATED | _COUNTED):
        raise ValueError
    position += 1
    era = 0
    if tiers & _DATED:
        end = position
        while data[end] & 0x80:
            end += 1
        end += 1
        era = sum((byte & _LEB) << 7 * nth for nth, byte in enumerate(data[position:end]))
        if not era or _leb(era) != data[position:end] or end - position > _ERA_BYTES:
            raise ValueError
        position = end
    if not tiers & _COUNTED:
        return _BY_TIERS[tiers & _ALL], era, position
    held = [tier for tier in _TIERS if tiers >> tier & 1]
    return tuple((tier, data[position + nth]) for nth, tier in enumerate(held)), era, position + len(held)


def _leb(number: int) -> bytes:
    """LEB128."""
    out = bytearray()
    while number > _LEB:
        out.append(number & _LEB | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


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
