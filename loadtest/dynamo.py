"""Scenario `dynamo`: our lookups beside those of Dynamo's own indexer, in one run, by CPU time a request.

Same events, same prompts, same client, same core in turns. Dynamo's service comes from its wheel, in an environment of
its own (tests/dynamo/environment.sh); where that cannot be, there is nothing to compare with. It is asked as its own
clients ask, and ours in every form that it takes. Rounds go through all forms in turns, so that what else runs on the
machine falls on all alike.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from loadtest import generator
from loadtest.filling import fill
from loadtest.generator import GeneratorFailed, Question
from loadtest.lookups import PROMPTS
from loadtest.machine import ROOT, cores, cpu_s_of, pin
from loadtest.processes import Child
from loadtest.publisher import Publisher
from loadtest.questions import DYNAMO_HASHES, DYNAMO_IDS, HASHES, JSON_IDS, OCTETS, PACKED_HASHES, PACKED_IDS, wrong
from loadtest.report import Result, Row, Target, begin
from loadtest.service import MODEL, Service, pod
from loadtest.stats import median
from loadtest.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from loadtest.questions import Form
    from loadtest.traffic import Prompt

SOURCES: Final = 64
PAIRS: Final = 100_000
LENGTHS: Final = (8_192, 131_072)
CONNECTIONS: Final = 16
CHECKED: Final = 20
INSTALL_S: Final = 600.0
START_S: Final = 60.0
POLL_S: Final = 0.05
DROP_IN: Final = (DYNAMO_IDS, DYNAMO_HASHES)
OWN: Final = (JSON_IDS, OCTETS, PACKED_IDS, HASHES, PACKED_HASHES)
PROMISED: Final = (OCTETS, HASHES, PACKED_HASHES)
"""Forms of ours that are held against both of Dynamo's."""
OF_QUERY, OF_BY_HASH, DROP_IN_OF_QUERY = 1.0, 0.6, 0.5
_ENVIRONMENT: Final = "tests/dynamo/environment.sh"


class NoDynamo(Exception):
    """Its service cannot run here; the message says why."""


@dataclass(slots=True)
class Asked:
    """One form at one service: CPU microseconds a request of each run, and answers so far."""

    service: str
    form: Form
    port: int
    cpu_s: Callable[[], float]
    bodies: Path
    costs: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    answers: int = CHECKED

    def run(self, seconds: float) -> None:
        """Once more, with prompts that were not asked yet."""
        question = Question(self.form.target, self.bodies, self.form.content_type, self.answers)
        before = self.cpu_s()
        try:
            load = generator.load(self.port, question, connections=CONNECTIONS, seconds=seconds)
        except GeneratorFailed as error:
            raise GeneratorFailed(f"{self.service}: {error}") from None
        self.costs.append((self.cpu_s() - before) / load.requests * 1e6)
        self.rates.append(load.rate)
        self.answers += load.requests

    @property
    def cost(self) -> float:
        """The middle of the runs."""
        return median(self.costs)


def run(*, seconds: float = 1.0, rounds: int = 5, lengths: Sequence[int] = LENGTHS) -> Result:
    """Compare, or say why not."""
    sizes: dict[str, object] = {"generator": generator.name(), "seconds a run": seconds, "rounds": rounds}
    result = begin("dynamo", {**sizes, "sources": SOURCES, "pairs": PAIRS, "connections": CONNECTIONS})
    try:
        python = _environment()
    except NoDynamo as reason:
        result.remarks.append(f"skipped: {reason}")
        print(f"  skipped: {reason}", flush=True)
        return result
    places = cores()
    pin(places.generator)
    traffic = Traffic(SOURCES, PAIRS)
    with (
        Child(Publisher, SOURCES, core=places.engines) as engines,
        Child(Service, http=True, core=places.service) as ours,
        _dynamo(python, places.service) as (dynamo_port, dynamo),
        tempfile.TemporaryDirectory() as folder,
    ):
        endpoints = engines.call(Publisher.endpoints)
        ours.call(Service.connect, endpoints)
        _register(dynamo_port, endpoints)
        engines.call(Publisher.wait_subscribed, 2)
        fill(engines, ours, SOURCES, PAIRS)
        ours.call(Service.settled)
        port = ours.call(Service.port)
        for length in lengths:
            prompts = traffic.prompts(length, PROMPTS[length])
            _wait_until_right(dynamo_port, prompts[:CHECKED])
            asked = [
                Asked("Dynamo", form, dynamo_port, lambda: cpu_s_of(dynamo.pid), Path(folder) / f"{number}")
                for number, form in enumerate(DROP_IN)
            ] + [
                Asked("ours", form, port, lambda: ours.call(Service.cpu_s), Path(folder) / f"{number}")
                for number, form in enumerate((*DROP_IN, *OWN))
            ]
            for each in asked:
                _check(each, prompts[:CHECKED])
                if each.service == "ours":
                    generator.write_bodies(each.bodies, map(each.form.body, prompts))
            for _ in range(rounds):
                for each in asked:
                    each.run(seconds)
            rows = list(_rows(asked))
            result.tables[f"{length:,} tokens"] = rows
            for row in rows:
                print(f"  {length} tokens: {row}", flush=True)
            result.targets += _targets(length, asked)
    return result


