"""[I/O] What replicas tell each other of routed prompts: hashes of blocks that a source is expected to come to hold.

A bounded stream a partition, in which nothing counts as held: who misses one answers as if nobody had told. Hashes
only: no token, no prompt, and no name that a caller chose for a request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from indexer.store import lua
from indexer.store.failures import DamagedValue
from indexer.store.layout import is_number, source_id
from indexer.store.outcomes import unknown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from indexer.model import SourceId
    from indexer.store.client import Client, StreamEntry
    from indexer.store.layout import PartitionKeys

ENTRIES: Final = 256
"""Kept of each partition. The server trims whole nodes of a stream, so some 100 more may be there."""
ENTRY_BYTES: Final = 32 * 1024
"""Of one entry, at most: with `ENTRIES` some 8 MiB a partition."""
HASH_BYTES: Final = 8
PACKED_BESIDE: Final = 32
"""Of a hint in an entry, beside its name and hashes; more than it ever is."""
HELD_BESIDE: Final = 208
"""The same in this process's memory, as measured."""


class PackedHint(msgspec.Struct, frozen=True, array_like=True):
    """As it stands in an entry. `source`: its name (layout.py); `hashes`: little-endian u64."""

    source: bytes
    generation: int
    ttl_ms: int
    hashes: bytes

    @property
    def packed_bytes(self) -> int:
        """What it takes in an entry, at most."""
        return len(self.source) + len(self.hashes) + PACKED_BESIDE

    @property
    def held_bytes(self) -> int:
        """What it takes in memory."""
        return len(self.source) + len(self.hashes) + HELD_BESIDE

    @property
    def id(self) -> SourceId:
        """Whose it is. Raises DamagedValue."""
        return source_id(self.source)


class HintsRead(NamedTuple):
    """An entry. `at_ms`: when it was written, by the server's clock."""

    writer: bytes
    at_ms: int
    hints: list[PackedHint]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[PackedHint]).decode


async def append(client: Client, keys: PartitionKeys, writer: str, hints: Sequence[PackedHint], retain_ms: int) -> None:
    """Write them as one entry. Raises StoreFailure."""
    reply = await client.run(lua.HINTS, [keys.hints], (writer.encode(), ENTRIES, retain_ms, _encode(hints)))
    if reply[0] != b"OK":
        raise unknown(reply)


def read_entry(entry: StreamEntry) -> HintsRead:
    """What stands in an entry. Raises DamagedValue."""
    entry_id, fields = entry
    ms = entry_id.partition(b"-")[0]
    try:
        hints = _decode(fields.get(b"h", b""))
    except msgspec.MsgspecError as error:
        raise DamagedValue("hints") from error
    if not is_number(ms) or any(len(hint.hashes) % HASH_BYTES or hint.ttl_ms < 0 for hint in hints):
        raise DamagedValue("hints")
    return HintsRead(fields.get(b"w", b""), int(ms), hints)
