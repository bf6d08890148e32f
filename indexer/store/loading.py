"""What a reader of a source's map decides: whether what it read is whole. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from indexer.store.failures import DamagedValue
from indexer.store.layout import SEGMENTS_MAX, is_generation, is_number

if TYPE_CHECKING:
    from collections.abc import Mapping

Verdict = Literal["whole", "again", "unfinished"]


class SourceState(msgspec.Struct, frozen=True, kw_only=True):
    """State of a source as it stands in the store (see `PartitionKeys.source`).

    `complete` False: nothing of it counts yet, as after a command that began a generation which no owner took up.
    A cursor then says how far the source was applied when it was cleared.
    """

    generation: int
    cursor: int | None = None
    facts: bytes = b""
    counts: bytes = b""
    copy: int = 0
    segments: int = 0
    pairs: int = 0
    gone: int = 0
    complete: bool = False


def parse_state(fields: Mapping[bytes, bytes]) -> SourceState | None:
    """From the hash's fields; None where there is none. Raises DamagedValue."""
    if b"generation" not in fields:
        return None
    complete = fields.get(b"complete") == b"1"
    copy, segments, pairs, gone = (
        _number(fields, name) if complete else 0 for name in (b"copy", b"segments", b"pairs", b"gone")
    )
    if not is_generation(fields[b"generation"]) or segments > SEGMENTS_MAX or (complete and not segments):
        raise DamagedValue("state")
    return SourceState(
        generation=int(fields[b"generation"]),
        cursor=_cursor(fields),
        facts=fields.get(b"facts", b""),
        counts=fields.get(b"counts", b""),
        copy=copy,
        segments=segments,
        pairs=pairs,
        gone=gone,
        complete=complete,
    )


def _cursor(fields: Mapping[bytes, bytes]) -> int | None:
    """None before any word; -1 where the engine said that it has published nothing."""
    text = fields.get(b"cursor")
    return None if text is None else -1 if text == b"-1" else _number(fields, b"cursor")


def _number(fields: Mapping[bytes, bytes], name: bytes) -> int:
    text = fields.get(name, b"")
    if not is_number(text) or int(text) >= 1 << 64:
        raise DamagedValue("state")
    return int(text)


def verdict(before: SourceState, after: SourceState | None, read: int) -> Verdict:
    """Whether a copy was read whole: `read` different fields, between two looks at the state.

    A scan returns everything that was there from its beginning to its end. Of the pairs that were there before, at most
    as many left as fields were lost meanwhile; if even fewer were read, a part of the map is missing.
    """
    if after is None or not after.complete:
        return "unfinished"
    if (before.generation, before.copy, before.segments) != (after.generation, after.copy, after.segments):
        return "again"
    return "whole" if read >= before.pairs - (after.gone - before.gone) else "again"
