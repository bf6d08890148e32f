"""Journal entries as bytes, and positions in the journal. Pure.

An entry is MessagePack: an array that begins with its kind. Values in it are absolute: what a token hash's lanes are
from now on, so that an entry read twice changes nothing. An unknown kind is an error: whoever cannot read an entry must
load anew, not go on.
"""

from __future__ import annotations

import struct
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from indexer.store.failures import DamagedValue
from indexer.store.layout import is_number

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence


class Position(NamedTuple):
    """Of a journal entry: its epoch, and its number in the epoch from 1. (0, 0) is before all."""

    epoch: int
    number: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.number}"

    @property
    def next(self) -> Position:
        """Of the next entry of the same epoch."""
        return Position(self.epoch, self.number + 1)

    @classmethod
    def parse(cls, text: bytes) -> Position:
        """From a stream id. Raises DamagedValue."""
        epoch, dash, number = text.partition(b"-")
        if not (dash and is_number(epoch) and is_number(number)):
            raise DamagedValue("position")
        return cls(int(epoch), int(number))


START: Final = Position(0, 0)
HASH_BYTES: Final = 8
LANES_BYTES: Final = 2
STEP: Final = 1_000
"""Token hashes packed in one step."""


class SourceChange(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a run of batches changed at one source.

    `source` as `layout.source_name`; `sequence` None before the first batch; `token_hashes` as packed u64; `lanes` as
    u16 masks, one for each hash, or a single one that holds for all. 0 says that no lane holds it any more.
    """

    source: bytes
    generation: int
    sequence: int | None
    facts: bytes
    token_hashes: bytes
    lanes: bytes


class Changed(msgspec.Struct, frozen=True, array_like=True, tag="c", forbid_unknown_fields=True):
    """Batches were applied."""

    changes: list[SourceChange]


class Turned(msgspec.Struct, frozen=True, array_like=True, tag="g", forbid_unknown_fields=True):
    """A source began a new generation: nothing of before is held."""

    source: bytes
    generation: int


class Reasserted(msgspec.Struct, frozen=True, array_like=True, tag="r", forbid_unknown_fields=True):
    """A source's map stands in a new copy; what was told of it before may be incomplete, so load it anew."""

    source: bytes
    generation: int
    copy: int


class Moved(msgspec.Struct, frozen=True, array_like=True, tag="m", forbid_unknown_fields=True):
    """A source's map stands in another copy, and nothing that was told of it differs: followers have nothing to do."""

    source: bytes
    generation: int
    copy: int


class SourceTick(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How one source is: `sequence` as in SourceChange, age of its last sign of life, facts as `TickFacts`."""

    source: bytes
    generation: int
    sequence: int | None
    silent_ms: int
    connected: bool
    facts: bytes


class Ticked(msgspec.Struct, frozen=True, array_like=True, tag="t", forbid_unknown_fields=True):
    """The owner lives, at this wall time in microseconds, and its sources are as told.

    `control`: the id, in the control stream, of the last command that it has obeyed; b"" where that is not told.
    """

    wall_us: int
    sources: list[SourceTick]
    control: bytes = b""


Entry = Changed | Turned | Reasserted | Moved | Ticked

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Entry)


def encode_entry(entry: Entry) -> bytes:
    """The bytes of the entry's field `e`."""
    return _ENCODER.encode(entry)


def decode_entry(data: bytes) -> Entry:
    """The entry in these bytes. Raises DamagedValue."""
    try:
        entry = _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise DamagedValue("entry") from error
    if isinstance(entry, Changed) and not all(_fits(change) for change in entry.changes):
        raise DamagedValue("entry")
    if isinstance(entry, Ticked) and entry.control:
        Position.parse(entry.control)
    return entry


def _fits(change: SourceChange) -> bool:
    count, rest = divmod(len(change.token_hashes), 8)
    return not rest and len(change.lanes) in {2, 2 * count}


def pack_presence(presence: Sequence[tuple[int, int]]) -> tuple[bytes, bytes]:
    """`token_hashes` and `lanes` of a SourceChange, from (token hash, lane mask)."""
    hashes = struct.pack(f"<{len(presence)}Q", *(token_hash for token_hash, _ in presence))
    masks = [mask for _, mask in presence]
    if len(set(masks)) <= 1:
        masks = masks[:1] or [0]
    return hashes, struct.pack(f"<{len(masks)}H", *masks)


def pack_presence_in_steps(presence: Mapping[int, int]) -> Generator[None, None, tuple[bytes, bytes]]:
    """The same of many, a millisecond's work from step to step."""
    hashes: list[bytes] = []
    masks: list[bytes] = []
    left = iter(presence.items())
    while piece := list(islice(left, STEP)):
        hashes.append(struct.pack(f"<{len(piece)}Q", *(token_hash for token_hash, _ in piece)))
        masks.append(struct.pack(f"<{len(piece)}H", *(mask for _, mask in piece)))
        yield
    return b"".join(hashes), b"".join(masks)


def presence_pieces(change: SourceChange, count: int) -> Iterator[list[tuple[int, int]]]:
    """The same as `unpack_presence`, so many at a time."""
    same = len(change.lanes) == LANES_BYTES
    for start in range(0, len(change.token_hashes), HASH_BYTES * count):
        hashes = change.token_hashes[start : start + HASH_BYTES * count]
        first = LANES_BYTES * (start // HASH_BYTES)
        lanes = change.lanes if same else change.lanes[first : first + LANES_BYTES * count]
        yield unpack_presence(msgspec.structs.replace(change, token_hashes=hashes, lanes=lanes))


def unpack_presence(change: SourceChange) -> list[tuple[int, int]]:
    """(token hash, lane mask) of a SourceChange that `decode_entry` gave."""
    count = len(change.token_hashes) // 8
    hashes = struct.unpack(f"<{count}Q", change.token_hashes)
    masks = struct.unpack(f"<{len(change.lanes) // 2}H", change.lanes)
    if len(masks) != count:
        masks *= count
    return list(zip(hashes, masks, strict=True))
