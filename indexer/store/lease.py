"""[I/O] Partitions: take, renew, give up. One owner at a time, proven by a fence token compared as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from indexer.store import lua
from indexer.store.entries import Position
from indexer.store.outcomes import Done, Refusal, WrongType, done, refusal

if TYPE_CHECKING:
    from indexer.store.client import Client
    from indexer.store.layout import PartitionKeys


class Acquired(msgspec.Struct, frozen=True):
    """Owned. The journal's first entry of the epoch, `position`, is written; it continues `after`."""

    token: bytes
    position: Position
    after: Position


class Held(msgspec.Struct, frozen=True):
    """Somebody else owns it, for so long unless they renew."""

    holder: bytes
    left_ms: int


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
    """Take a partition that nobody owns; with `held`, the own token, take it anew in a new epoch.

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


async def release(client: Client, keys: PartitionKeys, token: bytes) -> Done | Refusal:
    """Give a partition up. Raises StoreFailure."""
    return done(await client.run(lua.RELEASE, (keys.owner,), (token,)))
