"""A registration as the registry of a partition holds it (hash `sources`). Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from indexer.model import Descriptor
from indexer.store.failures import DamagedValue
from indexer.store.layout import source_name


class Registered(msgspec.Struct, frozen=True, array_like=True):
    """What was said of a source, and whether an operator took it out of the scores."""

    descriptor: Descriptor
    cordoned: bool = False


_ENCODER: Final = msgspec.msgpack.Encoder(order="sorted")
_DECODER: Final = msgspec.msgpack.Decoder(Registered)


def pack_registered(registered: Registered) -> bytes:
    """Equal registrations have equal bytes: scripts compare them."""
    return _ENCODER.encode(registered)


def unpack_registered(data: bytes) -> Registered:
    """Raises DamagedValue."""
    try:
        return _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise DamagedValue("registration") from error


def unpack_registration(name: bytes, data: bytes) -> Registered:
    """What stands in the registry under a source's name. Raises DamagedValue, also where it is another source's."""
    registered = unpack_registered(data)
    if source_name(registered.descriptor.id) != name:
        raise DamagedValue("registration")
    return registered
