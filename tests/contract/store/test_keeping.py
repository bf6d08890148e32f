"""Keeping what is there alive, and the journal within its budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.store.entries import Ticked
from indexer.store.outcomes import Done, Lost, OtherGeneration, Whereabouts
from tests.support.copies import flip, lay
from tests.support.owning import POD, TIMES, begun, owning, run_of, told, with_client

if TYPE_CHECKING:
    from indexer.store.client import Client
    from indexer.store.layout import PartitionKeys
    from tests.support.redis_servers import Store

COPY = Whereabouts(7, 1, 2)


def test_keeping_renews_every_key(store: Store, keys: PartitionKeys) -> None:
    """State and segments."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        await begun(journal)
        await lay(journal, keys, range(100))
        await flip(journal, 100)
        all_keys = [keys.source(POD), *keys.copy(POD, 7, 1, 2)]
        for key in all_keys:
            store.look.pexpire(key, 60_000)

        assert Done() == await journal.keep(POD, COPY)
        assert all(60_000 < store.look.pttl(key) <= TIMES["retain_ms"] for key in all_keys)

    with_client(store, body)


def test_keeping_notices_what_is_gone(store: Store, keys: PartitionKeys) -> None:
    """A segment, another copy, the state: the source must be asserted anew."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        await begun(journal)
        await lay(journal, keys, range(100))
        await flip(journal, 100)
        assert Lost("source", nth=0) == await journal.keep(POD, Whereabouts(7, 0, 2))
        assert OtherGeneration(7, 0) == await journal.keep(POD, Whereabouts(6, 1, 2))

        store.look.unlink(keys.segment(POD, 7, 1, 0))
        assert Lost("source", nth=0) == await journal.keep(POD, COPY)
        store.look.unlink(keys.source(POD))
        assert Lost("source", nth=0) == await journal.keep(POD, COPY)

    with_client(store, body)


def test_the_journal_is_trimmed_to_its_budget(store: Store, keys: PartitionKeys) -> None:
    """However much is written; the newest entries stay without a hole."""

    async def body(client: Client) -> None:
        journal = await owning(client, keys)
        where = await begun(journal)
        for n in range(400):
            run = run_of(where, n - 1 if n else None, n, [])
            assert Done() == await journal.apply([run], told(run, [(block, 1) for block in range(1000)]))
        assert Done() == await journal.tick(Ticked(1, []))

        numbers = [int(entry_id.split(b"-")[1]) for entry_id, _ in store.look.xrange(keys.log)]
        assert list(range(numbers[0], journal.position.number + 1)) == numbers
        assert 100 < len(numbers) < 400
        assert 2 * 1024 * 1024 > await client.bytes_used(keys.log)

    with_client(store, body)
