"""Fields of the staleness report that need a second replica: what another one owns, and what is known of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from indexer.model import SourceId
from tests.support.core_events import prompt, stored
from tests.support.replicas import Replica, names_of_two, run
from tests.support.report_fields import ON_A_STORE, said

if TYPE_CHECKING:
    from tests.support.redis_servers import Store

NOT_TOLD: Final = {"sources.counted": False, "sources.counts_age_ms": None, "sources.clears.operator": 0}
"""Before the owner told what it counted."""


async def reported(replica: Replica) -> dict[str, Any]:
    """What a replica says in those fields."""
    report = msgspec.to_builtins(await replica.node.staleness_report(pod="a"))
    return {path: said(report, path, {}) for path in ON_A_STORE}


def test_each_tells_what_is_so(store: Store) -> None:
    """At the owner, and at who follows before and after the owner told it; ages begin and grow."""

    async def body() -> None:
        owner, follower = [await Replica(store.url, name=name).start() for name in names_of_two()]
        owner.say("a", stored([1, 2], prompt(2)))
        await owner.node.clear_source("a", 0)
        owner.say("a", stored([1, 2], prompt(2)))
        await owner.written()
        before = await reported(follower)
        await _tell_counts(owner)
        name = names_of_two()[0]
        known = {"sources.clears.operator": 1, "sources.counted": True, "sources.owner": name}
        for replica, grows in ((follower, "sources.counts_age_ms"), (owner, "sources.journal_lag_ms")):
            found = await _told_of_all(replica, grows)
            assert known == {path: found[path] for path in known}

        assert before.items() >= NOT_TOLD.items()
        assert 0 == (await reported(owner))["sources.counts_age_ms"]
        await owner.stop()
        await follower.stop()

    run(body)


async def _told_of_all(replica: Replica, grows: str) -> dict[str, Any]:
    """Once it knows of each of them, and that one is no longer just now."""
    found = await reported(replica)
    while None in found.values() or not found[grows]:
        await asyncio.sleep(0.002)
        found = await reported(replica)
    return found


async def _tell_counts(owner: Replica) -> None:
    """As it does every ten seconds."""
    await owner.part.owners[owner.part._parts.partition_of(SourceId("a", 0))]._writing.counting.tell()
