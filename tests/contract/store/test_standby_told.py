"""What a standby hears of the engines that it listens to: how far their owner has written, and when it saw them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.model import Descriptor, SourceId
from tests.support.core_events import BLOCK, prompt, stored
from tests.support.replicas import Replica, run

if TYPE_CHECKING:
    from tests.support.redis_servers import Store

KEY = SourceId("a", 0)


def test_it_is_told_until_when_an_engine_was_connected(store: Store) -> None:
    """With every tick, also where the engine says nothing: only so it knows that it was connected itself in time."""

    async def body() -> None:
        replicas = [await Replica(store.url, name=name).start() for name in ("r1", "r2")]
        await replicas[0].until(lambda: any(KEY in replica.collector.noted for replica in replicas))
        standby = next(replica for replica in replicas if KEY in replica.collector.noted)
        (owner,) = [replica for replica in replicas if replica is not standby]
        owner.say("a", stored([1], prompt(1)))
        await standby.until(lambda: standby.collector.noted[KEY][0] == 0)

        def is_told_of(moment: float) -> bool:
            owner.sink().alive(connected=True)
            alive_at = standby.collector.noted[KEY][2]
            return alive_at is not None and alive_at > moment

        for _ in range(3):  # the first times it may be news that it is connected at all
            moment = owner.node.clock.now()
            await owner.until(lambda moment=moment: is_told_of(moment))
        for replica in replicas:
            await replica.stop()

    run(body)


def test_a_source_that_goes_and_comes_again_is_listened_to(store: Store) -> None:
    """However soon it comes again, and though nothing of it differs."""

    async def body() -> None:
        replicas = [await Replica(store.url, (), name=name).start() for name in ("r1", "r2")]
        descriptor = Descriptor(pod="a", endpoint="tcp://127.0.0.1:1", origin="api")
        for _ in range(10):
            await replicas[0].node.add_source(descriptor)
            await replicas[0].until(lambda: any(KEY in replica.collector.listened for replica in replicas))
            await replicas[0].node.remove_source("a", None)
        await replicas[0].node.add_source(descriptor)
        await replicas[0].until(lambda: any(KEY in replica.collector.listened for replica in replicas))
        for replica in replicas:
            await replica.stop()

    run(body)


def test_an_engine_that_speaks_is_not_taken_for_gone(store: Store) -> None:
    """Its owner is silent, and it may not be taken over yet: what is known is behind, and counts as long as it speaks.

    On a connection that did not stand while its owner saw it, somebody else may speak.
    """

    async def body() -> None:
        settings = {"redis__lease_s": 30.0, "staleness__stale_after_s": 0.3, "staleness__score_ttl_s": 1.0}
        replicas = [await Replica(store.url, name=name, **settings).start() for name in ("r1", "r2")]
        await replicas[0].until(lambda: any(KEY in replica.collector.noted for replica in replicas))
        standby = next(replica for replica in replicas if KEY in replica.collector.noted)
        (owner,) = [replica for replica in replicas if replica is not standby]
        owner.say("a", stored([1], prompt(1)))
        await standby.until(lambda: standby.ask(prompt(1)).state == "live")
        await owner.die()

        def is_held(*, joins: bool) -> bool:
            listener = standby.collector.listened[KEY]
            now = standby.node.clock.now()
            standby.collector.listened[KEY] = listener._replace(heard_at=now, joins=joins)
            state = standby.ask(prompt(1)).state
            assert state in {"live", "stale"} or not joins
            return state == "down"

        until = standby.node.clock.now() + 3.0  # three times as long as without a sign of life
        await standby.until(lambda: is_held(joins=True) or standby.node.clock.now() > until)
        assert (standby.ask(prompt(1)).state, standby.ask(prompt(1)).matched_tokens) == ("stale", BLOCK)
        await standby.until(lambda: is_held(joins=False))
        await standby.stop()

    run(body)
