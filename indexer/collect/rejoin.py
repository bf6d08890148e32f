"""Where a source goes on when this process, which has listened to its engine, becomes the owner. Pure.

In this order, with number and stamp of the last batch that the owner before made durable:

1. That batch came by this process, too: what came behind it follows, as if one connection had been read all along.
2. A connection stood here while the owner saw the engine connected: it is to the same process. What it gave up to that
   number is known, what is missing behind is a gap on an unbroken connection.
3. Else the engine was out of sight, from the owner's last look until a connection of this process: a reconnect.

A source of which nothing is known takes the last life that is held.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from indexer.collect.ring import Change, Down, Link, Ring, Run, Settled, Up
from indexer.ports import Resume


@dataclass(frozen=True, slots=True, kw_only=True)
class Footing:
    """How a session begins. Without a `link` the connection is as if it was lost at `left_at`."""

    resume: Resume
    left_at: float
    link: Link | None = None
    """The stream goes on behind that batch, on a connection that stood like that."""
    arrived: bool = False
    """That batch came live."""
    overlaps: bool = False
    """What comes by the first connection up to that number, the owner before has applied."""
    leftovers: bool = False
    """The socket may still give what came by a connection before."""


def lost(resume: Resume, now: float) -> Footing:
    """Nobody listened since."""
    return Footing(resume=resume, left_at=(now if resume.as_of is None else resume.as_of) - resume.away_s)


def rejoin(ring: Ring, resume: Resume | None, now: float) -> Footing | None:
    """Let go what is known, and say how to begin; None: with nothing known."""
    ring.unfold()
    if resume is None:
        _last_life(ring)
        return None
    if resume.stamp is not None and ring.keep_behind(resume.sequence, resume.stamp):
        link, arrived = ring.base, ring.anchor is not None and ring.anchor.arrived
        ring.start(link)
        return Footing(resume=resume, left_at=now, link=link, arrived=arrived)
    left_at = lost(resume, now).left_at
    if ring.alive_at is not None:
        left_at = max(left_at, ring.alive_at)
    place, covered = _connection_at(ring, left_at)
    if resume.unproven:  # to whom the owner before was connected then it did not know itself
        left_at, covered = -inf, False
    leftovers = _begin_with(ring, place, Link(since=left_at))
    return Footing(resume=resume, left_at=left_at, overlaps=covered, leftovers=leftovers)


def _connections(ring: Ring) -> Iterator[tuple[int, float, float]]:
    """Each connection: its place among the entries (-1: before them), when it came to stand and when it was lost."""
    link, place = ring.base, -1
    for index, entry in enumerate(ring.entries):
        if isinstance(entry, Run | Settled):
            continue
        after = link.after(entry)
        if link.connected and link.since is not None:
            yield place, link.since, inf if after.since is None else after.since
        link, place = after, index
    if link.connected and link.since is not None:
        yield place, link.since, inf


def _connection_at(ring: Ring, moment: float) -> tuple[int | None, bool]:
    """The newest connection that stood at that moment, and True; else the first after it, if there is one."""
    standing = later = None
    for place, since, until in _connections(ring):
        if since <= moment <= until:
            standing = place
        elif since > moment and later is None:
            later = place
    return (later, False) if standing is None else (standing, True)


def _begin_with(ring: Ring, place: int | None, link: Link) -> bool:
    """All before the connection at that place goes; before it, it stood like `link`.

    What may be of a connection before it goes, too. True where nobody knows how far that goes.
    """
    for _ in range(len(ring.entries) if place is None else place):
        ring.drop_oldest_entry()
    before = ring.front
    if place is None:
        ring.start(link)
        return False
    if place >= 0:
        up = ring.entries[0]
        ring.drop_oldest_entry()
    else:
        up = Up(0.0 if before.since is None else before.since)
    assert isinstance(up, Up)  # noqa: S101  a connection begins with it
    unsettled = not ring.front.settled
    if unsettled and _is_settled_later(ring):
        while not ring.front.settled:
            ring.drop_oldest_entry()
        unsettled = False
    ring.start(link, [up])
    return unsettled


def _is_settled_later(ring: Ring) -> bool:
    """Whether it is, before the connection changes again."""
    for entry in ring.entries:
        if not isinstance(entry, Run):
            return isinstance(entry, Settled)
    return False


def _last_life(ring: Ring) -> None:
    """All before the newest connection goes, or before the newest number that went back."""
    end = 0 if ring.anchor is None else ring.anchor.sequence + 1
    begins = -1
    for index, entry in enumerate(ring.entries):
        if isinstance(entry, Up):
            begins = index
        elif isinstance(entry, Run):
            if entry.first < end:
                begins = index
            end = entry.end
    if begins >= 0 and isinstance(ring.entries[begins], Up):
        _begin_with(ring, begins, Link())
        return
    for _ in range(begins):
        ring.drop_oldest_entry()
    front, changes = ring.front, list[Change]()
    if front.since is not None:
        changes = [Up(front.since)] if front.connected else [Up(front.since), Down(front.since)]
    ring.start(Link(), changes)
