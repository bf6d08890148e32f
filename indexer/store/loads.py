"""[I/O] How busy the engines of a partition are, as bytes: what the replica that reads their metrics tells the others.

    serial ‖ for each source: name, running, waiting, share of its cache in use or nil, age in ms     (MessagePack)

The serial is another one in each: who reads sees whether it is new. A later version may add to the end of any array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import msgspec

from indexer.loads.engine_metrics import EngineLoad
from indexer.store import lua
from indexer.store.failures import DamagedValue
from indexer.store.layout import source_id
from indexer.store.outcomes import unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from indexer.model import SourceId
    from indexer.store.client import Client
    from indexer.store.layout import PartitionKeys

FIELD: Final = b"l"
LOADS_BYTES_MAX: Final = 1024**2
"""Of one partition; longer ones are none of ours."""

_Number = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_Age = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class PackedLoad(msgspec.Struct, frozen=True, array_like=True):
    """Of one source. `source`: its name (layout.py)."""

    source: bytes
    running: _Number
    waiting: _Number
    kv_usage: Annotated[float, msgspec.Meta(ge=0, le=1)] | None
    age_ms: _Age


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    serial: bytes
    loads: list[PackedLoad]


class ToldLoad(NamedTuple):
    """`age_s`: how old the load was when it was told."""

    source: SourceId
    load: EngineLoad
    age_s: float


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Packed).decode


async def put_loads(client: Client, keys: PartitionKeys, serial: str, loads: Sequence[PackedLoad], ttl_ms: int) -> None:
    """In the place of those before. Raises StoreFailure."""
    packed = _encode(_Packed(serial.encode(), list(loads)))
    reply = await client.run(lua.LOADS, [keys.loads], (ttl_ms, packed))
    if reply[0] != b"OK":
        raise unknown(reply)


def read_loads(data: bytes) -> Iterable[ToldLoad]:
    """What stands in these bytes. Raises DamagedValue."""
    if len(data) > LOADS_BYTES_MAX:
        raise DamagedValue("loads")
    try:
        packed = _decode(data)
    except msgspec.MsgspecError as error:
        raise DamagedValue("loads") from error
    return [
        ToldLoad(source_id(each.source), EngineLoad(each.running, each.waiting, each.kv_usage), each.age_ms / 1e3)
        for each in packed.loads
    ]
