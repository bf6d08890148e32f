"""Replicas that leave in order, under traffic, with engines that do not replay: nothing is missing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.support.deployment import deployed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.deployment import Deployment


def go_on_until(deployment: Deployment, is_over: Callable[[], bool]) -> None:
    """Engines go on, and everybody is asked; every answer is judged."""

    def step() -> bool:
        deployment.publish(1)
        for name in deployment.cluster.running:
            deployment.cluster.replicas[name].judge(deployment.sample()[0], deployment.engines)
        return is_over()

    deployment.cluster.wait_for(step, "it to be over")


@pytest.mark.slow
def test_a_rolling_restart(tmp_path: Path) -> None:
    """SIGTERM of each in turn, and a new process of its name: no gap, no new generation, all certain in the end."""
    with deployed(tmp_path) as deployment, ThreadPoolExecutor(1) as pool:
        generations = deployment.begin()
        cluster = deployment.cluster
        for name in list(cluster.running):
            cluster.wait_settled()
            deployment.wait_heard()
            stopping = pool.submit(cluster.replicas.pop(name).__exit__)
            go_on_until(deployment, stopping.done)
            stopping.result()
            cluster.wait_taken_from(name)
            deployment.wait_right()
            starting = pool.submit(cluster.join, name)
            go_on_until(deployment, starting.done)
            starting.result()
            deployment.wait_right()
        assert generations == deployment.generations()
        assert {} == deployment.mishaps()


def test_a_replica_is_drained(tmp_path: Path) -> None:
    """Told so at another replica: it gives away all it owns and goes on answering; undone, it owns again."""
    with deployed(tmp_path) as deployment:
        generations = deployment.begin()
        cluster = deployment.cluster
        drained = cluster.owners()[0]
        told = cluster.replicas[cluster.others(drained)[0]]
        status = told.call("POST", f"/v1/replicas/{drained}/drain").status_code
        assert status in {200, 202}
        go_on_until(deployment, lambda: drained not in cluster.owners().values())
        cluster.wait_taken_from(drained)
        deployment.publish(1)
        deployment.wait_right()
        go_on_until(deployment, lambda: told.call("POST", f"/v1/replicas/{drained}/drain").status_code == 200)
        assert told.call("DELETE", f"/v1/replicas/{drained}/drain").status_code in {200, 202, 204}
        go_on_until(deployment, lambda: drained in cluster.owners().values())
        cluster.wait_settled()
        deployment.wait_right()
        assert generations == deployment.generations()
        assert {} == deployment.mishaps()
