"""What stands behind and beside a gateway: servers that speak like vLLM, their events, and the service that knows."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from api.demo.engine import EngineSimulator
from tests.support.core_events import BLOCK, payload, stored
from tests.support.core_service import DEADLINE_S, RunningService, applied
from tests.support.openai_engines import MODEL, OpenAiEngines

if TYPE_CHECKING:
    from collections.abc import Iterator

ENGINES: Final = 3
BLOCKS: Final = 40
PICKER: Final = {"server__roles": "[collect, lookup, epp]", "server__epp_port": "0"}
GONE: Final = ENGINES
"""The number of an engine that announced its blocks, and at whose address nobody listens."""
OF_GONE: Final = 4
"""Prompts that it holds: of this number, and the next ones."""


class Fleet:
    """Engines that hold a prompt each, and one that is gone, of whose prompts the second holds half, the third less."""

    def __init__(self, token: str | None = None, **settings: str) -> None:
        self._open = contextlib.ExitStack()
        self.engines = self._open.enter_context(OpenAiEngines(ENGINES))
        self.ports = self.engines.ports
        nobody = self._open.enter_context(socket.socket())
        nobody.bind(("127.0.0.1", 0))  # kept, and never listened at
        self.gone = int(nobody.getsockname()[1])
        self.pods = [f"127.0.0.1:{port}" for port in (*self.ports, self.gone)]
        events = [self._open.enter_context(EngineSimulator()) for _ in self.pods]
        flags = [f"{pod}={engine.endpoint},model={MODEL}" for pod, engine in zip(self.pods, events, strict=True)]
        self.service = RunningService(flags, token=token, server__grpc_port="0", **{**PICKER, **settings})
        self.index = urlsplit(self.service.url).port or 0
        told = re.search(r"epp://[0-9.]+:(\d+)", self.service.banner)
        self.picker = int(told[1]) if told else 0
        """Where Envoy's ext_proc asks."""
        for engine, batch in zip(events, self._held(), strict=True):
            engine.wait_subscribers(1)
            engine.publish(batch)
        for pod in self.pods:
            self.service.wait_for(lambda pod=pod: applied(self.service, pod, 0), "the engines to be heard")  # type: ignore[misc]
        self.service.wait_for(self._is_ready, "the picker to be ready")

    def _held(self) -> Iterator[bytes]:
        """What each engine announces."""
        for engine, share in ((0, 0), (1, BLOCKS // 2), (2, BLOCKS // 4)):
            own = [stored(range(1, BLOCKS + 1), self.prompt(engine))]
            yield payload(*own, *(self._gone(number, share) for number in range(OF_GONE) if share))
        yield payload(*(self._gone(number, BLOCKS) for number in range(OF_GONE)))

    def _gone(self, number: int, blocks: int) -> dict[str, Any]:
        """The beginning of a prompt of the engine that is gone."""
        first = 1_000 * (number + 1)
        return stored(range(first, first + blocks), self.prompt(GONE + number)[: blocks * BLOCK])

    def _is_ready(self) -> bool:
        """As gateways are told over gRPC, where there is a picker."""
        if not self.picker:
            return True
        with grpc.insecure_channel(f"127.0.0.1:{self.picker}") as channel:
            asked = health_pb2.HealthCheckRequest(service="readiness")
            told = health_pb2_grpc.HealthStub(channel).Check(asked, timeout=DEADLINE_S)
        return bool(told.status == health_pb2.HealthCheckResponse.SERVING)

    def asked_by(self, kind: str) -> int:
        """The port at which a gateway of that kind asks."""
        return self.picker if kind.startswith("ext-proc") else self.index

    @staticmethod
    def prompt(engine: int) -> list[int]:
        """Which that engine alone holds, but for that of the engine that is gone."""
        return [1_000 * (engine + 1) + i for i in range(BLOCKS * BLOCK)]

    def close(self) -> None:
        """End it: the service is killed, frozen or not, if a test has not killed it before."""
        self.service.send_signal(signal.SIGCONT)
        self.service.kill()
        self._open.close()


@contextlib.contextmanager
def running_fleet(token: str | None = None, **settings: str) -> Iterator[Fleet]:
    """One that is ended with the block."""
    made = Fleet(token, **settings)
    try:
        yield made
    finally:
        made.close()
