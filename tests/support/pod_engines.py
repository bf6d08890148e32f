"""Engines on real sockets whose pods an API server tells of, and a `kvindexer serve` that finds them there."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Any, Final, Self

from api.demo.engine import EngineSimulator
from tests.support.cluster import NAMESPACE, Cluster
from tests.support.core_events import payload, prompt, stored
from tests.support.core_service import RunningService
from tests.support.pods import container, engine_args, events_config, pod

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.lookup import PodEntry
    from tests.support.cluster import ApiServer
    from tests.support.pods import Object

PORT: Final = 8000
"""Of requests; nobody listens there."""
BLOCKS: Final = 4
QUESTION: Final = prompt(BLOCKS + 1, 0)
"""What engines are asked about, whose first blocks they announce."""
STORED: Final = payload(stored(range(1, BLOCKS + 1), prompt(BLOCKS, 0)))
OTHER: Final = payload(stored([99], prompt(1, 9_000)))
"""What has nothing to do with it."""


class PodEngine:
    """The engines of one pod, a rank each, at an address of its own. They outlive the pod, as they are ours."""

    def __init__(self, ip: str, ranks: int = 1) -> None:
        self.ip = ip
        self.name = f"{ip}:{PORT}"
        self.events, self.replay = _free_ports(ip, ranks)
        self.of_rank = [
            EngineSimulator(f"tcp://{ip}:{self.events + rank}", f"tcp://{ip}:{self.replay + rank}")
            for rank in range(ranks)
        ]
        for each in self.of_rank:
            each.start()

    def args(self, *others: str) -> list[str]:
        """Of its container."""
        return engine_args(PORT, events_config(self.events, self.replay), *others)

    def announce(self, what: bytes = STORED) -> None:
        """As all of its ranks do it."""
        for each in self.of_rank:
            each.publish(what)

    def close(self) -> None:
        """Nothing of it is left."""
        for each in self.of_rank:
            each.close()


def _free_ports(ip: str, ranks: int) -> tuple[int, int]:
    """Two runs of ports at that address, one after the other, which nobody has."""
    for _ in range(100):
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(socket.socket())
            first.bind((ip, 0))
            port: int = first.getsockname()[1]
            try:
                for each in range(port + 1, port + 2 * ranks):
                    stack.enter_context(socket.socket()).bind((ip, each))
            except OSError:
                continue
            return port, port + ranks
    raise AssertionError(f"no free ports at {ip}")


class FoundService:
    """The service, which looks for pods of `app=vllm`; its cluster; engines. A context manager."""

    def __init__(self, server: ApiServer, **settings: str) -> None:
        self.cluster = Cluster(server)
        self._engines: list[PodEngine] = []
        given = {
            "discovery__kubernetes__selector": "app=vllm",
            "discovery__kubernetes__namespaces": f"[{NAMESPACE}]",
            "discovery__kubernetes__url": server.url,
            "discovery__kubernetes__token_file": str(server.token_file),
            "loads__interval_s": "null",
        }
        if server.ca_file is not None:
            given["discovery__kubernetes__ca_file"] = str(server.ca_file)
        self.service = RunningService([], **{**given, **settings})

    def __enter__(self) -> Self:
        self.service.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.service.__exit__(*error)
        finally:
            for each in self._engines:
                each.close()

    def engine(self, ip: str, ranks: int = 1) -> PodEngine:
        """One that is not told of yet."""
        made = PodEngine(ip, ranks)
        self._engines.append(made)
        return made

    def start(self, name: str, ip: str, *, ranks: int = 1, made: Object | None = None, **of_status: Any) -> PodEngine:  # noqa: ANN401  parts of a status
        """A pod, and its engine, which has announced what is asked for."""
        engine = self.engine(ip, ranks)
        engine.announce()
        self.run(name, engine, made, **of_status)
        return engine

    def run(self, name: str, engine: PodEngine, made: Object | None = None, **of_status: Any) -> None:  # noqa: ANN401  as above
        """A pod of that engine."""
        others = [f"--data-parallel-size={len(engine.of_rank)}"] if len(engine.of_rank) > 1 else []
        made = made if made is not None else pod(name, container(args=engine.args(*others)))
        self.cluster.run(name, engine.ip, made, **of_status)

    # -- what the service says ----------------------------------------------------------------------------------------

    def entries(self, pods: Sequence[str] | None = None) -> dict[tuple[str, int], PodEntry]:
        """Of an answer, by name and rank."""
        answer = self.service.ask(QUESTION, model="llama", **({} if pods is None else {"pods": list(pods)}))
        return {(entry.pod, entry.dp_rank): entry for entry in answer.pods}

    def scored(self) -> set[str]:
        """Who may be sent the question, since it holds the start of it."""
        return {name for (name, _), entry in self.entries().items() if entry.score > 0}

    def reasons(self) -> dict[str, str | None]:
        """Of who may not."""
        return {name: entry.reason for (name, _), entry in self.entries().items() if entry.score == 0}

    def until_scored(self, *engines: PodEngine) -> None:
        """Wait until these may be sent the question, and nobody else."""
        names = {engine.name for engine in engines}
        self.service.wait_for(lambda: self.scored() == names, f"{sorted(names)} to be scored")

    def until_reason(self, engine: PodEngine, reason: str | None) -> None:
        """Wait until one is not scored for that reason."""
        self.service.wait_for(lambda: self.reasons().get(engine.name, "") == reason, f"{engine.name} to be {reason}")

    def until_known(self, *engines: PodEngine) -> None:
        """Wait until these are the sources."""
        names = {engine.name for engine in engines}
        self.service.wait_for(lambda: self.service.sources().keys() == names, f"the sources {sorted(names)}")

    def generation(self, engine: PodEngine) -> str:
        """Of its source."""
        return str(self.service.sources()[engine.name]["generation"])
