"""Histories in the store: written once, in order, bounded, and read in pages by anybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.happenings import Entry, Happening, pack_entry
from indexer.history import Mark, Noted, page
from indexer.model import SourceId
from indexer.store.history import ENTRIES, HISTORY_S, append, newest
from tests.support.owning import POD, with_client

if TYPE_CHECKING:
    from collections.abc import Iterable

    from indexer.store.client import Client
    from indexer.store.layout import PartitionKeys
    from tests.support.redis_servers import Store

RETAIN_MS = 600_000
NODE_MAX = 100
"""Entries in one node of a stream, as servers have it: trimming goes by whole nodes."""
OTHER = SourceId("pod-2", 1)
RANK_1 = SourceId("pod-1", 1)


def noted(number: int) -> Noted:
    """A gap, told apart by its number."""
    happening = Happening(what="gap", cause="kept", first=number, last=number, lost=1)
    return Noted(1_000 + number, number, pack_entry(Entry(at_ms=1_000 + number, happening=happening, replica="r")))


async def write(
    client: Client, keys: PartitionKeys, numbers: Iterable[int], writer: str = "p1", source: SourceId = POD
) -> list[SourceId]:
    """Entries of one source, one call."""
    return await append(client, keys, writer, [(source, noted(number)) for number in numbers], RETAIN_MS)


async def firsts(client: Client, keys: PartitionKeys, source: SourceId = POD) -> list[int | None]:
    """The first batch of each, the newest first."""
    read = await newest(client, keys, source, None, 1_000, writer="p1")
    assert 0 == read.unread
    return [told.entry.happening.first for told in read.told]


def test_what_is_written_is_read_the_newest_first(store: Store, keys: PartitionKeys) -> None:
    """Sources of a partition in one call, each with its own."""

    async def body(client: Client) -> None:
        entries = [(POD, noted(1)), (OTHER, noted(2)), (POD, noted(3))]
        assert [] == await append(client, keys, "p1", entries, RETAIN_MS)

        assert ([3, 1], [2]) == (await firsts(client, keys), await firsts(client, keys, OTHER))
        assert [] == await firsts(client, keys, RANK_1)
        read = await newest(client, keys, POD, None, 10, writer="p1")
        assert (frozenset({1, 3}), 1_003, "r") == (
            read.written,
            read.told[0].entry.at_ms,
            read.told[0].entry.replica,
        )
        assert frozenset() == (await newest(client, keys, POD, None, 10, writer="p2")).written

    with_client(store, body)


def test_the_same_call_again_writes_nothing_twice(store: Store, keys: PartitionKeys) -> None:
    """Nor does one that comes with more behind it, or late; another process's numbers are its own."""

    async def body(client: Client) -> None:
        await write(client, keys, [4, 5])
        await write(client, keys, [4, 5])
        await write(client, keys, [4, 5, 9])
        await write(client, keys, [4], writer="p2")
        await write(client, keys, [9])

        assert [4, 9, 5, 4] == await firsts(client, keys)

    with_client(store, body)


def test_it_is_bounded_and_outlives_the_source(store: Store, keys: PartitionKeys) -> None:
    """A week after its last entry it goes; of entries the latest stay, to a node of the stream."""

    async def body(client: Client) -> None:
        for first in range(0, 640, 32):
            await write(client, keys, range(first + 1, first + 33))

        kept = await firsts(client, keys)
        assert 640 == kept[0]
        assert ENTRIES <= len(kept) <= ENTRIES + NODE_MAX
        ttl_ms = store.look.pttl(keys.history(POD))
        assert HISTORY_S * 1_000 - 60_000 < ttl_ms <= HISTORY_S * 1_000
        long_ms = round(HISTORY_S * 2_000)
        await append(client, keys, "p1", [(POD, noted(641))], long_ms)
        assert long_ms - 60_000 < store.look.pttl(keys.history(POD)) <= long_ms

    with_client(store, body)


def test_a_key_that_holds_something_else_keeps_no_other_from_being_written(store: Store, keys: PartitionKeys) -> None:
    """It is left as it is, and named."""

    async def body(client: Client) -> None:
        store.look.set(keys.history(POD), "theirs", ex=600)
        entries = [(POD, noted(1)), (OTHER, noted(2)), (POD, noted(3))]

        assert [POD, POD] == await append(client, keys, "p1", entries, RETAIN_MS)
        assert [2] == await firsts(client, keys, OTHER)
        assert b"theirs" == store.look.get(keys.history(POD))

    with_client(store, body)


def test_pages_of_two_ranks_join_without_a_seam(store: Store, keys: PartitionKeys) -> None:
    """Also where entries of both have the same id."""

    async def body(client: Client) -> None:
        for ms in (10, 11, 12):
            for source in (POD, RANK_1):
                fields = {"w": "p1", "n": ms, "e": noted(ms).packed}
                store.look.xadd(keys.history(source), fields, id=f"{ms}-1")
                store.look.expire(keys.history(source), 600)
        seen: list[Mark] = []
        mark: Mark | None = None
        for _ in range(3):
            found = [await newest(client, keys, source, mark, 3, writer="p1") for source in (POD, RANK_1)]
            shown, mark = page([told for each in found for told in each.told], mark, 2)
            seen += [each.mark for each in shown]

        assert mark is None
        assert [Mark(ms, 1, rank) for ms in (12, 11, 10) for rank in (1, 0)] == seen

    with_client(store, body)


def test_what_another_version_wrote_is_counted_and_passed_over(store: Store, keys: PartitionKeys) -> None:
    """The rest is read."""

    async def body(client: Client) -> None:
        await write(client, keys, [1])
        for fields in ({"x": "1"}, {"w": "p9", "n": "2", "e": b"\x80"}, {"w": "p1", "n": "two", "e": b"\xc1"}):
            store.look.xadd(keys.history(POD), fields)
        await write(client, keys, [2])
        read = await newest(client, keys, POD, None, 10, writer="p1")

        assert ([2, 1], 3) == ([told.entry.happening.first for told in read.told], read.unread)
        assert frozenset({1, 2}) == read.written

    with_client(store, body)
