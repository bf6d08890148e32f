"""One Serve for all tests here, a service that knows what its engines hold, and a proxy that can part the two."""

from __future__ import annotations

import os
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from api.demo.engine import EngineSimulator
from tests.engine.waiting import wait_until
from tests.gateways.local_ray import LocalRay
from tests.support.core_events import BLOCK, payload, stored
from tests.support.core_service import RunningService
from tests.support.proxy import ProxyThread

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PODS = ["10.0.0.1:8000", "10.0.0.2:8000"]
"""As the replicas of `named` are called at the index; those of `engines` are aliases of others."""
BLOCKS = 40
_numbers = count(1)


class Beside(NamedTuple):
    """All of it."""

    ray: LocalRay
    service: RunningService
    way: ProxyThread
    engines: dict[str, EngineSimulator]

    def index_port(self) -> int:
        """Of the service itself."""
        return urlsplit(self.service.url).port or 0

    def prompt_of(self, name: str) -> list[int]:
        """Token ids of a new prompt, which the engine of that name holds now, and no other."""
        prompt = [1_000_000 * next(_numbers) + i for i in range(BLOCKS * BLOCK)]
        self.hold(name, prompt)
        return prompt

    def hold(self, name: str, prompt: list[int]) -> None:
        """The engine says that it stored it, and that is known."""
        first = next(_numbers) << 20
        self.engines[name].publish(payload(stored(range(first, first + BLOCKS), prompt), ts=float(first)))
        wait_until(f"{name} holds it", lambda: self.held(name, prompt))

    def held(self, name: str, prompt: Sequence[int]) -> int:
        """Tokens of it that the service knows there."""
        (entry,) = self.service.ask(prompt, model="m", pods=[name], group="pod").pods
        return entry.matched_tokens

    def ask(self, app: str, prompt: Sequence[int], times: int) -> list[str]:
        """Who answered so many requests, one after the other."""
        answered: list[str] = self.ray.do("ask", app, request={"token_ids": list(prompt)}, times=times)
        return answered

    def counts(self, app: str) -> dict[str, int]:
        """What came of the router's questions so far."""
        return dict.fromkeys(("ranked", "unknown", "late", "failed", "rested"), 0) | self.ray.do("counts", app)


def _registered(service: RunningService, pod: str, *aliases: str) -> EngineSimulator:
    engine = EngineSimulator()
    engine.start()
    body: dict[str, Any] = {"pod": pod, "endpoint": engine.endpoint, "model": "m", "aliases": list(aliases)}
    answer = service.call("POST", "/v1/sources", body)
    assert 201 == answer.status_code, answer.text
    engine.wait_subscribers(1)
    return engine


@pytest.fixture(scope="session")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    """Replicas of one deployment say their names; the other's are known to the index by their ids."""
    python = os.environ["KVINDEXER_RAY_PYTHON"]
    folder = tmp_path_factory.mktemp("ray")
    engines: dict[str, EngineSimulator] = {}
    try:
        with RunningService([]) as service, ProxyThread(urlsplit(service.url).port or 0) as way:
            engines.update((pod, _registered(service, pod)) for pod in PODS)
            with LocalRay(python, folder, f"http://127.0.0.1:{way.port}", PODS) as ray:
                for i, replica in enumerate(ray.do("names", "engines")):
                    engines[replica] = _registered(service, f"10.0.1.{i}:8000", replica)
                yield Beside(ray, service, way, engines)
    finally:
        for engine in engines.values():
            engine.close()
