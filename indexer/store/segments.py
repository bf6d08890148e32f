"""Fields and values of map segments: what one engine hash of one group stands for. Pure.

    field    engine hash (8 bytes) ‖ group and kind as one number (LEB128; nothing for a placed block of group 0)
    placed   (token hash (8) ‖ parent (8) ‖ copies)+   one part, or several where tiers name different contents
    parent   token hash of the block before; 0 for a first block, or where that is not known
    parked   parent engine hash (8) ‖ local hash (8) ‖ is leaving (1) ‖ copies of one tier ‖ copies or nothing
    unnamed  copies                               held, but no event has told yet which block it is
    copies   see copies.py

All numbers little-endian. The common case, one copy on one tier, takes 8 + 17 bytes, with the second of its last
announcement 22, and no case of one part without such seconds and without an era takes more than 22: in Redis's hash
tables all of these cost the same (decisions/0013, 0015).
"""

from __future__ import annotations

import struct
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.model import Tier
from indexer.store.copies import BY_TIERS, LEB, LEB_BYTES_MAX, decode_copies, encode_copies, leb
from indexer.store.failures import DamagedValue
from indexer.store.layout import SEGMENT_MIX
from indexer.store.packing import array, texts, texts_in_steps

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from indexer.store.copies import Announced, Copies

HASH_BYTES: Final = 8
PLACED_BYTES: Final = 16
"""Of a part of a placed block's value: what stands before its copies."""
_U64_MAX: Final = (1 << 64) - 1
_U64: Final = struct.Struct("<Q")
_PLACED: Final = struct.Struct("<QQ")
_COMMON: Final = struct.Struct("<QQB")
_PARKED: Final = struct.Struct("<Q8s?")
_UNNAMED_MAX: Final = 1 + LEB_BYTES_MAX + len(Tier)
"""Bytes; a parked block's value has more."""


STEP_FIELDS: Final = 500
"""Of many changes, sorted in one step."""


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
    announced: Announced = ()


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


def encode_field(field: Field) -> bytes:
    """The bytes of a field. One field has one form only."""
    return _U64.pack(field.engine_hash) + field_end(field.group, waiting=field.waiting)


def field_end(group: int, *, waiting: bool) -> bytes:
    """What follows the engine hash in a field."""
    number = group << 1 | waiting
    return leb(number) if number else b""


def decode_field(data: bytes) -> Field:
    """The field in these bytes. Raises DamagedValue."""
    if len(data) == _U64.size:
        return Field(_U64.unpack(data)[0], 0)
    number = 0
    for position, byte in enumerate(data[_U64.size :]):
        number |= (byte & LEB) << 7 * position
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


def encode_placed(token_hash: int, copies: Copies, era: int, parent: int, announced: Announced = ()) -> bytes:
    """One part of a placed block's value."""
    return _PLACED.pack(token_hash, parent) + encode_copies(copies, era, announced)


def decode_value(field: Field, data: bytes) -> Value:
    """The value of a field. Raises DamagedValue."""
    if len(data) == _COMMON.size and not field.waiting:
        token_hash, parent, tiers = _COMMON.unpack(data)
        copies = BY_TIERS.get(tiers)
        if copies is not None:
            return (Placed(token_hash, copies, 0, parent),)
    try:
        return _decode_waiting(data) if field.waiting else _decode_placed(data)
    except (struct.error, IndexError, ValueError) as error:
        raise DamagedValue("value") from error


def _decode_placed(data: bytes) -> tuple[Placed, ...]:
    parts: list[Placed] = []
    position = 0
    while position < len(data) or not parts:
        token_hash, parent = _PLACED.unpack_from(data, position)
        copies, era, announced, position = decode_copies(data, position + PLACED_BYTES)
        parts.append(Placed(token_hash, copies, era, parent, announced))
    return tuple(parts)


def _decode_waiting(data: bytes) -> Parked | Unnamed:
    value: Parked | Unnamed
    if len(data) <= _UNNAMED_MAX:
        copies, era, _, end = decode_copies(data, 0)
        value = Unnamed(copies, era)
    else:
        parent, local, is_leaving = _PARKED.unpack_from(data)
        copies, era, _, end = decode_copies(data, _PARKED.size)
        others: Copies = ()
        if end < len(data):
            others, _, _, end = decode_copies(data, end)
        value = Parked(parent, local, copies, others, era, is_leaving)
    if end != len(data) or encode_value(value) != data:
        raise ValueError
    return value


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


Sorted = dict[bytes, SegmentChanges]
"""By the key of the segment."""


class PackedSegment(NamedTuple):
    """`SegmentChanges` as a script takes them."""

    key: bytes
    packed: bytes


def packed_in_steps(
    fields: Mapping[bytes, bytes | None], keys: Sequence[bytes]
) -> Generator[None, None, list[PackedSegment]]:
    """Fields to be set, or taken out, sorted by segment and packed: a millisecond's work from step to step."""
    sorted_: Sorted = {}
    left = iter(fields.items())
    while piece := list(islice(left, STEP_FIELDS)):
        sort_in(sorted_, piece, keys)
        yield
    packed: list[PackedSegment] = []
    for part in sorted_.values():
        sets = yield from texts_in_steps(part.sets)
        outs = yield from texts_in_steps(part.outs)
        packed.append(PackedSegment(part.key, array((sets, outs))))
    return packed


def by_segment(changes: Iterable[tuple[bytes, bytes | None]], keys: Sequence[bytes]) -> list[SegmentChanges]:
    """Changes (field, value or None) sorted by the segment that holds them; `keys` are all of the copy, in order."""
    sorted_: Sorted = {}
    sort_in(sorted_, changes, keys)
    return list(sorted_.values())


def sort_in(sorted_: Sorted, changes: Iterable[tuple[bytes, bytes | None]], keys: Sequence[bytes]) -> None:
    """As `by_segment`, behind what was sorted before."""
    count, first = len(keys), _U64.unpack_from
    for field, value in changes:
        key = keys[((first(field)[0] * SEGMENT_MIX & _U64_MAX) >> 32) % count]  # `segment_of`, without a call
        segment = sorted_.get(key)
        if segment is None:
            segment = sorted_[key] = SegmentChanges(key, [], [])
        if value is None:
            segment.outs.append(field)
        else:
            segment.sets.extend((field, value))
