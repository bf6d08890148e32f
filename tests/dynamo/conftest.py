"""The two services, for as long as the suite runs; every test has models and numbers of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.dynamo.indexers import Indexer, Worker, start_dynamo, start_ours

ROOT = Path(__file__).parents[2]


class Pair(NamedTuple):
    """Both, and engines that both have registered."""

    dynamo: Indexer
    ours: Indexer
    worker: Callable[..., Worker]

    def same(self, token_ids: list[int], **members: Any) -> dict[str, Any]:  # noqa: ANN401  whatever JSON can say
        """The answer of both, which is one."""
        dynamos, ours = self.dynamo.query(token_ids, **members), self.ours.query(token_ids, **members)
        assert dynamos == ours
        return ours


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Indexer, Indexer]]:
    """Dynamo's and ours."""
    logs = tmp_path_factory.mktemp("logs")
    started: list[Indexer] = []
    try:
        started.append(start_dynamo(os.environ["KVINDEXER_DYNAMO_PYTHON"], logs))
        started.append(start_ours(os.environ.get("KVINDEXER_COMMAND", str(ROOT / ".venv/bin/kvindexer")), logs))
        yield started[0], started[1]
    finally:
        for each in started:
            each.close()


@pytest.fixture
def pair(services: tuple[Indexer, Indexer]) -> Iterator[Pair]:
    """Nobody is registered, and nobody is left."""
    dynamo, ours = services
    workers: list[Worker] = []

    def worker(number: int, **members: Any) -> Worker:  # noqa: ANN401  the registration's
        workers.append(Worker(services, number, **members))
        return workers[-1]

    yield Pair(dynamo, ours, worker)

    for each in services:
        for number, told in each.workers().items():
            removed = each.post("/unregister", instance_id=number, model_name=told["model_name"])
            assert removed.status_code == 200, removed.text
    for worker_ in workers:
        worker_.engine.close()
