"""Two replicas beside a store and an API server: one watches pods, both know what it found, and it can die."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.support.pod_engines import FoundService
from tests.support.redis_servers import own_server, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cluster import ApiServer
    from tests.support.redis_servers import Server

WATCHING: Final = "kvindexer_discovery_watching"


def replica(api_server: ApiServer, store: Server, name: str) -> FoundService:
    """One of them; leases are short."""
    return FoundService(
        api_server,
        redis__url=store.url,
        redis__replica=name,
        redis__lease_s="2",
        redis__heartbeat_s="0.3",
        redis__min_hold_s="0",
        redis__partitions="4",
    )


def test_the_watcher_dies_and_another_one_watches(api_server: ApiServer, tmp_path: Path) -> None:
    """Pods that came, were not ready and went meanwhile are told of by the next watcher."""
    with (
        own_server(tmp_path) as store,
        replica(api_server, store, "a") as first,
        replica(api_server, store, "b") as second,
    ):
        both = (first, second)
        engines = [first.start(f"p{n}", f"127.77.20.{n}") for n in (1, 2, 3)]
        for each in both:
            each.until_scored(*engines)
        assert [0.0, 1.0] == sorted(each.service.metric(WATCHING) for each in both)

        dies, lives = sorted(both, key=lambda each: -each.service.metric(WATCHING))
        generations = {engine.name: lives.generation(engine) for engine in engines}
        dies.service.kill()
        first.cluster.delete("p1", 0)
        first.cluster.tell("p2", engines[1].ip, ready=False)
        fourth = lives.start("p4", "127.77.20.4")
        wait_for(lambda: lives.service.metric(WATCHING) == 1.0, "the other one to watch")
        lives.until_known(engines[1], engines[2], fourth)
        lives.until_reason(engines[1], "not_ready")
        lives.service.wait_for(lambda: {engines[2].name, fourth.name} == lives.scored(), "who is ready")
        assert generations[engines[2].name] == lives.generation(engines[2])
