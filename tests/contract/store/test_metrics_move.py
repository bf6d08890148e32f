"""What happens between replicas and their store moves the metrics that are about it, at one of them at least."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from api.demo.engine import EngineSimulator
from indexer.model import Descriptor
from schemas.lookup import LookupQuery
from schemas.receipts import RoutedReport
from tests.support.core_events import prompt, stored, u32
from tests.support.moved import ON_A_STORE, check_moved
from tests.support.proxy import Proxy
from tests.support.replicas import Replica

if TYPE_CHECKING:
    from tests.support.redis_servers import Store

PODS = [f"p{number}" for number in range(8)]
MIB = 1024**2


def test_each_moves(store: Store) -> None:
    """With the labels that are written down."""
    if store.kind == "cluster":
        return  # the proxy stands before one server
    check_moved(asyncio.run(_story(store)), ON_A_STORE)


async def _story(store: Store) -> list[bytes]:
    """Two share what one had, one listens along to an engine, and then the store is out of reach."""
    with EngineSimulator() as engine:
        async with asyncio.timeout(60), Proxy(store.servers[0].port).running() as proxy:
            first = await Replica(proxy.url, PODS, name="r1").start()
            second = await Replica(store.url, PODS, name="r2", redis__standby_bytes=MIB).start()
            await first.until(lambda: first.part.sharing.handovers and second.part.sharing.takeovers["handed_over"])
            await first.until(lambda: first.part.overview.health(standby_bytes=0, standby_dropped=0).standby)
            second.node.fleet.listen(Descriptor(pod="listened to", endpoint=engine.endpoint))
            await second.until(lambda: engine.subscribers)
            for _ in range(3):
                engine.publish(bytes(MIB // 2))
            await second.until(lambda: second.node.fleet.standby_bytes and second.node.fleet.standby_dropped)
            pod = next(pod for pod in PODS if not first.sink(pod).followed)
            first.say(pod, stored([9], prompt(1, 900)))
            query = LookupQuery(tokens=u32(prompt(4)))
            await first.node.report_routed(RoutedReport(pod=pod, dp_rank=None, request_id=None, of=None, query=query))
            await first.until(lambda: first.node.telemetry.receipts.hints["sent"])
            while_up = [await first.node.metrics_text(), await second.node.metrics_text()]
            proxy.set("reset")
            first.say(pod, stored([1], prompt(1)))
            await first.until(lambda: first.part.overview.health(standby_bytes=0, standby_dropped=0).failures)
            first.say(pod, stored([2], prompt(1, 4)))  # the one before is in a call of which nobody knows
            while_away = await first.node.metrics_text()
            await first.die()
            await second.stop()
    return [*while_up, while_away]
