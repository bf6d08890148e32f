"""A registration as the registry of a partition holds it (hash `sources`). Pure.

    MessagePack: [descriptor, cordoned] or, where discovery says more, [descriptor, cordoned, ready, life, why]

The short form is that of 0.6, to which the long one reads as its beginning: what nobody discovered has the same bytes
in both, and scripts compare bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from indexer.model import Descriptor
from indexer.store.failures import DamagedValue
from indexer.store.layout import source_name

if TYPE_CHECKING:
    from indexer.index.source import SourceIndex
    from indexer.index.states import SourceFacts


class _Plain(msgspec.Struct, frozen=True, array_like=True):
    """The short form."""

    descriptor: Descriptor
    cordoned: bool = False


class Registered(_Plain, frozen=True, array_like=True):
    """What was said of a source: as what it is registered, and whether requests may go there."""

    ready: bool = True
    """As discovery says."""
    life: str = ""
    """Which engine process it is, as discovery says: another value is another process. Empty where nobody can tell."""
    why: str = ""
    """Why it is not ready, for people."""

    @classmethod
    def of(cls, source: SourceIndex) -> Registered:
        """As it stands in this process."""
        facts = source.facts
        return cls(source.descriptor, facts.cordoned, facts.ready, source.life, facts.unready_why)

    def tell(self, facts: SourceFacts) -> None:
        """Let a source know who takes it out of the scores."""
        facts.cordoned, facts.ready, facts.unready_why = self.cordoned, self.ready, self.why

    def begin(self, source: SourceIndex) -> None:
        """Let a source that begins, or is only followed, know all that was said of it besides its descriptor."""
        self.tell(source.facts)
        source.life = self.life


_ENCODER: Final = msgspec.msgpack.Encoder(order="sorted")
_DECODER: Final = msgspec.msgpack.Decoder(Registered)


def pack_registered(registered: Registered) -> bytes:
    """Equal registrations have equal bytes: scripts compare them."""
    if registered.ready and not registered.life and not registered.why:
        return _ENCODER.encode(_Plain(registered.descriptor, registered.cordoned))
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
