"""The store is away from all replicas, or from one: nobody takes what is another's because of that."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.deployment import deployed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.deployment import Deployment
    from tests.support.proxy import Way

KEPT: Final = "kept.rdb"


def cut(deployment: Deployment) -> Callable[[], None]:
    """All links are cut. Returns how they are mended, as the others do."""
    deployment.cluster.set_ways("reset")
    return lambda: deployment.cluster.set_ways("pass")


def freeze(deployment: Deployment) -> Callable[[], None]:
    """Connections stand, and nothing answers; leases and states run out meanwhile."""
    deployment.server.freeze()
    return deployment.server.thaw


def end(deployment: Deployment) -> Callable[[], None]:
    """It is killed, and nothing was saved: it starts empty."""
    deployment.server.stop()
    return deployment.server.start


def turn_back(deployment: Deployment) -> Callable[[], None]:
    """It is killed, and starts with what it held some batches ago."""
    folder = deployment.server.folder
    with deployment.server.client() as look:
        look.save()
    shutil.copy(folder / "dump.rdb", folder / KEPT)
    deployment.publish(3)
    deployment.wait_right()
    deployment.server.stop()

    def start() -> None:
        shutil.copy(folder / KEPT, folder / "dump.rdb")
        deployment.server.start()

    return start


@pytest.mark.parametrize(
    ("away", "seconds"),
    [
        pytest.param(away, seconds, id=f"{away.__name__}-{seconds}", marks=marked)
        for away in (cut, turn_back, freeze, end)
        for seconds in (6, 60)
        for marked in [[] if seconds < 60 and away is turn_back else [pytest.mark.slow]]
    ],
)
def test_away_for_all(tmp_path: Path, away: Callable[[Deployment], Callable[[], None]], seconds: int) -> None:
    """Under traffic, for longer than a lease: every owner goes on, and is the owner afterwards. All heals by itself."""
    with deployed(tmp_path, partitions=6, staleness__score_ttl_s="120") as deployment:
        generations = deployment.begin()
        owners = deployment.cluster.owners()
        come_back = away(deployment)
        go_on_without(deployment, owners, seconds)
        come_back()
        deployment.wait_right()
        deployment.publish(2)
        deployment.wait_right()
        deployment.cluster.wait_settled()
        assert owners == deployment.cluster.owners()
        assert generations == deployment.generations()
        assert {} == deployment.mishaps()


def go_on_without(deployment: Deployment, owners: dict[int, str], seconds: int) -> None:
    """Engines go on and everybody is asked. Whoever collects from a pod is right about it; nothing is given up."""
    cluster = deployment.cluster
    ends_at = time.monotonic() + seconds  # how long it is away is what is tried
    while time.monotonic() < ends_at:
        deployment.publish(1)
        for name in cluster.running:
            for entry in cluster.replicas[name].judge(deployment.sample()[0], deployment.engines).values():
                assert (entry.state in {"live", "stale"}, entry.bound) == (True, "exact"), (name, entry)
        time.sleep(0.1)
    for number, name in owners.items():
        engine, owner = deployment.engine_in(number), cluster.replicas[name]
        cluster.wait_for(
            lambda owner=owner, engine=engine: owner.sources()[engine.pod]["sequence"] == engine.sequence,  # type: ignore[misc]
            f"{name} to apply what {engine.pod} says",
        )
        for prompt in deployment.sample():
            entry = owner.judge(prompt, deployment.engines)[engine.pod]
            assert engine.history[-1].get(prompt, 0) == entry.matched_tokens, entry


@pytest.mark.parametrize("way", ["reset", pytest.param("stall_replies", marks=pytest.mark.slow)])
def test_away_for_one(tmp_path: Path, way: Way) -> None:
    """Its partitions go to their standbys once its lease is over, and it says `stale`; mended, it is right again."""
    with deployed(tmp_path) as deployment:
        generations = deployment.begin()
        cluster = deployment.cluster
        lonely = cluster.replicas[cluster.owners()[0]]
        cluster.set_ways(way, lonely.name)
        deployment.publish(2)
        cluster.wait_taken_from(lonely.name)
        deployment.publish(2)
        deployment.wait_right(*cluster.others(lonely.name))
        cluster.wait_for(
            lambda: {"stale"} == {source["state"] for source in lonely.sources().values()}, "all to be stale there"
        )
        deployment.ask_all(lonely)
        cluster.set_ways("pass", lonely.name)
        deployment.wait_right()
        cluster.wait_settled()
        deployment.publish(1)
        deployment.wait_right()
        assert generations == deployment.generations()
        assert {} == deployment.mishaps()