def _environment() -> str:
    """The Python that has Dynamo's service. Raises `NoDynamo`."""
    script = ROOT / _ENVIRONMENT
    try:
        done = subprocess.run(
            ["/usr/bin/env", "bash", str(script)], check=False, capture_output=True, text=True, timeout=INSTALL_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoDynamo(f"{_ENVIRONMENT}: {type(error).__name__}") from None
    if done.returncode:
        raise NoDynamo((done.stderr.strip().splitlines() or [f"{_ENVIRONMENT} ended with {done.returncode}"])[-1])
    return done.stdout.strip()


@contextlib.contextmanager
def _dynamo(python: str, core: int) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Dynamo's service on the core that ours has: they are asked in turns."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    process = subprocess.Popen(
        [python, "-m", "dynamo.indexer", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "DYN_LOG": "error"},
    )
    try:
        os.sched_setaffinity(process.pid, {core})
        _until(lambda: _status(port, "GET", "/health", None) == http.client.OK, "it did not come up")
        for thread in Path(f"/proc/{process.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {core})
        yield port, process
    finally:
        process.terminate()
        process.wait()


def _register(port: int, endpoints: Sequence[str]) -> None:
    """Number n + 1 is engine n: 0 is kept out of it."""
    for number, endpoint in enumerate(endpoints):
        body = {"instance_id": number + 1, "endpoint": endpoint, "model_name": MODEL, "block_size": 16, "dp_rank": 0}
        status = _status(port, "POST", "/register", msgspec.json.encode(body))
        assert status == http.client.CREATED, f"engine {number} was not registered: {status}"


def _ask(port: int, method: str, path: str, body: bytes | None, content_type: str) -> tuple[int, bytes]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        connection.request(method, path, body, {"content-type": content_type})
        response = connection.getresponse()
        return response.status, response.read()


def _status(port: int, method: str, path: str, body: bytes | None) -> int:
    try:
        return _ask(port, method, path, body, "application/json")[0]
    except OSError:
        return 0


def _until(holds: Callable[[], bool], otherwise: str) -> None:
    end = time.monotonic() + START_S
    while not holds():
        assert time.monotonic() < end, f"Dynamo's service: {otherwise} within {START_S:g} s"
        time.sleep(POLL_S)


class _Scores(msgspec.Struct):
    scores: dict[str, dict[str, int]]


def _wait_until_right(port: int, prompts: Sequence[Prompt]) -> None:
    names = [str(number + 1) for number in range(SOURCES)]
    _until(lambda: all(_drop_in_wrong(port, DYNAMO_IDS, each, names) is None for each in prompts), "not all applied")


def _drop_in_wrong(port: int, form: Form, prompt: Prompt, names: Sequence[str]) -> str | None:
    status, answer = _ask(port, "POST", form.target, form.body(prompt), form.content_type)
    if status != http.client.OK:
        return f"{status} {answer[:200]!r}"
    scores = msgspec.json.decode(answer, type=_Scores).scores
    expected = {names[engine]: {"0": blocks * 16} for engine, blocks in prompt.held.items()}
    return None if scores == expected else f"{scores}, expected {expected}"


def _check(asked: Asked, prompts: Sequence[Prompt]) -> None:
    """A sample of answers, one by one. Raises AssertionError for a wrong one."""
    names = [pod(number) if asked.service == "ours" else str(number + 1) for number in range(SOURCES)]
    for prompt in prompts:
        if asked.form in DROP_IN:
            problem = _drop_in_wrong(asked.port, asked.form, prompt, names)
        else:
            form = asked.form
            status, answer = _ask(asked.port, "POST", form.target, form.body(prompt), form.content_type)
            assert status == http.client.OK, f"{form.name}: {status} {answer[:500]!r}"
            problem = wrong(prompt, answer, SOURCES, form.content_type)
        assert problem is None, f"{asked.service}, {asked.form.name}: {problem}"


def _rows(asked: Sequence[Asked]) -> Iterator[Row]:
    query, by_hash = (each.cost for each in asked[: len(DROP_IN)])
    for each in asked:
        yield {
            "service": each.service,
            "asked by": each.form.name,
            "CPU us": round(each.cost, 1),
            "requests a CPU second": round(1e6 / each.cost),
            "of Dynamo's /query": round(query / each.cost, 2),
            "of its /query_by_hash": round(by_hash / each.cost, 2),
            "requests/s": round(median(each.rates)),
        }


def _targets(length: int, asked: Sequence[Asked]) -> Iterator[Target]:
    query, by_hash = (each.cost for each in asked[: len(DROP_IN)])
    for each in asked[len(DROP_IN) :]:
        name = f"requests a CPU second, {length} tokens, ours by {each.form.name}: share of Dynamo's"
        if each.form is DYNAMO_IDS and length == LENGTHS[0]:
            yield Target(f"{name} /query", query / each.cost, DROP_IN_OF_QUERY)
        elif each.form in PROMISED:
            yield Target(f"{name} /query", query / each.cost, OF_QUERY)
            yield Target(f"{name} /query_by_hash", by_hash / each.cost, OF_BY_HASH)
