"""Commands at any replica: effective where they were given once they are answered, and soon everywhere."""

from __future__ import annotations

import contextlib
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from tests.support.deployment import deployed
from tests.support.in_trouble import Engine, tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.deployment import Deployment
    from tests.support.many import Member

REPOSTS_S: Final = 3.0
"""How long a registrar goes on."""


def is_heard(source: dict[str, Any] | None, sequence: int) -> bool:
    """Whether a source is scored, with this batch and all before."""
    return source is not None and (source["state"], source["sequence"]) == ("live", sequence)


class Commanded:
    """One source that is added, cordoned, cleared and removed, at one replica."""

    def __init__(self, deployment: Deployment, at: Member, pod: str) -> None:
        self.deployment = deployment
        self.cluster = deployment.cluster
        self.at = at
        self.pod = pod
        self.path = f"/v1/sources/{pod}"

    def everywhere(self, look: Callable[[dict[str, Any] | None], bool], status: int, what: str) -> None:
        """What a command did to the source: at once where it was given, if it was said to be done; soon elsewhere."""
        if status != HTTPStatus.ACCEPTED:
            assert look(self.at.sources().get(self.pod)), (what, self.at.sources().get(self.pod))
        for name in self.cluster.running:
            replica = self.cluster.replicas[name]
            self.cluster.wait_for(
                lambda replica=replica: look(replica.sources().get(self.pod)),  # type: ignore[misc]
                f"{name} to have {self.pod} {what}, as told at {self.at.name}",
            )

    def call(self, method: str, path: str, body: object = None) -> int:
        """Give a command; its status."""
        answered = self.at.call(method, path, body)
        assert answered.is_success, answered.text
        return answered.status_code

    def run(self, engine: Engine) -> None:
        """One after the other, each everywhere before the next."""
        told = {"pod": self.pod, "endpoint": engine.endpoint}
        self.everywhere(lambda source: source is not None, self.call("POST", "/v1/sources", told), "registered")
        assert self.call("POST", "/v1/sources", told) == HTTPStatus.OK
        engine.wait_subscribers()
        engine.say([1])
        self.everywhere(lambda source: is_heard(source, 0), HTTPStatus.ACCEPTED, "heard")
        for cordoned in (True, False):
            status = self.call("PATCH", self.path, {"cordoned": cordoned})
            self.everywhere(
                lambda source, cordoned=cordoned: source is not None and source["cordoned"] == cordoned,  # type: ignore[misc]
                status,
                f"cordoned: {cordoned}",
            )
        self.matched_everywhere(1, 16)
        known = self.at.sources()[self.pod]["generation"]
        status = self.call("POST", f"{self.path}/clear")
        self.everywhere(lambda source: source is not None and source["generation"] != known, status, "cleared")
        self.matched_everywhere(1, 0)
        engine.say([2])
        self.everywhere(lambda source: is_heard(source, 1), HTTPStatus.ACCEPTED, "heard")
        self.matched_everywhere(2, 16)
        self.matched_everywhere(1, 0)
        self.everywhere(lambda source: source is None, self.call("DELETE", self.path), "removed")

    def matched_everywhere(self, prompt: int, tokens: int) -> None:
        """What everybody that runs answers of it."""
        for name in self.cluster.running:
            entry = self.cluster.replicas[name].ask(tokens_of(prompt))[self.pod]
            assert tokens == entry.matched_tokens, (name, entry)


def test_at_each_replica_while_one_stands_still(tmp_path: Path) -> None:
    """Also those about partitions of the one that stands still; when it goes on it knows of all, and is commanded."""
    with deployed(tmp_path) as deployment:
        generations = deployment.begin()
        cluster = deployment.cluster
        *awake, asleep = cluster.running
        cluster.pause(asleep)
        given = 0
        for name in awake:
            for _ in range(3):
                with contextlib.closing(Engine(f"extra-{given}", replay=False)) as engine:
                    Commanded(deployment, cluster.replicas[name], engine.pod).run(engine)
                given += 1
        cluster.resume(asleep)
        deployment.wait_right()
        assert set(deployment.pods) == set(cluster.replicas[asleep].sources())
        with contextlib.closing(Engine("extra", replay=False)) as engine:
            Commanded(deployment, cluster.replicas[asleep], engine.pod).run(engine)
        deployment.publish(1)
        deployment.wait_right()
        assert generations == deployment.generations()
        assert {} == deployment.mishaps()


def test_a_registrar_that_posts_again_and_again(tmp_path: Path) -> None:
    """To all replicas in turn: it changes nothing, neither in the store nor in any answer."""
    with deployed(tmp_path) as deployment, contextlib.closing(Engine("extra", replay=False)) as engine:
        deployment.begin()
        cluster = deployment.cluster
        told = {"pod": engine.pod, "endpoint": engine.endpoint, "model": None, "labels": {"zone": "a"}}
        first = cluster.replicas[cluster.running[0]].call("POST", "/v1/sources", told)
        assert first.status_code in {HTTPStatus.CREATED, HTTPStatus.ACCEPTED}
        for name in cluster.running:
            cluster.wait_for(lambda name=name: engine.pod in cluster.replicas[name].sources(), "all to know it")  # type: ignore[misc]
        engine.wait_subscribers()
        engine.say([1])
        for name in cluster.running:
            cluster.wait_for(
                lambda name=name: is_heard(cluster.replicas[name].sources()[engine.pod], 0),  # type: ignore[misc]
                "all to have its batch",
            )
        generations, commands = deployment.generations(), commands_of(deployment)
        ends_at = time.monotonic() + REPOSTS_S  # how long it goes on is what is tried
        while time.monotonic() < ends_at:
            for name in cluster.running:
                assert HTTPStatus.OK == cluster.replicas[name].call("POST", "/v1/sources", told).status_code
                entry = cluster.replicas[name].ask(tokens_of(1))[engine.pod]
                assert (16, generations[engine.pod]) == (entry.matched_tokens, entry.generation)
        assert commands == commands_of(deployment)
        assert generations == deployment.generations()


def commands_of(deployment: Deployment) -> list[list[bytes]]:
    """Ids of what stands in every control stream."""
    with deployment.server.client() as look:
        found: list[Any] = [look.xrange(keys.control) for keys in deployment.keys]
    return [[entry for entry, _ in stream] for stream in found]
