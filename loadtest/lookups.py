"""Scenario `lookups`: lookups over HTTP against a null route in the same process, idle and while events arrive.

The null route reads the same body and gives a constant answer of the size the lookups' answers have. Real and null
run in turns; a sample of answers is checked before and after. CPU of the service's process is taken around each run:
where the generator keeps the service's core busy, requests and CPU tell the same ratio, else only CPU does.
"""

from __future__ import annotations

import http.client
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from loadtest import generator
from loadtest.filling import fill
from loadtest.generator import Question
from loadtest.machine import Cores, cores, pin
from loadtest.null_route import NULL_PATH
from loadtest.processes import Child
from loadtest.publisher import Publisher
from loadtest.questions import FORMS, OCTETS, Form, wrong
from loadtest.report import Result, Target, begin
from loadtest.service import Service
from loadtest.stats import median
from loadtest.traffic import Traffic, overlap

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loadtest.generator import Load
    from loadtest.report import Row
    from loadtest.traffic import Prompt

FLEETS: Final = ((8, 100_000), (64, 100_000), (8, 1_000_000), (64, 1_000_000))
LENGTHS: Final = (512, 8_192, 131_072)
ARRIVING_BLOCKS_PER_S: Final = 20_000
PROMPTS: Final = {512: 20_000, 8_192: 4_000, 131_072: 240}
"""By length: so many different ones that no end, which the fleet has not seen, comes back while the service could
still remember its hashes (16,384 chunks of 32 blocks, hashing/memo.py): only beginnings repeat, as in real traffic."""
CHECKED: Final = 40
BUSY_MIN: Final = 0.9
"""Of a core; below, the generator or another process limits the rate, not the service."""
P99_FACTOR_MAX: Final = 5.0
SHARES: Final = {("octet-stream", 8_192): 0.40, ("JSON ids", 8_192): 0.22, ("JSON ids", 512): 0.60}
"""Of the null route's rate, at the connections of JUDGED."""
JUDGED: Final = 16
MANY: Final = 64
"""Connections for one row more: the judged length as octet-stream, in the largest fleet."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the generator, and what it cost the service."""

    load: Load
    cpu_us: float
    busy: float


@dataclass(slots=True)
class Bench:
    """One fleet under load: where to ask, and who plays the engines. `asked`: lookups so far, of the present bodies."""

    port: int
    service: Child[Service]
    engines: Child[Publisher]
    sources: int
    seconds: float
    asked: int = 0

    def ask(self, question: Question, connections: int) -> Run:
        """One run."""
        before = self.service.call(Service.cpu_s)
        load = generator.load(self.port, question, connections=connections, seconds=self.seconds)
        cpu_s = self.service.call(Service.cpu_s) - before
        return Run(load, cpu_s / load.requests * 1e6, cpu_s / load.seconds)

    def look_up(self, question: Question, connections: int) -> Run:
        """One run, with the prompts after those of the last one."""
        run = self.ask(question._replace(skip=self.asked), connections)
        self.asked += run.load.requests
        return run

    def check(self, form: Form, prompts: Sequence[Prompt]) -> float:
        """Ask a sample one by one; the mean size of the answers. Raises AssertionError for a wrong one."""
        size = 0
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)) as connection:
            for prompt in prompts:
                connection.request("POST", form.target, form.body(prompt), {"content-type": form.content_type})
                response = connection.getresponse()
                answer = response.read()
                assert response.status == 200, f"{form.name}: {response.status} {answer[:500]!r}"
                problem = wrong(prompt, answer, self.sources)
                assert problem is None, f"{form.name}, {len(prompt.tokens)} tokens: {problem}"
                size += len(answer)
        return size / len(prompts)


def run(
    *,
    seconds: float = 2.0,
    rounds: int = 1,
    fleets: Sequence[tuple[int, int]] = FLEETS,
    lengths: Sequence[int] = LENGTHS,
    connections: Sequence[int] = (1, JUDGED),
) -> Result:
    """Measure every cell; `rounds` times real, null and real with events arriving, in turns."""
    places = cores()
    pin(places.generator)
    sizes: dict[str, object] = {"generator": generator.name(), "seconds a run": seconds, "rounds": rounds}
    result = begin("lookups", sizes)
    for sources, pairs in fleets:
        rows = list(_fleet(sources, pairs, seconds, rounds, lengths, connections, places, result))
        result.tables[f"{sources} sources, {pairs:,} pairs"] = rows
    return result


