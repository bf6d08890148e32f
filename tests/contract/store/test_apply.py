"""Writing runs of batches: atomic, in order, once; every reply of the script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.model import SourceId
from indexer.store.entries import Ticked, decode_entry
from indexer.store.layout import SEGMENT_FIELDS
from indexer.store.outcomes import Done, OtherCursor
from tests.support.copies import fields, map_of
from tests.support.owning import POD, TIMES, begun, owning, removed, run_of, stored, told, with_client
from tests.support.redis_servers import dump

if TYPE_CHECKING:
    from indexer.store.client import Client
    from indexer.store.layout import PartitionKeys
    from tests.support.redis_servers import Store

OTHER = SourceId("pod-2", 1)


def test_a_run_is_entry_map_and_cursor(store: Store, keys: PartitionKeys) -> None:
    """One step writes all three, and the next one goes on from there."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        where = await begun(journal)
        first = run_of(where, None, 3, stored(range(16)))
        second = run_of(where, 3, 4, [*removed(range(8)), *stored(range(20, 22))])

        assert Done() == await journal.apply([first], told(first, [(1, 1)]))
        assert Done() == await journal.apply([second], told(second))

        assert fields(range(8, 16)) | fields(range(20, 22)) == map_of(store, keys, where)
        state = store.look.hgetall(keys.source(POD))
        assert {
            b"generation": b"7",
            b"copy": b"0",
            b"segments": b"4",
            b"pairs": b"10",
            b"gone": b"8",
            b"complete": b"1",
            b"cursor": b"4",
            b"facts": b"facts",
        } == state
        epoch = journal.position.epoch
        entries = store.look.xrange(keys.log)
        assert [b"%d-%d" % (epoch, n) for n in range(1, 5)] == [entry_id for entry_id, _ in entries]
        assert told(first, [(1, 1)]) == decode_entry(entries[2][1][b"e"])
        assert str(journal.position).encode() == store.look.get(keys.head)

    with_client(store, body)


def test_writing_renews_the_time_to_live(store: Store, keys: PartitionKeys) -> None:
    """Of state, journal and its head; those of the map are kept by `keep`."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        where = await begun(journal)
        renewed = (keys.source(POD), keys.log, keys.head)
        for key in renewed:
            store.look.pexpire(key, 60_000)
        run = run_of(where, None, 0, stored(range(3)))

        assert Done() == await journal.apply([run], told(run))
        assert all(60_000 < store.look.pttl(key) <= TIMES["retain_ms"] for key in renewed)

    with_client(store, body)


def test_sources_of_a_partition_share_a_step(store: Store, keys: PartitionKeys) -> None:
    """A merged run over two sources is one entry; what one of them refuses, neither gets."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        one, two = await begun(journal), await begun(journal, OTHER, generation=9)
        runs = [run_of(one, None, 0, stored(range(5))), run_of(two, None, 6, stored(range(50, 60)), OTHER)]
        assert Done() == await journal.apply(runs, told(runs[0]))
        assert fields(range(5)) == map_of(store, keys, one)
        assert fields(range(50, 60)) == map_of(store, keys, two, OTHER)
        before = dump(store, keys)

        late = [run_of(one, 0, 1, stored(range(5, 6))), run_of(two, 5, 7, stored(range(60, 61)), OTHER)]

        assert OtherCursor(6, 1) == await journal.apply(late, told(late[0]))
        assert before == dump(store, keys)

    with_client(store, body)


def test_the_same_call_again_changes_nothing(store: Store, keys: PartitionKeys) -> None:
    """After a time-out: it is told that it was in, and effect and count are those of one."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        where = await begun(journal)
        before_write = journal.position
        run = run_of(where, None, 0, stored(range(16)))
        assert Done() == await journal.apply([run], told(run))
        after = dump(store, keys)

        journal.position = before_write  # as if the reply had been lost
        assert Done(again=True) == await journal.apply([run], told(run))

        assert after == dump(store, keys)
        assert before_write.next == journal.position

    with_client(store, body)


def test_a_tick_is_an_entry(store: Store, keys: PartitionKeys) -> None:
    """Without sources."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        entry = Ticked(5, [])

        assert Done() == await journal.tick(entry)

        assert entry == decode_entry(store.look.xrange(keys.log)[-1][1][b"e"])

    with_client(store, body)


def test_a_merged_batch_of_ten_thousand_blocks(store: Store, keys: PartitionKeys) -> None:
    """In chunks within one step, stored and taken out again; an emptied segment leaves no key."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        where = await begun(journal, segments=2)
        run = run_of(where, None, 0, stored(range(10_000)))
        assert Done() == await journal.apply([run], told(run, [(n, 1) for n in range(10_000)]))
        assert fields(range(10_000)) == map_of(store, keys, where)

        out = run_of(where, 0, 1, removed(range(10_000)))
        assert Done() == await journal.apply([out], told(out))
        assert {} == map_of(store, keys, where)

        back = run_of(where, 1, 2, stored(range(3)))
        assert Done() == await journal.apply([back], told(back))  # new keys get a time to live anew
        assert [b"3", b"10000"] == store.look.hmget(keys.source(POD), "pairs", "gone")
        assert 10_000 < SEGMENT_FIELDS

    with_client(store, body)
