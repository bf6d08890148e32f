"""Recorded streams of a real engine through a service on Redis, asked at a replica that only follows.

The service that collects is killed on the way, and the engines go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from api.demo.publisher import Wire
from indexer.store.layout import is_without_ttl
from tests.support.core_traces import NAMES, Recording, recording
from tests.support.durable import Service, Stage, staged
from tests.support.redis_servers import lasting_keys, start_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KILLS = 5
WITHOUT_CLEARS = ("basic", "basic-sameseed", "eviction")
NAMED = {"redis__replica": "collecting"}
"""It takes the place of a process of its name at once; another waits for the lease to end."""
SHORT_MEMORY = Wire(buffer_steps=160)
"""Engines that replay what is published between two probes, and not their whole history."""


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    """A server of the test's own, on which nothing is left for ever but what is listed."""
    store = start_store("valkey", tmp_path)
    try:
        yield store.url
        assert [] == lasting_keys(store, is_without_ttl)
    finally:
        store.close()


def wounds(recorded: Recording) -> dict[int, int]:
    """Where the service is killed, and where it starts again: five times, and once each at most in 40 messages.

    No engine restarts meanwhile: it could not be back so fast.
    """
    messages = recorded.messages
    births = [number for number, message in enumerate(messages) if message.life and not message.sequence]
    wounded: dict[int, int] = {}
    for turn in range(1, KILLS + 1):
        at = turn * len(messages) // (KILLS + 1)
        while any(at <= birth < at + 40 for birth in births):
            at += 1
        wounded[at] = at + 30
    return wounded


def play_on(stage: Stage, until: int, wounded: dict[int, int]) -> None:
    """Publish up to there. The service is killed on the way with whatever it is at, and misses what comes next."""
    while (at := next((at for at in wounded if stage.position <= at < until), None)) is not None:
        stage.play(at)
        stage.kill()
        stage.play(min(wounded.pop(at), until))
        stage.start_again()
    if stage.position < until:
        stage.play(until)


def held_at_the_end(stage: Stage) -> list[tuple[int, int]]:
    """By pod, blocks and copies, as the collecting service counts them."""
    sources = stage.collecting.now.sources()
    return [(sources[pod]["blocks"]["gpu"], sources[pod]["copies"]) for pod in stage.pods]


def final_truth(recorded: Recording) -> list[tuple[int, int]]:
    """The same as the engines count them."""
    assert recorded.truth.final is not None
    return [(truth.distinct, truth.copies) for truth in recorded.truth.final]


@pytest.mark.parametrize("name", NAMES)
def test_every_answer_of_a_follower_is_the_engines_own(redis_url: str, name: str) -> None:
    """At every probe, for every pod: matched = chain, reusable = cached, live and exact; at the end the same blocks.

    A replica that starts when all is over loads what the other one followed.
    """
    recorded = recording(name)
    faults: list[str] = []
    with staged(redis_url, recorded, replay=True) as stage:
        for probe in recorded.probes:
            if probe.n > stage.position or not stage.position:
                stage.play(probe.n)
                stage.wait_applied(probe)
            faults += stage.compare(probe).faults
        held = held_at_the_end(stage)
        with Service(redis_url, server__roles="lookup") as late:
            stage.asked = late
            stage.wait_applied(recorded.probes[-1])
            faults += stage.compare(recorded.probes[-1]).faults

    assert [] == faults
    assert stage.position == len(recorded.messages)
    assert final_truth(recorded) == held


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in {"clear", "eviction"} else pytest.mark.slow) for name in NAMES]
)
def test_a_service_that_dies_five_times_misses_nothing_where_engines_replay(redis_url: str, name: str) -> None:
    """Every answer is right and exact, and no life of an engine began but its own."""
    recorded = recording(name)
    wounded = wounds(recorded)
    faults: list[str] = []
    generations: dict[str, str] = {}
    with staged(redis_url, recorded, replay=True, wire=SHORT_MEMORY, **NAMED) as stage:
        for probe in recorded.probes:
            if probe.n > stage.position or not stage.position:
                play_on(stage, probe.n, wounded)
                stage.wait_applied(probe)
            faults += stage.compare(probe).faults
            generations = generations or stage.generations()
        assert name not in WITHOUT_CLEARS or generations == stage.generations()
        held = held_at_the_end(stage)

    assert [] == faults
    assert final_truth(recorded) == held
    assert not wounded, "it died as often as was meant"


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("clear", NAMED),
        *(pytest.param(name, NAMED, marks=pytest.mark.slow) for name in NAMES if name != "clear"),
        *(pytest.param(name, {"redis__lease_s": "6"}, marks=pytest.mark.slow) for name in ("basic", "clear")),
    ],
    ids=["clear", *(name for name in NAMES if name != "clear"), "basic-away-for-long", "clear-away-for-long"],
)
def test_what_a_service_missed_for_good_is_never_called_exact(
    redis_url: str, name: str, settings: dict[str, str]
) -> None:
    """Engines that do not replay: all is right until the first death, and from then on what is wrong is marked.

    Away for long, as where the next process has another name: then what is known of an engine is given up at a jump.
    """
    recorded = recording(name)
    wounded = wounds(recorded)
    first = min(wounded)
    before: list[str] = []
    wrong_exact: list[str] = []
    marked = 0
    with staged(redis_url, recorded, replay=False, **settings) as stage:
        for probe in recorded.probes:
            if probe.n > stage.position or not stage.position:
                play_on(stage, probe.n, wounded)
                stage.wait_applied(probe, healed=not wounded_yet(stage, first))
            found = stage.compare(probe)
            wrong_exact += found.wrong_exact
            if wounded_yet(stage, first):
                marked += len(found.marked)
            else:
                before += found.faults

    assert [] == before
    assert [] == wrong_exact
    assert marked, "something was missed"
    assert not wounded, "it died as often as was meant"


def wounded_yet(stage: Stage, first: int) -> bool:
    """Whether the service has died."""
    return stage.position > first


@pytest.mark.parametrize("replay", [True, False], ids=["replay", "no-replay"])
def test_a_service_that_stops_in_order_goes_on_where_it_stood(redis_url: str, replay: bool) -> None:
    """All that was applied is stored by then, and nothing was published meanwhile: nothing is asked of the engines."""
    recorded = recording("basic")
    middle = recorded.probes[len(recorded.probes) // 2].n
    with staged(redis_url, recorded, replay=replay, **NAMED) as stage:
        stage.play(middle)
        stage.wait_applied(next(probe for probe in recorded.probes if probe.n == middle))
        before = stage.collecting.now.sources()
        stage.collecting.stop()
        stage.collecting.start()
        stage.wait_subscribed()
        stage.collecting.now.wait_for(
            lambda: all(source["sequence"] is not None for source in stage.collecting.now.sources().values()),
            "the state of before",
        )
        after = stage.collecting.now.sources()
        for probe in recorded.probes:
            if probe.n > stage.position:
                stage.play(probe.n)
                stage.wait_applied(probe, healed=replay)

    for fact in ("generation", "sequence", "blocks", "copies"):
        assert [after[pod][fact] for pod in stage.pods] == [before[pod][fact] for pod in stage.pods], fact
