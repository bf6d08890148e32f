"""What was counted of a source, as bytes. Pure.

    wall time, us ‖ counters by name ‖ for each tier: four counts, and wall time of the last event, us     (MessagePack)

Of the store, beside a source's facts: best effort, some seconds old, and nothing depends on it.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Final, NamedTuple

import msgspec

from indexer.index.counts import COUNT_MAX, Counts, TierCounts
from indexer.model import Tier
from indexer.store.failures import DamagedValue

_Count = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
_Name = Annotated[str, msgspec.Meta(max_length=64)]
NAMES_MAX: Final = 256
"""Counters of a source; there are some forty."""


class _Packed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    wall_us: _Count
    counters: Annotated[dict[_Name, _Count], msgspec.Meta(max_length=NAMES_MAX)]
    tiers: Annotated[list[tuple[_Count, _Count, _Count, _Count, _Count | None]], msgspec.Meta(max_length=len(Tier))]


class StoredCounts(NamedTuple):
    """`age_s`: since they were written."""

    counts: Counts
    age_s: float


def pack_counts(counts: Counts, wall_us: int, now: float) -> bytes:
    """As of now."""
    tiers = [
        (*tier[:4], None if tier.last_at is None else max(0, wall_us - round((now - tier.last_at) * 1e6)))
        for tier in counts.tiers
    ]
    return _ENCODE((wall_us, dict(counts.counters), tiers))


def unpack_counts(data: bytes, wall_us: int, now: float) -> StoredCounts:
    """The counts in these bytes. Raises DamagedValue."""
    try:
        packed = _DECODE(data)
    except msgspec.MsgspecError as error:
        raise DamagedValue("counts") from error
    tiers = [
        TierCounts(*counted, None if last_us is None else now - max(0.0, (wall_us - last_us) / 1e6))
        for counted, last_us in ((tier[:4], tier[4]) for tier in packed.tiers)
    ]
    tiers += [TierCounts()] * (len(Tier) - len(tiers))
    return StoredCounts(Counts(Counter(packed.counters), tuple(tiers)), max(0.0, (wall_us - packed.wall_us) / 1e6))


_ENCODE: Final = msgspec.msgpack.Encoder().encode
_DECODE: Final = msgspec.msgpack.Decoder(_Packed).decode
