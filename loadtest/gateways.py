"""Scenario `gateways`: what asking before each request adds, in a real Envoy with the configurations that are shipped.

Engines cost next to nothing, so what is seen is Envoy and the service. The service has a core to itself; Envoy, the
generator and the engines share the other one where there are two. Each way in turns, as often as `rounds` says; what
counts of throughput is the service's CPU time a request.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

import yaml

from api.demo.engine import EngineSimulator
from loadtest import generator
from loadtest.backends import Backends
from loadtest.envoy import SHIPPED, Envoy, free_port, placed
from loadtest.generator import Question
from loadtest.machine import cores, cpu_s_of, pin
from loadtest.processes import Child
from loadtest.report import Result, begin
from loadtest.service import MODEL
from loadtest.stats import median
from loadtest.traffic import document
from loadtest.trust.serving import Served
from loadtest.wire import payload, stores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtest.content import Document
    from loadtest.generator import Load
    from loadtest.report import Row

ENGINES: Final = 3
HELD: Final = 100
"""Prompts that each engine holds."""
BLOCKS: Final = 64
"""Of a prompt: 1,024 tokens, some 7 kB as JSON."""
CONNECTIONS: Final = (1, 16)
READY_S: Final = 30.0
BUSY: Final = 2.0
_KIND: Final = 1_500
_TARGET: Final = "/v1/completions"
_ALONE: Final = "Envoy alone"
_WAYS: Final = {
    "Lua": "lua.yaml",
    "ext_authz": "ext-authz.yaml",
    "ext_proc, buffered": "ext-proc.yaml",
    "ext_proc, full duplex": "ext-proc-duplex.yaml",
}


class Way(NamedTuple):
    """One Envoy."""

    name: str
    envoy: Envoy


class Run(NamedTuple):
    """One run of the generator, and what it cost both."""

    load: Load
    service_us: float
    envoy_us: float
    asked: float
    """Share of the requests for which the service was asked in time."""


def run(*, seconds: float = 3.0, rounds: int = 3, connections: Sequence[int] = CONNECTIONS) -> Result:
    """Measure each way."""
    places = cores()
    result = begin(
        "gateways",
        {"generator": generator.name(), "seconds a run": seconds, "rounds": rounds, "tokens": BLOCKS * 16},
    )
    busy, _, _ = os.getloadavg()
    if busy > BUSY:
        result.remarks.append(
            f"Other work kept the machine busy (load average {busy:.1f}): take CPU times; latencies are of the queue."
        )
    with ExitStack() as opened:
        pin(places.engines)
        ports = opened.enter_context(Child(Backends, ENGINES, core=places.engines)).call(Backends.ports)
        engines = [opened.enter_context(EngineSimulator()) for _ in ports]
        pin(places.service)
        flags = [f"127.0.0.1:{port}={each.endpoint},model={MODEL}" for port, each in zip(ports, engines, strict=True)]
        served = opened.enter_context(
            Served(flags, server__roles="[collect, lookup, epp]", server__epp_port="0", telemetry__log_level="error")
        )
        pin(places.generator)
        documents = {port: [document(_KIND + i, n, BLOCKS) for n in range(HELD)] for i, port in enumerate(ports)}
        for engine, held in zip(engines, documents.values(), strict=True):
            engine.wait_subscribers(1)
            engine.publish(payload([event for each in held for event in stores(each, BLOCKS)]))
        ways = _ways(opened, served, ports)
        for way in ways[1:]:
            _wait_until_right(way, documents)
        bodies = Path(opened.enter_context(tempfile.TemporaryDirectory())) / "bodies"
        generator.write_bodies(bodies, [_body(each) for turn in zip(*documents.values(), strict=True) for each in turn])
        question = Question(_TARGET, bodies, "application/json")
        for count in connections:
            runs: dict[str, list[Run]] = {way.name: [] for way in ways}
            for _ in range(rounds):
                for way in ways:
                    runs[way.name].append(_ask(way, served, question, count, seconds))
            rows = [_row(name, each, runs[_ALONE]) for name, each in runs.items()]
            result.tables[f"{count} connection{'s' if count > 1 else ''}"] = rows
            for row in rows:
                print(f"  {count}: {row}", flush=True)
    return result


def _ways(opened: ExitStack, served: Served, ports: Sequence[int]) -> list[Way]:
    """All of them, running."""
    index = urlsplit(served.url).port or 0
    told = re.search(r"epp://[0-9.]+:(\d+)", served.banner)
    assert told is not None, served.banner
    texts = {_ALONE: (_without_filter(SHIPPED / "lua.yaml"), index)}
    for name, file in _WAYS.items():
        texts[name] = ((SHIPPED / file).read_text(), int(told[1]) if "proc" in file else index)
    ways = []
    for name, (text, asked) in texts.items():
        port = free_port()
        ways.append(Way(name, opened.enter_context(Envoy(placed(text, port, asked, ports), port))))
    return ways


def _without_filter(file: Path) -> str:
    """A configuration in which nobody is asked."""
    text = file.read_text()
    begin_of = text.index("          - name: envoy.filters.http.lua")
    end = text.index("          - name: envoy.filters.http.router")
    text = text[:begin_of] + text[end:]
    assert yaml.safe_load(text)
    return text


def _body(held: Document) -> bytes:
    return json.dumps({"model": MODEL, "prompt": held.prompt().tolist(), "max_tokens": 1}).encode()


def _wait_until_right(way: Way, documents: dict[int, list[Document]]) -> None:
    """Return when each engine gets what it holds; AssertionError where that does not come."""
    for port, held in documents.items():
        ends_at = time.monotonic() + READY_S
        while (got := _sent_to(way.envoy.port, _body(held[0]))) != port:
            assert time.monotonic() < ends_at, f"{way.name}: {got} got what {port} holds"


def _sent_to(port: int, body: bytes) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        connection.request("POST", _TARGET, body, {"content-type": "application/json"})
        return int(connection.getresponse().read())


def _ask(way: Way, served: Served, question: Question, connections: int, seconds: float) -> Run:
    def state() -> tuple[float, float, float]:
        return cpu_s_of(served.pid), cpu_s_of(way.envoy.pid), _lookups(served)

    before = state()
    load = generator.load(way.envoy.port, question, connections=connections, seconds=seconds)
    service, envoy, asked = (after - first for after, first in zip(state(), before, strict=True))
    return Run(load, service / load.requests * 1e6, envoy / load.requests * 1e6, asked / load.requests)


def _lookups(served: Served) -> float:
    """Answered so far."""
    address = urlsplit(served.url)
    with closing(http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)) as connection:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("kvindexer_lookups_total{"))


def _row(name: str, runs: Sequence[Run], alone: Sequence[Run]) -> Row:
    p50, base = (median([run.load.p50_us for run in each]) for each in (runs, alone))
    service = median([run.service_us for run in runs])
    asks = runs is not alone
    return {
        "way": name,
        "requests/s": round(median([run.load.rate for run in runs])),
        "p50 us": round(p50),
        "added us": round(p50 - base) if asks else None,
        "p99 us": round(median([run.load.p99_us for run in runs])),
        "Envoy CPU us": round(median([run.envoy_us for run in runs])),
        "service CPU us": round(service) if asks else None,
        "a core of the service carries": round(1e6 / service, -2) if asks and service else None,
        "asked in time %": round(100 * min(run.asked for run in runs), 1) if asks else None,
    }
