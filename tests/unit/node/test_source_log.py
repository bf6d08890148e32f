"""What stands in the log of sources: each change once, and never more than an operator can read."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from indexer.log_lines import about
from indexer.model import Descriptor, RawBatch, SourceId
from indexer.node import LOST_EVERY_S, Node
from indexer.settings.sections import Settings
from indexer.source_log import LINES_A_SECOND, REPEATED_AFTER_S, named, names
from tests.support.collecting import run_on, until
from tests.support.core import ManualClock
from tests.support.core_events import payload, prompt, stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from indexer.ingest import SourceSink

MANY = 1_000
Line = tuple[str, str]


class Watched:
    """A node that nobody runs, its clock, and what it logged of sources since the last look."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.clock = ManualClock(1.0)
        self.node = Node(Settings(), self.clock)
        self._caplog = caplog

    def sink(self, pod: str, *, port: int = 1, origin: str = "api", blocks_total: int | None = 9) -> SourceSink:
        descriptor = Descriptor(
            pod=pod,
            endpoint=f"tcp://127.0.0.1:{port}",
            origin=origin,
            blocks_total=blocks_total,  # type: ignore[arg-type]
        )
        asyncio.run(self.node.add_source(descriptor))
        return self.node.roster._sinks[descriptor.id]

    def lines(self) -> list[Line]:
        """A second later: level and text."""
        self.clock.at += 1.0
        for _ in self.node.source_log.look():
            pass
        said = [(r.levelname, r.getMessage()) for r in self._caplog.records if r.name == "kvindexer.sources"]
        self._caplog.clear()
        return said


@pytest.fixture
def watched(caplog: pytest.LogCaptureFixture) -> Iterator[Watched]:
    """A node whose log is read."""
    with caplog.at_level(logging.INFO), _ended(Watched(caplog)) as of:
        yield of


@contextmanager
def _ended(of: Watched) -> Iterator[Watched]:
    stop = asyncio.Event()
    try:
        yield of
    finally:
        stop.set()
        asyncio.run(of.node.run(stop))


def hear(sink: SourceSink, sequence: int = 0) -> None:
    """It is connected and stores a block."""
    sink.alive(connected=True)
    sink.apply(RawBatch(b"", sequence, payload(stored([sequence + 1], prompt(1, sequence)))))


def test_what_a_collector_does_is_under_another_name(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    """It has nothing to do with sources."""
    watched.node.source_log.say(about("traces_failing"), "no answer")

    assert [("kvindexer.telemetry", "no answer")] == [(line.name, line.getMessage()) for line in caplog.records]


def test_a_life_is_told_line_by_line(watched: Watched) -> None:
    """Coming, starting, restarting, being in doubt, going: each once, and nothing where nothing happens."""
    sink = watched.sink("a")
    assert [("INFO", "source a: registered by a caller, events at tcp://127.0.0.1:1")] == watched.lines()
    hear(sink)
    assert [("INFO", "source a: live, bound exact")] == watched.lines()
    assert [] == watched.lines()
    before = sink.source.facts.generation
    sink.restart("sequence_went_back")
    hear(sink)
    after = sink.source.facts.generation
    assert [
        ("INFO", f"source a: the engine restarted (sequence_went_back), generation {after:x} after {before:x}")
    ] == watched.lines()
    sink.gap(1, 2)
    sink.alive(connected=True)
    why = "something claimed may be false: a gap: messages were lost and could not be fetched again"
    assert [("WARNING", f"source a: suspect, bound estimate ({why})")] == watched.lines()
    watched.clock.at += 100.0
    sink.alive(connected=False, silent_s=100.0)
    assert ("WARNING", "source a: down, bound estimate (the connection is lost)") in watched.lines()
    asyncio.run(watched.node.remove_source("a", None))
    assert [("INFO", "source a: removed by a caller")] == watched.lines()


def test_one_without_an_endpoint_is_told_so(watched: Watched) -> None:
    """Its engine sends nothing, or to an address of ours."""
    asyncio.run(watched.node.add_source(Descriptor(pod="b")))

    assert ("INFO", "source b: registered by a caller, no endpoint") in watched.lines()


@pytest.mark.parametrize("told", [{}, {"by": "token ops"}])
def test_commands_of_callers_are_told(watched: Watched, told: dict[str, str]) -> None:
    """One line a command, with who gave it, however many ranks it reaches; a list that changes nothing is none."""
    by = told.get("by", "a caller")
    for rank in (0, 1):
        added = Descriptor(pod="a", dp_rank=rank, endpoint=f"tcp://127.0.0.1:{rank + 1}", blocks_total=9)
        asyncio.run(watched.node.add_source(added, **told))
    assert [
        ("INFO", f"source {named(key)}: registered by {by}, events at tcp://127.0.0.1:{rank + 1}")
        for rank, key in enumerate([SourceId("a", 0), SourceId("a", 1)])
    ] == watched.lines()
    asyncio.run(watched.node.cordon_source("a", None, cordoned=True, **told))
    asyncio.run(watched.node.cordon_source("a", None, cordoned=False, **told))
    asyncio.run(watched.node.clear_source("a", None, **told))
    asyncio.run(watched.node.remove_source("a", 1, **told))
    key = names([SourceId("a", 0), SourceId("a", 1)])
    said = [("INFO", f"source {key}: {what} by {by}") for what in ("cordoned", "uncordoned", "cleared")]
    assert [*said, ("INFO", f"source {named(SourceId('a', 1))}: removed by {by}")] == watched.lines()

    wanted = [Descriptor(pod=f"p{n}", endpoint=f"tcp://127.0.0.1:{n + 2}", blocks_total=9) for n in range(5)]
    for _ in range(2):
        asyncio.run(watched.node.replace_api_sources(wanted, **told))  # type: ignore[arg-type]
    listed = "5 added or changed (p0, p1, p2 and 2 more), 1 removed (a)"
    assert [("INFO", f"list of sources by {by}: {listed}")] == watched.lines()


def test_refusals_for_who_asks_are_one_line_a_second(caplog: pytest.LogCaptureFixture) -> None:
    """However many: counted by status and code, and none is left out."""
    codes = [(401, "token.missing"), (401, "token.unknown"), (403, "scope.missing")]

    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "kvindexer.access"]

    async def body() -> None:
        clock, stop = ManualClock(1.0), asyncio.Event()
        node = Node(Settings(), clock)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(node.run(stop))
            for second in range(3):
                for status, code in codes * 50:
                    node.access_refused(status, code)
                clock.at += LOST_EVERY_S
                await until(lambda second=second: len(told()) > second, "the line")
            stop.set()
        each = ", ".join(f"{status} {code} (50)" for status, code in codes)
        assert [f"requests refused for who asked: {each}"] * 3 == told()

    run_on("asyncio", body())


