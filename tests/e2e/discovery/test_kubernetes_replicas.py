"""Two replicas beside a store and an API server: one watches pods, both know what it found, and it can die."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from tests.support.pod_engines import FoundService
from tests.support.pods import container, events_config, pod
from tests.support.redis_servers import own_server, wait_for
from tests.support.telling_engine import telling

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


def test_who_watches_next_forgets_no_engine_that_it_has_to_ask(api_server: ApiServer, tmp_path: Path) -> None:
    """Where it publishes only the engine can tell, and it is busy just then: what it holds counts again."""
    answers: dict[str, bytes | str | int] = {}
    with own_server(tmp_path) as store, telling(answers) as address, replica(api_server, store, "a") as first:
        engine = first.engine("127.0.0.1")
        engine.announce()
        told = {"0": json.loads(events_config(engine.events, engine.replay))}
        answers["/kv_event_sources"] = json.dumps(told).encode()
        engine.name = address
        made = pod("p", container(args=["m", "--served-model-name=llama", f"--port={address.rpartition(':')[2]}"]))
        process = first.cluster.process()
        first.cluster.run("p", engine.ip, made, vllm=process)
        first.until_scored(engine)
        generation = first.generation(engine)
        answers["/kv_event_sources"] = 503
        first.service.kill()
        first.cluster.tell("p", engine.ip, ready=False, vllm=process)
        with replica(api_server, store, "b") as second:
            asked = "is being asked where it publishes"
            second.service.wait_for(lambda: asked in second.service.log(), "its question")
            other = second.start("q", "127.77.20.9")  # it is known once all that was planned before is done
            second.until_scored(other)
            second.until_reason(engine, "not_ready")
            assert generation == second.generation(engine)
            answers["/kv_event_sources"] = json.dumps(told).encode()
            first.cluster.tell("p", engine.ip, vllm=process)
            second.until_scored(engine, other)
            assert generation == second.generation(engine)
