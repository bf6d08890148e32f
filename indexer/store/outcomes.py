"""What scripts reply, as values. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from indexer.store.failures import StoreFailure
from indexer.store.layout import SEGMENTS_MAX, is_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from indexer.store.client import Reply

LostWhat = Literal["log", "source", "copy"]


class Done(msgspec.Struct, frozen=True):
    """It is in the store. `again`: an earlier try of the same call had done it."""

    again: bool = False


class Laid(msgspec.Struct, frozen=True):
    """A part of a copy is in its segment, which has so many fields now."""

    fields: int


class Fenced(msgspec.Struct, frozen=True):
    """Somebody else owns the partition (or nobody, holder b""): stop writing, acquire first."""

    holder: bytes


class Lost(msgspec.Struct, frozen=True):
    """The store is not as this owner left it: emptied, restored, failed over with a loss, or expired in part.

    `log`: the journal ends at `found`: acquire a new epoch, then assert everything anew. `source`: the nth source of
    the call has no whole copy: assert it anew. `copy`: the new copy has `found` pairs: lay it again.
    """

    what: LostWhat
    found: bytes = b""
    nth: int = 0


class OtherGeneration(msgspec.Struct, frozen=True):
    """Another generation of the nth source of the call stands: a command raised it."""

    stored: int
    nth: int


class OtherCursor(msgspec.Struct, frozen=True):
    """The nth source of the call stands at another batch; None is before the first, or none of ours."""

    stored: int | None
    nth: int


class WrongType(msgspec.Struct, frozen=True):
    """A key holds something that is not ours: nothing was written. For the operator to remove."""

    key: bytes
    found: str


class Began(msgspec.Struct, frozen=True):
    """A generation or copy began; where the map of before is, to be unlinked. None where there was none."""

    before: Whereabouts | None
    again: bool = False


class Whereabouts(msgspec.Struct, frozen=True):
    """A copy of a source's map."""

    generation: int
    copy: int
    segments: int


Refusal = Fenced | Lost | OtherGeneration | OtherCursor | WrongType


def _lost(reply: Reply) -> Lost:
    if reply[1] == b"source":
        return Lost("source", nth=int(reply[2]) - 1)
    return Lost("log" if reply[1] == b"log" else "copy", b"%b" % _word(reply[2]))


def _word(value: bytes | int) -> bytes:
    return value if isinstance(value, bytes) else b"%d" % value


_REFUSALS: Final[dict[bytes, Callable[[Reply], Refusal]]] = {
    b"FENCED": lambda reply: Fenced(reply[1]),
    b"GENERATION": lambda reply: OtherGeneration(int(reply[1]), int(reply[2]) - 1),
    b"CURSOR": lambda reply: OtherCursor(int(reply[1]) if is_number(reply[1]) else None, int(reply[2]) - 1),
    b"TYPE": lambda reply: WrongType(reply[1], reply[2].decode(errors="replace")),
    b"LOST": _lost,
}


def refusal(reply: Reply) -> Refusal | None:
    """Why a script did nothing; None when it did. Raises StoreFailure for a reply that no script of ours gives."""
    if reply[0] == b"OK":
        return None
    if reply[0] not in _REFUSALS:
        raise unknown(reply)
    return _REFUSALS[reply[0]](reply)


def unknown(reply: Reply) -> StoreFailure:
    """For a first word that the caller does not know."""
    return StoreFailure("refused", f"a script replied {reply[0]!r}")


def done(reply: Reply) -> Done | Refusal:
    """The reply of a script that has nothing more to say than OK."""
    return refusal(reply) or Done(reply[1:] == [b"again"])


def laid(reply: Reply) -> Laid | Refusal:
    """The reply of the script that lays a part of a copy."""
    return refusal(reply) or Laid(int(reply[1]))


def began(reply: Reply) -> Began | Refusal:
    """The reply of a script that says what was before."""
    return refusal(reply) or (Began(None, again=True) if reply[1:] == [b"again"] else Began(whereabouts(*reply[1:])))


def whereabouts(generation: bytes, copy: bytes, segments: bytes) -> Whereabouts | None:
    """From a reply; a removed or never begun source has no copy, nor has one whose state was damaged."""
    if not all(map(is_number, (generation, copy, segments))):
        return None
    found = Whereabouts(int(generation), int(copy), int(segments))
    return found if found.segments <= SEGMENTS_MAX else None
