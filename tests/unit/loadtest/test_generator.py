"""The generators, against the real service on loopback."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from loadtest import generator
from loadtest.filling import fill
from loadtest.generator import GeneratorFailed, Load, Question
from loadtest.lookups import Bench
from loadtest.null_route import NULL_PATH
from loadtest.processes import Child, ChildFailed
from loadtest.publisher import Publisher
from loadtest.questions import FORMS, OCTETS
from loadtest.service import Service
from loadtest.traffic import Traffic

SOURCES = 2
PAIRS = 24_000


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """A small fleet behind HTTP, filled through real sockets."""
    with Child(Publisher, SOURCES) as engines, Child(Service, http=True) as service:
        service.call(Service.connect, engines.call(Publisher.endpoints))
        engines.call(Publisher.wait_subscribed)
        fill(engines, service, SOURCES, PAIRS)
        yield Bench(service.call(Service.port), service, engines, SOURCES, 1.0)


@pytest.fixture(scope="module")
def traffic() -> Traffic:
    """The same fleet's questions."""
    return Traffic(SOURCES, PAIRS)


def test_answers_are_right_over_http_also_while_events_arrive(bench: Bench, traffic: Traffic) -> None:
    """In all forms; nothing of the events was lost."""
    prompts = traffic.prompts(512, 20)
    bench.engines.call(Publisher.start_live, 5_000)
    for form in FORMS:
        assert bench.check(form, prompts) > 100
    assert bench.engines.call(Publisher.stop_live).blocks > 0
    bench.service.call(Service.applied, bench.engines.call(Publisher.last))
    assert 0 == bench.service.call(Service.counts)["gaps"]


def test_a_wrong_answer_stops_the_measurement(bench: Bench, traffic: Traffic) -> None:
    """A prompt that expects more than the fleet holds."""
    prompt = next(each for each in traffic.prompts(512, 20) if each.held)
    prompt.held[0] = 32
    with pytest.raises(AssertionError, match="matched"):
        bench.check(OCTETS, [prompt])


def test_the_null_route_is_loaded_as_the_lookups_are(bench: Bench, traffic: Traffic, tmp_path: Path) -> None:
    """Both take the same file, from where the last run ended."""
    bodies = tmp_path / "bodies"
    generator.write_bodies(bodies, [OCTETS.body(prompt) for prompt in traffic.prompts(512, 50)])
    question = Question(OCTETS.target, bodies, OCTETS.content_type)

    first = bench.look_up(question, 2)
    assert first.load.requests == bench.asked
    assert bench.ask(question._replace(target=f"{NULL_PATH}?size=300"), 2).load.requests > 0
    assert first.load.p50_us <= first.load.p99_us
    assert first.cpu_us > 0


def test_a_refused_question_is_no_result(bench: Bench, tmp_path: Path) -> None:
    """Rates of errors are no rates of lookups."""
    bodies = tmp_path / "bodies"
    generator.write_bodies(bodies, [b"{"])
    with pytest.raises(GeneratorFailed, match="errors"):
        bench.ask(Question("/v1/lookup", bodies, "application/json"), 1)


def test_the_own_client_speaks_as_wrk_does(bench: Bench, traffic: Traffic, tmp_path: Path) -> None:
    """It stands in where wrk is not installed."""
    bodies = tmp_path / "bodies"
    generator.write_bodies(bodies, [OCTETS.body(prompt) for prompt in traffic.prompts(512, 5)])
    assert 5 == len(generator.read_bodies(bodies))
    question = Question(OCTETS.target, bodies, OCTETS.content_type, skip=7)
    words = (sys.executable, "-m", "loadtest.client", str(bench.port), "3", "0.5", *question.words)
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    load = msgspec.json.decode(done.stdout.removeprefix("RESULT "), type=Load)

    assert load.requests > 0
    assert 0 == load.errors
    assert 0 < load.p50_us <= load.p99_us


def test_what_fails_in_a_child_is_raised_here() -> None:
    """With its traceback; the child goes on."""
    with Child(Publisher, 1) as engines:
        with pytest.raises(ChildFailed, match="nothing was sent in the background"):
            engines.call(Publisher.stop_live)
        assert 1 == len(engines.call(Publisher.endpoints))
