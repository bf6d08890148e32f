"""[I/O] What the engines of a partition say they serve, as bytes: what the replica that asks them tells the others.

    what is served, each once ‖ for each source: its name, its generation, which of those        (MessagePack)

Of a generation: the word of a process that is over says nothing. A later version may add to the end of any array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import msgspec

from indexer.index.served import Served
from indexer.store import lua
from indexer.store.failures import DamagedValue
from indexer.store.layout import source_id, source_name
from indexer.store.outcomes import unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from indexer.model import SourceId
    from indexer.store.client import Client
    from indexer.store.layout import PartitionKeys

FIELD: Final = b"n"
NAMES_BYTES_MAX: Final = 1024**2
"""Of one partition; longer ones are none of ours, and what would make them longer is left out."""

_Number = Annotated[int, msgspec.Meta(ge=0)]


class ToldNames(NamedTuple):
    """What one source serves in one generation."""

    source: SourceId
    generation: int
    served: Served


class _Row(msgspec.Struct, frozen=True, array_like=True):
    source: bytes
    generation: _Number
    which: _Number


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    served: list[Served]
    rows: list[_Row]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Packed).decode


class PackedNames(NamedTuple):
    """`is_whole`: nothing was left out."""

    data: bytes
    is_whole: bool


def pack_names(told: Iterable[ToldNames]) -> PackedNames:
    """Those that fit, in their order. Equal words are equal bytes."""
    numbers: dict[Served, int] = {}
    rows: list[_Row] = []
    size, is_whole = 0, True
    for each in told:
        row = _Row(source_name(each.source), each.generation, numbers.get(each.served, len(numbers)))
        more = len(_encode(row)) + (0 if each.served in numbers else len(_encode(each.served)))
        if size + more > NAMES_BYTES_MAX - _FRAME_BYTES:
            is_whole = False
            continue
        size += more
        numbers.setdefault(each.served, len(numbers))
        rows.append(row)
    return PackedNames(_encode(_Packed(list(numbers), rows)), is_whole)


_FRAME_BYTES: Final = 64


async def put_names(client: Client, keys: PartitionKeys, data: bytes, ttl_ms: int) -> None:
    """In the place of those before. Raises StoreFailure."""
    reply = await client.run(lua.NAMES, [keys.names], (ttl_ms, data))
    if reply[0] != b"OK":
        raise unknown(reply)


def read_names(data: bytes) -> Iterator[ToldNames]:
    """What stands in these bytes. Raises DamagedValue."""
    if len(data) > NAMES_BYTES_MAX:
        raise DamagedValue("names")
    try:
        packed = _decode(data)
    except msgspec.MsgspecError as error:
        raise DamagedValue("names") from error
    if any(row.which >= len(packed.served) for row in packed.rows):
        raise DamagedValue("names")
    return (ToldNames(source_id(row.source), row.generation, packed.served[row.which]) for row in packed.rows)
