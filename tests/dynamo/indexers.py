"""Both services behind the same clients: Dynamo's indexer from its wheel, and ours."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Self

import httpx

from api.demo.engine import EngineSimulator
from tests.engine.processes import Process, free_ports
from tests.engine.waiting import wait_until
from tests.support.core_events import payload, stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

START_DEADLINE_S = 60.0
BLOCK = 16
MODEL = "m"
_markers = itertools.count(4_000_000_000)
"""Token ids of blocks that no test asks about: they show how far a service has come."""

_moments = itertools.count(1_700_000_000)
"""Time stamps: by them a new process is told from an old batch that comes once more."""


class Indexer:
    """One service, asked as Dynamo's clients ask."""

    def __init__(self, name: str, command: Sequence[str], port: int, health: str, logs: Path) -> None:
        self.name = name
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10.0)
        self._process = Process(command, logs / f"{name}.log", {"DYN_LOG": "warn", "KVINDEXER_SERVER__GRPC_PORT": "0"})
        wait_until(f"{name} is healthy", lambda: self._is_healthy(health), deadline_s=START_DEADLINE_S)

    def close(self) -> None:
        """End it."""
        self.client.close()
        self._process.terminate()

    def post(self, path: str, **members: Any) -> httpx.Response:  # noqa: ANN401  whatever JSON can say
        """One request."""
        return self.client.post(path, json=members)

    def query(self, token_ids: Iterable[int], model_name: str = MODEL, **members: Any) -> dict[str, Any]:  # noqa: ANN401
        """The answer to `/query`; where the service knows no such model, that of nobody."""
        return _answer(self.post("/query", token_ids=list(token_ids), model_name=model_name, **members))

    def query_by_hash(self, block_hashes: Sequence[int], model_name: str = MODEL) -> dict[str, Any]:
        """The same by local hashes."""
        return _answer(self.post("/query_by_hash", block_hashes=list(block_hashes), model_name=model_name))

    def workers(self) -> dict[int, dict[str, Any]]:
        """What is registered, by number."""
        return {worker["instance_id"]: worker for worker in self.client.get("/workers").json()}

    def _is_healthy(self, path: str) -> bool:
        self._process.assert_running()
        try:
            return self.client.get(path).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False


def _answer(response: httpx.Response) -> dict[str, Any]:
    if response.status_code == httpx.codes.NOT_FOUND:
        return {"scores": {}, "frequencies": [], "instances": {}}
    assert response.status_code == httpx.codes.OK, response.text
    answer: dict[str, Any] = response.json()
    return answer


class Worker:
    """An engine that both have registered, under one number."""

    def __init__(self, indexers: Sequence[Indexer], number: int, *, dp_rank: int = 0, **members: Any) -> None:  # noqa: ANN401
        self.number, self.dp_rank = number, dp_rank
        self._indexers = indexers
        self._model = members.get("model_name", MODEL)
        self.engine = EngineSimulator(replay_endpoint=None)
        self.engine.start()
        body = {
            "instance_id": number,
            "endpoint": self.engine.endpoint,
            "model_name": MODEL,
            "block_size": BLOCK,
            "dp_rank": dp_rank,
            **members,
        }
        for indexer in indexers:
            response = indexer.client.post("/register", json=body)
            assert response.status_code == httpx.codes.CREATED, response.text
        self.engine.wait_subscribers(len(indexers))

    def say(self, *events: object) -> Self:
        """One batch of the engine."""
        self.engine.publish(payload(*events, ts=float(next(_moments)), rank=self.dp_rank))
        return self

    def settle(self, indexers: Sequence[Indexer] | None = None) -> None:
        """Return when all that was said is applied by these services, or by both."""
        unique = next(_markers)
        tokens = [unique] * BLOCK
        self.say(stored([unique << 20], tokens, block_size=BLOCK))
        for indexer in self._indexers if indexers is None else indexers:
            wait_until(f"{indexer.name} applied marker {unique}", lambda each=indexer: self._is_seen(each, tokens))

    def _is_seen(self, indexer: Indexer, tokens: list[int]) -> bool:
        scores = indexer.query(tokens, self._model)["scores"]
        return str(self.dp_rank) in scores.get(str(self.number), {})


def start_dynamo(python: str, logs: Path) -> Indexer:
    """Dynamo's indexer, as it comes."""
    (port,) = free_ports(1)
    return Indexer("dynamo", [python, "-m", "dynamo.indexer", "--port", str(port)], port, "/health", logs)


def start_ours(command: str, logs: Path) -> Indexer:
    """Our service, as it comes."""
    (port,) = free_ports(1)
    return Indexer("ours", [command, "serve", "--port", str(port)], port, "/healthz", logs)
