"""A session ends and its stream goes on in a ring: what it held, in order, and what it knew of the connection. Pure."""

from __future__ import annotations

from math import inf

from indexer.collect.absence import Absence
from indexer.collect.ring import SETTLED, Anchor, Change, Down, Link, Ring, Up
from indexer.collect.stream import Stream
from indexer.decode.envelope import stamp
from indexer.model import RawBatch


def hand_back(stream: Stream, ring: Ring, now: float) -> None:
    """Put all that is held back in front of what the ring has, so that a later session goes on from there.

    A reconnect that is not examined yet comes before what may be another process's, and after what is not. Nobody knows
    what of that was left of the connection before, so it is settled behind all of it.
    """
    absence, tracker = stream.absence, stream.tracker
    held, known, older = stream.lane.take_all()
    link = Link(connected=True, since=absence.up_at)
    items: list[RawBatch | Change] = list(held)
    if not absence.ever_connected:
        link = Link(connected=False, since=absence.since)
    elif absence.unexamined_s is not None:
        items = _with_reconnects(held, known, older, absence)
    elif absence.connected:
        link = Link(connected=True, since=absence.up_at, settled=absence.settled)
        if not ring.tells_of_the_past:
            ring.note(None, None, now)
    if absence.ever_connected and not absence.connected and absence.since is not None:
        items.append(Down(absence.since))
    anchor = None
    if tracker.last is not None:
        anchor = Anchor(tracker.last, tracker.last_stamp, stream.arrived_last is not None)
    ring.return_to_front(items)
    ring.start(link, anchor=anchor)
    arrived = [stamp(batch.payload) for batch in held[-1:]]
    if stream.arrived_last is not None:
        arrived.append(tracker.last_stamp)
    ring.go_on_from(max(arrived, default=-inf), now)


def _with_reconnects(held: list[RawBatch], known: int, older: int, absence: Absence) -> list[RawBatch | Change]:
    """The first and the newest that are not examined, each as after the longest of their absences."""
    away_s = 0.0 if absence.unexamined_s is None else absence.unexamined_s
    reconnect: list[RawBatch | Change] = [Down(absence.up_at - away_s), Up(absence.up_at)]
    items = [*held[:known], *reconnect, *held[known:older]]
    if known < older:
        items += reconnect
    items += held[older:]
    return [*items, SETTLED] if absence.settled else items
