"""What happens to a source and is told an operator later: closed lists, numbers, and the merging of many. Pure.

Numbers only: no token, hash or name that an engine chose is in an entry. `Gathering` sees to it that a source to which
the same thing happens a thousand times a second makes one entry a second of it.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, Generic, Literal, TypeVar

import msgspec

from indexer.model import Origin
from indexer.ports import DoubtReason, RestartReason

Key = TypeVar("Key")

What = Literal[
    "registered",
    "joined",
    "gap",
    "restart",
    "clear",
    "cleared_by_engine",
    "forgotten",
    "doubt",
    "dropped",
    "replay_differs",
    "takeover",
    "handover",
    "reassertion",
    "cordoned",
    "uncordoned",
    "ready",
    "not_ready",
    "removed",
]
JoinCause = Literal["from_the_start", "in_the_middle"]
GapCause = Literal["kept", "cleared"]
SpellCause = Literal["begun", "ended"]
"""Of what lasts until the collector takes it back."""
ForgetCause = Literal["gone_too_long", "damaged"]
"""Of what was known, and of a source that came by topic."""
TakeoverCause = Literal["first", "again", "same_name", "lease_expired", "handed_over"]
"""How a partition came to be ours: nobody had it ever; we did, and nobody since; a process of this name did; another
replica, whose lease ran out; one that handed it over."""
HandoverCause = Literal["rebalanced", "drained", "stopped"]
LossCause = Literal["store_lost", "store_went_back", "part_missing", "too_much_waited", "collected_alone"]
RemovalCause = Literal["by_command", "not_configured", "not_discovered"]
Cause = Literal[
    Origin,
    JoinCause,
    GapCause,
    RestartReason,
    DoubtReason,
    SpellCause,
    TakeoverCause,
    HandoverCause,
    LossCause,
    ForgetCause,
    RemovalCause,
]

COUNT_MAX: Final = (1 << 63) - 1
"""Engines choose sequence numbers: a sum of what was lost must not grow too large to encode."""
MERGED_S: Final = 1.0
"""What happens again within so long, with the same cause, becomes one entry."""
WINDOWS_MAX: Final = 16_384
"""Of that at once, over all sources; beyond, what happens is told one by one."""


class Happening(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened. `cause` is None where there is only one.

    `first..last` are the sequences it is about, `lost` how many of them are lost for good; `sequence` the batch applied
    last before it (`joined`: the first one); `generation` the source's after it, `generation_before` the one that it
    ended; `epoch` of the ownership that began or ended.
    """

    what: What
    cause: Cause | None = None
    first: int | None = None
    last: int | None = None
    lost: int | None = None
    sequence: int | None = None
    generation: int | None = None
    generation_before: int | None = None
    epoch: int | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """As it stands in a history: `at_ms` of wall time (the first of `count`), and the replica that saw it."""

    at_ms: int
    happening: Happening
    count: int = 1
    replica: str | None = None


_DECODER: Final = msgspec.msgpack.Decoder(Entry)


def pack_entry(entry: Entry) -> bytes:
    """As it is kept, here and in the store."""
    return msgspec.msgpack.encode(entry)


def unpack_entry(data: bytes) -> Entry:
    """Raises msgspec.MsgspecError for what this version does not know."""
    return _DECODER.decode(data)


def merged(entry: Entry, more: Entry) -> Entry:
    """One entry of two of the same kind and cause: the first of the first, the last of the last."""
    one, other = entry.happening, more.happening
    lost = None if one.lost is None else min(one.lost + (other.lost or 0), COUNT_MAX)
    both = msgspec.structs.replace(
        other, first=one.first, lost=lost, sequence=one.sequence, generation_before=one.generation_before
    )
    return msgspec.structs.replace(entry, happening=both, count=min(entry.count + more.count, COUNT_MAX))


class _Window:
    """Since an entry was told: what came of its kind meanwhile, merged."""

    __slots__ = ("ends_at", "waits")

    def __init__(self, ends_at: float) -> None:
        self.ends_at = ends_at
        self.waits: Entry | None = None


class Gathering(Generic[Key]):
    """The first of a kind is told at once; what follows within a second is told at its end, as one."""

    def __init__(self) -> None:
        self._windows: dict[tuple[Key, What, Cause | None], _Window] = {}
        """In the order in which they end: all are equally long."""

    def take(self, key: Key, entry: Entry, now: float) -> Entry | None:
        """The entry to tell now; None where it waits, merged."""
        name = (key, entry.happening.what, entry.happening.cause)
        window = self._windows.get(name)
        if window is None:
            if len(self._windows) < WINDOWS_MAX:
                self._windows[name] = _Window(now + MERGED_S)
            return entry
        window.waits = entry if window.waits is None else merged(window.waits, entry)
        return None

    def due(self, now: float, limit: int) -> list[tuple[Key, Entry]]:
        """What waited for its second to end; of so many kinds and sources at most, the rest at the next call."""
        told: list[tuple[Key, Entry]] = []
        for name in list(islice(self._windows, limit)) if self._windows else ():
            window = self._windows[name]
            if window.ends_at > now:
                break
            del self._windows[name]
            if window.waits is not None:
                told.append((name[0], window.waits))
                self._windows[name] = _Window(now + MERGED_S)
        return told

    def rest(self) -> list[tuple[Key, Entry]]:
        """All that waits: nothing more is merged with it."""
        left = [(name[0], window.waits) for name, window in self._windows.items() if window.waits is not None]
        self._windows.clear()
        return left

    def waiting(self, key: Key) -> list[Entry]:
        """What of one source waits."""
        return [window.waits for name, window in self._windows.items() if name[0] == key and window.waits is not None]
