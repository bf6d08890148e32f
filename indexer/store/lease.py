"""[I/O] Partitions: look, take, renew, give up, hand over.

One owner at a time, proven by a fence token compared as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from indexer.store import lua
from indexer.store.entries import Position
from indexer.store.outcomes import Done, Refusal, WrongType, done, refusal

if TYPE_CHECKING:
    from indexer.store.client import Client
    from indexer.store.layout import PartitionKeys

_KEPT_FOR: Final = b"to:"
"""In front of the replica that a partition is kept for, in place of the owner's token, which begins with a digit."""


class Acquired(msgspec.Struct, frozen=True):
    """Owned. The journal's first entry of the epoch, `position`, is written; it continues `after`."""

    token: bytes
    position: Position
    after: Position


class Held(msgspec.Struct, frozen=True):
    """Somebody else owns it, for so long unless they renew; or it is kept for somebody else, holder `to:<replica>`."""

    holder: bytes
    left_ms: int


class Standing(msgspec.Struct, frozen=True):
    """How a partition stands.

    `holder`: the owner's token, or `to:<replica>` while it is kept for one, `reserved_for`; b"" for nobody. It stays so
    for `left_ms` unless renewed. `last`: the token given last, whoever owns it now; b"" for none.
    """

    holder: bytes
    left_ms: int
    reserved_for: str
    last: bytes


async def look(client: Client, keys: PartitionKeys) -> Standing | WrongType:
    """How a partition stands now; reads only. Raises StoreFailure."""
    reply = await client.run(lua.LOOK, (keys.owner, keys.epoch), ())
    refused = refusal(reply)
    if isinstance(refused, WrongType):
        return refused
    holder, left_ms, last = reply[1:]
    return Standing(holder, max(0, left_ms), reserved_for(holder), last)


def reserved_for(holder: bytes) -> str:
    """The replica that a partition is kept for; empty where its holder is an owner, or nobody."""
    return holder.removeprefix(_KEPT_FOR).decode(errors="replace") if holder.startswith(_KEPT_FOR) else ""


async def acquire(
    client: Client,
    keys: PartitionKeys,
    *,
    replica: str,
    nonce: str,
    lease_ms: int,
    retain_ms: int,
    held: bytes = b"",
    known_epoch: int = 0,
) -> Acquired | Held | WrongType:
    """Take a partition that nobody owns, or that is kept for `replica`; with `held`, the own token, in a new epoch.

    `nonce` is new for each attempt, and the same when an attempt is made again after a failure. Neither it nor
    `replica` has a colon. Count the lease from before the call. `known_epoch` is the highest this replica saw, so that
    epochs grow over a store that was emptied or restored. Raises StoreFailure.
    """
    if ":" in replica or ":" in nonce or not nonce:
        raise ValueError("replica, nonce: no colon in them, and a nonce for each attempt")
    reply = await client.run(
        lua.ACQUIRE,
        (keys.epoch, keys.owner, keys.head, keys.log),
        (replica.encode(), nonce.encode(), held, known_epoch, lease_ms, retain_ms),
    )
    if reply[0] == b"HELD":
        return Held(reply[1], int(reply[2]))
    refused = refusal(reply)
    if isinstance(refused, WrongType):
        return refused
    token: bytes = reply[1]
    first = Position(int(token.partition(b":")[0]), 1)
    after = Position.parse(reply[2])
    # Sent again: what stood before is not told any more, and whoever reads the journal finds it in the first entry.
    return Acquired(token, first, first if after.epoch == first.epoch else after)


async def renew(client: Client, keys: PartitionKeys, token: bytes, lease_ms: int) -> Done | Refusal:
    """Keep a partition for another lease, counted from before the call. Raises StoreFailure."""
    return done(await client.run(lua.RENEW, (keys.owner,), (token, lease_ms)))


async def release(
    client: Client, keys: PartitionKeys, token: bytes, *, to: str = "", reserve_ms: int = 2_000
) -> Done | Refusal:
    """Give a partition up; with `to`, only that replica may take it within `reserve_ms`. Raises StoreFailure."""
    if ":" in to:
        raise ValueError("to: no colon in the name of a replica")
    return done(await client.run(lua.RELEASE, (keys.owner,), (token, to.encode(), reserve_ms)))
