"""Entries of an answer as they stand in a gRPC answer: `PodEntry` of schemas/rpc/kvindexer/v1/kvindexer.proto. Pure.

A large fleet answers with hundreds of entries, nearly all of them prepared (lookup_view.py). So they are encoded here,
once, to the bytes that leave, and no message object is made of any. The format is stable by design; a property test
reads what is written here with the code that is generated from the proto.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from schemas.lookup import PodEntry, PrefixTokens, TierTokens

_LENGTH_DELIMITED: Final = 2
_ENTRY: Final = bytes([9 << 3 | _LENGTH_DELIMITED])
"""`LookupResponse.pods`."""
_TIERS: Final = bytes([6 << 3 | _LENGTH_DELIMITED])
_PREFIX: Final = bytes([7 << 3 | _LENGTH_DELIMITED])
_SCORE: Final = bytes([8 << 3 | 1])
_pack_score: Final = struct.Struct("<d").pack


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - seven bits a byte
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Small(dict[int, bytes]):
    """Numbers as they were written before: nearly all are small."""

    def __missing__(self, value: int) -> bytes:
        written = _varint(value)
        if value < SMALL:
            self[value] = written
        return written


class _Beginnings(dict[int, bytes]):
    """Of entries of so many bytes."""

    def __missing__(self, size: int) -> bytes:
        begun = _ENTRY + varint(size)
        if size < SMALL:
            self[size] = begun
        return begun


SMALL: Final = 4_096
_small: Final = _Small()
_beginnings: Final = _Beginnings()


def varint(value: int) -> bytes:
    """A number that is not negative."""
    return _small[value]


def sized(content: bytes) -> bytes:
    """The content behind its length."""
    return varint(len(content)) + content


def framed(frame: bytes, held: bytes) -> bytes:
    """A whole entry, with its tag: what the prompt decides, behind what it does not."""
    size = len(frame) + len(held)
    return b"".join((_beginnings[size], frame, held))


def entry(of: PodEntry) -> bytes:
    """A whole entry, with its tag."""
    held = held_part(of.matched_tokens, of.reusable_tokens, of.tiers, of.prefix, of.score)
    return framed(frame_part(of), held + _number(16, of.speculative_tokens))


def frame_part(of: PodEntry) -> bytes:
    """The fields that do not depend on the prompt."""
    return b"".join(
        (
            _text(1, of.pod),
            _number(2, of.dp_rank),
            _known(3, of.block_size),
            _text(9, of.state),
            _text(10, of.bound),
            _text(11, of.reason),
            _text(12, of.generation),
            _known(13, of.sequence),
            _known(14, of.lag_ms),
            _known(15, of.event_age_ms),
        )
    )


def held_part(matched: int, reusable: int, tiers: TierTokens, prefix: PrefixTokens, score: float) -> bytes:
    """The fields that the prompt decides."""
    if not matched:
        return b""
    by_tier = _numbers(tiers.gpu, tiers.cpu, tiers.storage, tiers.remote, tiers.unknown)
    cumulative = _numbers(prefix.gpu, prefix.cpu, prefix.storage, prefix.remote)
    return b"".join(
        (
            _number(4, matched),
            _number(5, reusable),
            _TIERS,
            sized(by_tier),
            _PREFIX,
            sized(cumulative),
            _SCORE,
            _pack_score(score),
        )
    )


def _numbers(*values: int) -> bytes:
    return b"".join([_number(field, value) for field, value in enumerate(values, 1) if value])


def _number(field: int, value: int) -> bytes:
    """A field that is 0 where it is absent."""
    return varint(field << 3) + varint(value) if value else b""


def _known(field: int, value: int | None) -> bytes:
    """A field whose absence means that it is not known."""
    return b"" if value is None else varint(field << 3) + varint(value)


def _text(field: int, value: str | None) -> bytes:
    return b"" if value is None else varint(field << 3 | _LENGTH_DELIMITED) + sized(value.encode("utf-8", "replace"))
