"""Run by Ray's own Python: a local Serve with our router. A command a line on stdin, an answer a line on stdout, JSON.

What is served is the README's `Engine` (module `engines`, which the tests write), and replicas that say their names.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import ray
from engines import Engine, by_prefix
from ray import serve
from ray.serve.config import RequestRouterConfig

PODS = json.loads(sys.argv[1])
PORT = int(sys.argv[2])
TIMEOUT_S = 10.0
"""For answers that must come, on however busy a machine."""


@serve.deployment(
    num_replicas=len(PODS),
    max_ongoing_requests=2,
    request_router_config=RequestRouterConfig(
        request_router_class=by_prefix.request_router_class,
        request_router_kwargs={**by_prefix.request_router_kwargs, "timeout_s": TIMEOUT_S},
        request_routing_stats_period_s=0.2,
    ),
)
class Named:
    """Says by which name the index knows it, and answers once a file is there, if the request names one."""

    def __init__(self) -> None:
        self.pod = PODS[serve.get_replica_context().rank.rank]

    def record_routing_stats(self) -> dict[str, str]:
        return {"kvindexer_pod": self.pod}

    async def __call__(self, request: Any) -> str:
        if isinstance(request, dict) and "until" in request:
            while not Path(request["until"]).exists():
                await asyncio.sleep(0.01)
        return self.pod


class Served:
    """Both, and the requests that are under way."""

    def __init__(self) -> None:
        serve.start(http_options={"host": "127.0.0.1", "port": PORT})
        self.handles = {
            "engines": serve.run(Engine.bind(), name="engines", route_prefix="/engines"),
            "named": serve.run(Named.bind(), name="named", route_prefix="/named"),
        }
        for handle in self.handles.values():
            handle.remote({}).result()  # makes its router
        self.sent: list[Any] = []

    def router(self, app: str) -> Any:
        """By Serve's own attributes, of the release that is locked."""
        return self.handles[app]._router._asyncio_router.request_router

    def do(self, command: dict[str, Any]) -> Any:
        """One command."""
        handle, router = self.handles[command["app"]], self.router(command["app"])
        request, times = command.get("request"), range(command.get("times", 1))
        match command["do"]:
            case "names":
                return sorted(map(router._name, router.curr_replicas.values()))
            case "counts":
                return dict(router.index.counts)
            case "pausing":
                return router.num_routing_tasks_in_backoff
            case "ask":
                return [handle.remote(request).result() for _ in times]
            case "time":
                return [_timed(handle, request) for _ in times]
            case "send":
                self.sent += [handle.remote(request) for _ in times]
                return len(self.sent)
            case "receive":
                sent, self.sent = self.sent, []
                return [response.result() for response in sent]
            case unknown:
                raise ValueError(unknown)


def _timed(handle: Any, request: Any) -> float:
    began = time.perf_counter()
    handle.remote(request).result()
    return time.perf_counter() - began


def main() -> None:
    """Until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else is printed
    ray.init(num_cpus=len(PODS) + 4, include_dashboard=False, object_store_memory=200_000_000)
    served = Served()
    print("{}", file=answers)
    for line in sys.stdin:
        print(json.dumps(served.do(json.loads(line))), file=answers)
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    main()