def test_a_warning_is_told_when_it_appears(watched: Watched) -> None:
    """Not again while it stays or only its number changes, nor where it flickers; again when it says something else."""
    sink = watched.sink("a")
    watched.lines()
    sink.warn("never connected", key="silent")
    assert [("WARNING", "source a: never connected")] == watched.lines()
    for _ in range(3):
        sink.warn(None, key="silent")
        assert [] == watched.lines()
        sink.warn("never connected", key="silent")
        assert [] == watched.lines()
    sink.warn("never delivered 1", key="silent")
    assert [("WARNING", "source a: never delivered 1")] == watched.lines()
    sink.warn("never delivered 2", key="silent")
    assert [] == watched.lines()
    sink.warn(None, key="silent")
    watched.lines()
    watched.clock.at += REPEATED_AFTER_S
    sink.warn("never delivered 2", key="silent")
    assert [("WARNING", "source a: never delivered 2")] == watched.lines()


def test_a_large_fleet_does_not_flood_the_log(watched: Watched) -> None:
    """A bound on lines a second, then their number; what all have in common is one line."""
    sinks = [watched.sink(f"pod-{n}", port=n + 1, blocks_total=None) for n in range(MANY)]
    said = watched.lines()
    assert LINES_A_SECOND == sum("registered" in text for _, text in said)
    assert ("INFO", f"{MANY - LINES_A_SECOND} more such lines were left out: at most {LINES_A_SECOND} a second") in said
    (warning,) = [text for level, text in said if level == "WARNING"]
    assert warning.startswith(f"source pod-0, pod-1, pod-2 and {MANY - 3} more: capacity unknown")

    for sink in sinks:
        hear(sink)
        sink.gap(1, 1)
        sink.alive(connected=True)
    assert LINES_A_SECOND == len(watched.lines())
    assert [
        ("WARNING", f"{MANY - LINES_A_SECOND} more such lines were left out: at most {LINES_A_SECOND} a second")
    ] == watched.lines()


def test_a_name_cannot_write_lines_of_its_own(watched: Watched) -> None:
    """A publisher chooses its topic: control characters are written out, and long names cut."""
    watched.node.source_for_topic("a\nsource b: live", None, 0)
    watched.node.source_for_topic("x" * 500, None, 0)
    said = [text for _, text in watched.lines() if "appeared" in text]

    assert [r"source a\nsource b: live: appeared by its topic", f"source {'x' * 99}…: appeared by its topic"] == said
