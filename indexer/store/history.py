"""[I/O] Histories of sources in the store: a bounded stream each, which outlives the source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from indexer.happenings import unpack_entry
from indexer.history import Mark, Told
from indexer.store import lua
from indexer.store.layout import is_number
from indexer.store.outcomes import unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from indexer.history import Noted
    from indexer.model import SourceId
    from indexer.store.client import Client, StreamEntry
    from indexer.store.layout import PartitionKeys

HISTORY_S: Final = 7 * 86_400.0
"""So long a history is kept after its last entry, at least: longer than an outage, a night or a weekend."""
ENTRIES: Final = 256
"""Kept of each source. The server trims whole nodes of a stream, so some 100 more may be there."""


class Page(NamedTuple):
    """`unread` entries are in a form of another version. `written`: numbers of entries that this process wrote."""

    told: list[Told]
    unread: int
    written: frozenset[int]


async def append(
    client: Client, keys: PartitionKeys, writer: str, entries: Sequence[tuple[SourceId, Noted]], retain_ms: int
) -> list[SourceId]:
    """Write entries of sources of one partition, in order; sent again they are written once.

    Returns the sources of which none was written, since their key is in use for something else. Raises StoreFailure.
    """
    words: list[bytes | int] = []
    for _, noted in entries:
        words += [noted.number, noted.packed]
    streams = [keys.history(source) for source, _ in entries]
    reply = await client.run(
        lua.HISTORY, streams, (writer.encode(), ENTRIES, max(retain_ms, round(HISTORY_S * 1000)), *words)
    )
    if reply[0] != b"OK":
        raise unknown(reply)
    return [entries[int(place) - 1][0] for place in reply[1:]]


async def newest(
    client: Client, keys: PartitionKeys, source: SourceId, before: Mark | None, limit: int, *, writer: str
) -> Page:
    """The newest entries of a source that stand before a mark. Raises StoreFailure."""
    found = await client.entries_up_to(keys.history(source), _up_to(source, before), limit)
    told: list[Told] = []
    written: set[int] = set()
    for each in found:
        read = _read(source, each)
        if read is not None:
            told.append(read)
        if each[1].get(b"w") == writer.encode() and is_number(each[1].get(b"n", b"")):
            written.add(int(each[1][b"n"]))
    return Page(told, len(found) - len(told), frozenset(written))


def _up_to(source: SourceId, before: Mark | None) -> bytes:
    """Where to begin: of two ranks' entries with the same id that of the greater rank counts as the newer."""
    if before is None:
        return b"+"
    return b"%b%d-%d" % (b"" if source.dp_rank < before.rank else b"(", before.ms, before.number)


def _read(source: SourceId, entry: StreamEntry) -> Told | None:
    """None for what this version cannot read."""
    entry_id, fields = entry
    ms, _, number = entry_id.partition(b"-")
    try:
        return Told(Mark(int(ms), int(number), source.dp_rank), unpack_entry(fields[b"e"]))
    except (KeyError, msgspec.MsgspecError):
        return None