def _fleet(  # noqa: PLR0917  the grid
    sources: int,
    pairs: int,
    seconds: float,
    rounds: int,
    lengths: Sequence[int],
    connections: Sequence[int],
    places: Cores,
    result: Result,
) -> Iterator[Row]:
    traffic = Traffic(sources, pairs)
    with (
        Child(Publisher, sources, core=places.engines) as engines,
        Child(Service, http=True, core=places.service) as service,
        tempfile.TemporaryDirectory() as folder,
    ):
        service.call(Service.connect, engines.call(Publisher.endpoints))
        engines.call(Publisher.wait_subscribed)
        fill(engines, service, sources, pairs)
        service.call(Service.settled)
        counts = service.call(Service.counts)
        assert counts["pairs"] == traffic.pairs, (counts, traffic.pairs)
        assert not counts["gaps"], counts
        bench = Bench(service.call(Service.port), service, engines, sources, seconds)
        for length in lengths:
            prompts = _prompts(traffic, length)
            for form in FORMS:
                bodies = Path(folder) / "bodies"
                generator.write_bodies(bodies, map(form.body, prompts))
                bench.asked = CHECKED
                many = form is OCTETS and length == LENGTHS[1] and (sources, pairs) == FLEETS[-1]
                for count in (*connections, *([MANY] if many else [])):
                    row = _cell(bench, form, prompts[:CHECKED], bodies, count, rounds)
                    _judge(result, row, form, length, count, f"{sources} sources, {pairs:,} pairs")
                    print(f"  {sources} sources, {pairs:,} pairs: {row}", flush=True)
                    yield row


def _prompts(traffic: Traffic, length: int) -> list[Prompt]:
    """Such as the issue asks for."""
    prompts = traffic.prompts(length, PROMPTS[length])
    shares = overlap(prompts)
    assert shares.blocks_on_two >= 0.5, shares
    assert 0.09 <= shares.prompts_nowhere <= 0.11, shares
    return prompts


def _cell(bench: Bench, form: Form, sample: Sequence[Prompt], bodies: Path, connections: int, rounds: int) -> Row:
    size = bench.check(form, sample)
    question = Question(form.target, bodies, form.content_type)
    nothing = question._replace(target=f"{NULL_PATH}?size={round(size)}")
    real: list[Run] = []
    null: list[Run] = []
    arriving: list[Run] = []
    for _ in range(rounds):
        real.append(bench.look_up(question, connections))
        null.append(bench.ask(nothing, connections))
        bench.engines.call(Publisher.start_live, ARRIVING_BLOCKS_PER_S)
        try:
            arriving.append(bench.look_up(question, connections))
        finally:
            sent = bench.engines.call(Publisher.stop_live)
        assert sent.blocks / sent.seconds > ARRIVING_BLOCKS_PER_S * 0.9, f"only {sent} arrived"
    bench.service.call(Service.applied, bench.engines.call(Publisher.last))
    bench.check(form, sample)
    return {
        "tokens": len(sample[0].tokens),
        "form": form.name,
        "conns": connections,
        "lookups/s": round(_rate(real)),
        "p50 us": _middle([run.load.p50_us for run in real]),
        "p99 us": _middle([run.load.p99_us for run in real]),
        "CPU us": _middle([run.cpu_us for run in real]),
        "null/s": round(_rate(null)),
        "null CPU us": _middle([run.cpu_us for run in null]),
        "share": round(_rate(real) / _rate(null), 3),
        "CPU share": round(median([run.cpu_us for run in null]) / median([run.cpu_us for run in real]), 3),
        "with events: lookups/s": round(_rate(arriving)),
        "p50 us ": _middle([run.load.p50_us for run in arriving]),
        "p99 us ": _middle([run.load.p99_us for run in arriving]),
        "p99 factor": round(_p99(arriving) / _p99(real), 2),
        "answer bytes": round(size),
        "null busy": round(min(run.busy for run in null), 2),
    }


def _rate(runs: Sequence[Run]) -> float:
    return sum(run.load.requests for run in runs) / sum(run.load.seconds for run in runs)


def _p99(runs: Sequence[Run]) -> float:
    return median([run.load.p99_us for run in runs])


def _middle(values: Sequence[float]) -> float:
    return round(median(values), 1)


def _judge(result: Result, row: Row, form: Form, length: int, connections: int, fleet: str) -> None:
    if connections != JUDGED:
        return
    limit = SHARES.get((form.name, length))
    if limit is not None:
        # Where the service's core is not busy with the null route, the rate says how fast something else is.
        column = "share" if float(row["null busy"] or 0) >= BUSY_MIN else "CPU share"
        name = f"lookups, {length} tokens, {form.name}, {fleet}: share of the null route"
        result.targets.append(Target(name, float(row[column] or 0), limit))
    if length == LENGTHS[1]:
        name = f"lookups, {length} tokens, {form.name}, {fleet}: p99 with events arriving, times idle p99"
        result.targets.append(Target(name, float(row["p99 factor"] or 0), P99_FACTOR_MAX, at_least=False))
