"""Scenario `sidecar`: what a replica beside a gateway takes: memory, time to be ready, and CPU for what it passes over.

The real command, `kvindexer serve --roles lookup` on a Unix socket alone, beside a store that an owner filled with two
models of the same size. It is started for a model that nobody has, and for one of the two; then the other one's engines
speak. In the same run bare HSCAN of the chosen model's maps, one step after the other, by the same library's client.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import uvloop

from indexer.settings import Redis as RedisSettings
from kvindexer_client import Client, Refused
from loadtest.filling import fill, publish_prepared
from loadtest.machine import Cores, cores, cpu_s_of, pin
from loadtest.processes import Child
from loadtest.publisher import Publisher
from loadtest.rebuild import bare_scan_s, until_written
from loadtest.report import Result, Row, Target, begin
from loadtest.service import MODEL, OTHER_MODEL, Service, pod
from loadtest.shapes import Shape
from loadtest.stats import median
from loadtest.stores import StoreServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ENGINES: Final = 8
"""Half of each model."""
OWN_MAX_MIB: Final = 60.0
PAIR_MAX: Final = 120.0
READY_MAX: Final = 3.0
SHAPE: Final = Shape(64)
POLL_S: Final = 0.01
START_S: Final = 120.0
_MIB: Final = 2**20


class Size(NamedTuple):
    """Resident bytes: all, and those that are no page of a file, which every process of the image shares."""

    resident: int
    own: int


class Sidecar:
    """The command as a process. A context manager."""

    def __init__(self, url: str, model: str, core: int) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="kvindexer-load-")
        path = f"{self._folder.name}/s"
        words = ["serve", "--roles", "lookup", "--uds", path, "--port", "off", "--grpc-port", "off", "--follow", model]
        started = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "indexer", *words, "--redis-url", url],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        os.sched_setaffinity(self._process.pid, {core})
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self.listens_s = time.perf_counter() - started
        self._client = Client(f"unix:{path}", timeout_s=START_S)

    def __enter__(self) -> Sidecar:  # noqa: PYI034  as the others here
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._process.terminate()
        self._process.communicate()
        self._folder.cleanup()

    def ready_s(self, sources: int) -> float:
        """From when it listened until it is ready, with so many sources that answer."""
        began = time.perf_counter()
        while (now := time.perf_counter()) - began < START_S:
            told = self._readiness()
            if told["ready"] and told["detail"].get("live", 0) + told["detail"].get("suspect", 0) == sources:
                return now - began
            time.sleep(POLL_S)
        raise AssertionError(f"not ready: {self._readiness()}")

    def _readiness(self) -> dict[str, Any]:
        try:
            told: dict[str, Any] = self._client.request("GET", "/readyz").json()
        except Refused as refused:  # 503, with the same
            told = msgspec.json.decode(refused.body)
        return told

    def size(self) -> Size:
        """Of its memory now."""
        told = dict(line.split(":", 1) for line in self._told("status").splitlines() if ":" in line)
        return Size(*(int(told[name].split()[0]) * 1024 for name in ("VmRSS", "RssAnon")))

    def cpu_s(self) -> float:
        """CPU seconds so far."""
        return cpu_s_of(self._process.pid)

    def _told(self, name: str) -> str:
        return Path(f"/proc/{self._process.pid}/{name}").read_text()


def run(*, pairs: int = 1_000_000, rounds: int = 3, passed: int = 200_000) -> Result:
    """Measure. `pairs`: over all engines; `passed`: blocks of the other model that are then announced."""
    places = cores()
    pin(places.generator)
    result = begin("sidecar", {"engines": ENGINES, "pairs": pairs, "models": 2, "rounds": rounds})
    models = [MODEL if number % 2 else OTHER_MODEL for number in range(ENGINES)]
    with (
        StoreServer("valkey", places.generator) as store,
        Child(Publisher, ENGINES, core=places.engines) as engines,
        Child(Service, redis=RedisSettings(url=store.url), core=places.generator) as owner,
        store.look() as look,
    ):
        owner.call(Service.connect, engines.call(Publisher.endpoints), models)
        engines.call(Publisher.wait_subscribed)
        fill(engines, owner, ENGINES, pairs)
        held = owner.call(Service.counts)["pairs"]
        until_written(look, held)
        chosen = [pod(number) for number in range(ENGINES) if models[number] == MODEL]
        keys = [key for key in look.scan_iter(match="kvi:1:*:map:*", count=1_000) if _is_of(key, chosen)]
        rows = list(_started(store.url, keys, len(chosen), held // 2, rounds, places))
        passing = _passing(store.url, engines, owner, passed, places)
    result.tables["A sidecar beside a full store of two models"] = rows
    result.tables["What it passes over"] = [passing]
    idle, following = rows
    ratio = float(following["times HSCAN"] or 0)
    result.targets += [
        Target("idle: memory of its own, MiB", float(idle["own MiB"] or 0), OWN_MAX_MIB, at_least=False),
        Target("idle: resident, MiB", float(idle["resident MiB"] or 0), OWN_MAX_MIB, at_least=False),
        Target("following: bytes a pair", float(following["bytes a pair"] or 0), PAIR_MAX, at_least=False),
        Target("following: ready, times bare HSCAN", ratio, READY_MAX, at_least=False),
    ]
    return result


def _is_of(key: bytes, pods: Sequence[str]) -> bool:
    return any(name.encode() in key for name in pods)


def _started(url: str, keys: list[bytes], sources: int, pairs: int, rounds: int, places: Cores) -> Iterator[Row]:
    """One that follows nothing, and one that follows half of all; both from before the process is there.

    Bare HSCAN is read beside each start: how fast a machine is may be another matter a second later.
    """
    sizes: list[Size] = []
    for model, count in (("of nobody", 0), (MODEL, sources)):
        listens, ready, cpu_s, bare = [], [], [], []
        for _ in range(rounds):
            if count:
                pin(places.service)
                bare.append(uvloop.run(bare_scan_s(url, keys)))
                pin(places.generator)
            with Sidecar(url, model, places.service) as sidecar:
                listens.append(sidecar.listens_s)
                before = sidecar.cpu_s()
                ready.append(sidecar.ready_s(count))
                cpu_s.append(sidecar.cpu_s() - before)
                time.sleep(1)  # housekeeping gives back what loading took
                sizes.append(sidecar.size())
        size = min(sizes[-rounds:])
        row: Row = {
            "follows": f"{count} sources",
            "resident MiB": size.resident / _MIB,
            "own MiB": size.own / _MIB,
            "until it listens s": median(listens),
            "ready s": median(ready),
            "ready CPU s": median(cpu_s),
        }
        if count:
            times = median([took / scan for took, scan in zip(ready, bare, strict=True)])
            row |= {"pairs": pairs, "bytes a pair": (size.own - min(sizes[:rounds]).own) / pairs}
            row |= {"bare HSCAN s": median(bare), "times HSCAN": times}
        print(f"  {row}", flush=True)
        yield row


def _passing(url: str, engines: Child[Publisher], owner: Child[Service], blocks: int, places: Cores) -> Row:
    """Blocks that all engines announce, at one that follows none of them."""
    with Sidecar(url, "of nobody", places.service) as sidecar:
        sidecar.ready_s(0)
        time.sleep(1)
        idle_cpu_s, idle_from = sidecar.cpu_s(), time.perf_counter()
        time.sleep(5)
        idle = (sidecar.cpu_s() - idle_cpu_s) / (time.perf_counter() - idle_from)
        count = engines.call(Publisher.prepare, SHAPE, 1_000_000, blocks // ENGINES)
        before, began = sidecar.cpu_s(), time.perf_counter()
        publish_prepared(engines, owner)
        time.sleep(1)
        spent = sidecar.cpu_s() - before - idle * (time.perf_counter() - began)
    row: Row = {"blocks": count, "CPU s a million blocks": spent / count * 1e6, "idle, % of a core": idle * 100}
    print(f"  {row}", flush=True)
    return row
