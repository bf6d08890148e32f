"""The batch envelope: its time stamp and rank cheaply, or with its events still encoded. Pure.

An envelope is an array `[ts, events, data_parallel_rank]` or, from other producers, a map with those names. The
sequence check needs the time stamp of every batch but never its events, so those are stepped over undecoded.
"""

from __future__ import annotations

import math
import struct
import zlib
from typing import Final, NamedTuple

import msgspec

_ARRAY_THEN_FLOAT: Final = b"\x93\xcb"
"""Array of three that begins with a float64: what every vLLM release sends."""
_FLOAT64: Final = struct.Struct(">xxd")

EVENTS_MAX: Final = 2**18
"""In one batch. One with more is no event batch: nothing but damage or malice puts so many into 16 MiB."""
UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What bytes that are not what they should be raise."""
_FIXARRAY: Final = 0x9
"""High four bits of msgpack's short arrays."""
_ARRAY_16: Final = b"\xdc"
_ARRAY_32: Final = b"\xdd"
_NOTHING: Final = msgspec.Raw()


class _ArrayEnvelope(msgspec.Struct, array_like=True):
    ts: msgspec.Raw
    events: msgspec.Raw
    rank: msgspec.Raw = _NOTHING


class _MapEnvelope(msgspec.Struct):
    ts: msgspec.Raw
    data_parallel_rank: msgspec.Raw = _NOTHING
    attn_dp_rank: msgspec.Raw = _NOTHING  # SGLang's name for the same thing


class RawBatch(NamedTuple):
    """Each event is well-formed MessagePack as far as its length goes; no more is known of it."""

    ts: float
    events: list[msgspec.Raw]
    dp_rank: int | None


class _ArrayBatch(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: msgspec.Raw
    data_parallel_rank: msgspec.Raw = _NOTHING


class _MapBatch(msgspec.Struct, gc=False):
    ts: float
    events: msgspec.Raw
    data_parallel_rank: msgspec.Raw = _NOTHING


_array_batch: Final = msgspec.msgpack.Decoder(_ArrayBatch)
_map_batch: Final = msgspec.msgpack.Decoder(_MapBatch)
_raw_events: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_array_decoder: Final = msgspec.msgpack.Decoder(_ArrayEnvelope)
_map_decoder: Final = msgspec.msgpack.Decoder(_MapEnvelope)
_number_decoder: Final = msgspec.msgpack.Decoder(float)
_rank_decoder: Final = msgspec.msgpack.Decoder(int)


def array_length(encoded: msgspec.Raw) -> int:
    """Elements of a MessagePack array as its head tells them; 0 for fewer than 16, and for what is no array."""
    head = bytes(memoryview(encoded)[:5])
    if head[:1] == _ARRAY_16:
        return int.from_bytes(head[1:3], "big")
    return int.from_bytes(head[1:5], "big") if head[:1] == _ARRAY_32 else 0


def raw_batch(payload: bytes) -> RawBatch | None:
    """The batch with its events still encoded; None where there are too many. Raises what is in `UNDECODABLE`."""
    is_map = payload[:1] and payload[0] >> 4 != _FIXARRAY
    envelope = (_map_batch if is_map else _array_batch).decode(payload)
    if array_length(envelope.events) > EVENTS_MAX:
        return None
    return RawBatch(envelope.ts, _raw_events.decode(envelope.events), _rank_of(envelope.data_parallel_rank))


def _rank_of(raw: msgspec.Raw) -> int | None:
    try:
        rank = msgspec.msgpack.decode(raw) if raw else None
    except UNDECODABLE:
        return None
    return rank if type(rank) is int else None


def peek_ts(payload: bytes) -> float | None:
    """The batch's time stamp as the engine wrote it (vLLM: wall-clock seconds), or None where there is none.

    Only ever compared for equality, so the unit does not matter; values that equal nothing (NaN) count as none.
    """
    if payload[:2] == _ARRAY_THEN_FLOAT and len(payload) > _FLOAT64.size:
        ts: float = _FLOAT64.unpack_from(payload)[0]
        return ts if math.isfinite(ts) else None
    raw, _ = _split(payload)
    try:
        ts = _number_decoder.decode(raw)
    except (msgspec.DecodeError, OverflowError):
        return None
    return ts if math.isfinite(ts) else None


def peek_rank(payload: bytes) -> int | None:
    """The data-parallel rank the batch claims (>= 0), or None where it claims none. Steps over the events."""
    _, raw = _split(payload)
    try:
        rank = _rank_decoder.decode(raw)
    except msgspec.DecodeError:
        return None
    return rank if rank >= 0 else None


def stamp(payload: bytes) -> float:
    """What tells two batches of the same sequence number apart: the time stamp, or a number made of the bytes.

    Replayed payloads are byte-identical to the live ones, so both choices agree between the two.
    The stand-in is negative, as no engine clock is.
    """
    ts = peek_ts(payload)
    return -1.0 - zlib.crc32(payload) if ts is None else ts


def _split(payload: bytes) -> tuple[msgspec.Raw, msgspec.Raw]:
    """Time stamp and rank, still encoded; empty where missing or where the bytes are no envelope."""
    try:
        array = _array_decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        pass
    else:
        return array.ts, array.rank
    try:
        named = _map_decoder.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return _NOTHING, _NOTHING
    return named.ts, named.data_parallel_rank or named.attn_dp_rank
