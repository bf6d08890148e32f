"""The staleness report: every number of it made to happen, and what only looking back can tell."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from indexer.reports.staleness import NO_REMOVALS_FROM, SILENT_S, STORM, Staleness
from tests.support.core import Core, Speaker
from tests.support.core_events import CLEARED, prompt, removed, stored
from tests.support.steps import done

if TYPE_CHECKING:
    from schemas.reports import StalenessReport, StalenessRow


@dataclass
class Watch:
    """A core whose sources are sampled each second of a clock that the test moves."""

    core: Core
    staleness: Staleness

    def seconds(self, count: int) -> None:
        """So many pass; the connections are up."""
        for _ in range(count):
            self.core.clock.at += 1.0
            self.core.alive()
            done(self.staleness.sample())

    def report(self, **filters: str) -> StalenessReport:
        whole: dict[str, Any] = {"pod": None, "model": None, "state": None, "tenant": None, **filters}
        return done(self.staleness.report(**whole))

    def row(self, pod: str = "pod") -> StalenessRow:
        (found,) = self.report(pod=pod).sources
        return found


@pytest.fixture
def watch() -> Watch:
    """In memory mode."""
    core = Core()
    staleness = Staleness(
        core.registry,
        core.lookup.view,
        core.clock,
        owner=lambda _: None,
        follows=lambda _: False,
        journal_age_s=lambda _: None,
        expected_s=core.routed.ttl_s,
    )
    return Watch(core, staleness)


@pytest.fixture
def engine(watch: Watch) -> Speaker:
    """One that has announced a block."""
    speaker = watch.core.engine()
    speaker.say(stored([1], prompt(1)))
    return speaker


def test_a_source_as_it_is_now(watch: Watch, engine: Speaker) -> None:
    """State, position and holdings."""
    row = watch.row()

    assert ("pod", 0, "live", "exact", 0, None) == (row.pod, row.dp_rank, row.state, row.bound, row.sequence, row.why)
    assert f"{engine.source.facts.generation:x}" == row.generation
    assert 1 == row.copies
    assert (None, None, 10_000) == (row.owner, row.journal_lag_ms, row.expected_for_ms)
    assert {"live": 1} == watch.report().states


def test_since_when_it_is_what_it_is(watch: Watch, engine: Speaker) -> None:
    """From where a look, one a second, saw another state, not from where its life began; silent: since it was up."""

    def ago_s() -> float:
        report = watch.report()
        told = report.sources[0].since
        assert told is not None
        return (datetime.fromisoformat(report.at) - datetime.fromisoformat(told)).total_seconds()

    watch.seconds(100)
    engine.lose()
    engine.gap()
    watch.seconds(7)
    assert ("suspect", 6.0) == (watch.row().state, ago_s())
    engine.say(CLEARED)
    watch.seconds(5)
    assert ("live", 4.0) == (watch.row().state, ago_s())
    watch.core.clock.at += 50.0
    assert ("stale", 50.0) == (watch.row().state, ago_s())


def test_ages_now_and_over_time(watch: Watch, engine: Speaker) -> None:
    """An engine that speaks once a minute, seen for an hour."""
    for _ in range(60):
        engine.say()
        watch.seconds(60)
    told = watch.row().lag_ms

    assert told.now is not None
    assert 60_000 <= told.now <= 60_100
    for window in (told.minute, told.ten_minutes, told.hour):
        assert window.p50 is not None
        assert window.p99 is not None
        assert 29_000 <= window.p50 <= 33_000
        assert 59_000 <= window.p99 <= 64_000
    assert told == watch.row().event_age_ms


def test_the_last_minute_is_not_the_last_hour(watch: Watch, engine: Speaker) -> None:
    """A silence shows in the short window at once, and fades from it first."""
    for _ in range(600):
        engine.say()
        watch.seconds(1)
    watch.seconds(120)
    ages = watch.row().event_age_ms

    assert (ages.minute.p50 or 0) > 60_000
    assert (ages.hour.p50 or 0) < 2_000
    for _ in range(90):
        engine.say()
        watch.seconds(1)
    assert (watch.row().event_age_ms.minute.p99 or 0) < 2_000


def test_gaps_healed_and_not(watch: Watch, engine: Speaker) -> None:
    """As the collector counts them, and what came of them."""
    engine.sink.count("gaps")
    engine.sink.count("gaps")
    engine.lose()
    engine.lose()
    engine.gap()
    gaps = watch.row().gaps

    assert (2, 1, 1, 2) == (gaps.noticed, gaps.healed, gaps.unhealed, gaps.batches_lost)


def test_a_gap_under_way_is_neither(watch: Watch, engine: Speaker) -> None:
    """While the replay is asked."""
    engine.sink.count("gaps")
    engine.sink.syncing(active=True)
    gaps = watch.row().gaps

    assert (1, 0, 0) == (gaps.noticed, gaps.healed, gaps.unhealed)


@pytest.mark.parametrize("result", ["ok", "partial", "failed", "timeout", "foreign"])
def test_replays_by_result(watch: Watch, engine: Speaker, result: str) -> None:
    """Each under its own name."""
    engine.sink.count(f"replays_{result}", 3)  # type: ignore[arg-type]

    assert {result: 3} == {name: n for name, n in msgspec.to_builtins(watch.row().replays).items() if n}


def test_what_the_wire_does(watch: Watch, engine: Speaker) -> None:
    """Restarts, reconnects, duplicates."""
    engine.restart()
    engine.sink.count("reconnects", 2)
    engine.sink.count("duplicates", 4)
    row = watch.row()

    assert (1, 2, 4) == (row.restarts, row.reconnects, row.duplicates)


def test_what_cannot_be_used(watch: Watch, engine: Speaker) -> None:
    """Kinds that are not known, batches and events that cannot be read, removals of what is not held."""
    engine.say({"type": "BlockTeleported"})
    engine.say_bytes(b"\xc1")
    engine.say({"type": "BlockStored", "block_hashes": "no"})
    engine.say(removed(77))
    row = watch.row()

    assert (1, 2, 1) == (row.events_unknown, row.decode_errors, row.removals_unknown)


def test_orphans_parked_and_healed(watch: Watch, engine: Speaker) -> None:
    """A child before its parent."""
    tokens = prompt(3)
    engine.say(stored([33], tokens[8:], parent=32))
    orphans = watch.row().orphans
    assert (1, 0, 1) == (orphans.parked, orphans.healed, orphans.waiting)

    engine.say(stored([31, 32], tokens[:8]))
    orphans = watch.row().orphans
    assert (1, 1, 0, 0) == (orphans.parked, orphans.healed, orphans.waiting, orphans.refused)

    engine.say(stored([44], prompt(1, 99), parent=43))
    engine.say(removed(44))
    orphans = watch.row().orphans
    assert (2, 1, 1, 0) == (orphans.parked, orphans.healed, orphans.expired, orphans.waiting)


def test_clears_and_storms_of_them(watch: Watch, engine: Speaker) -> None:
    """Many within a minute are worth a remark, and then no more."""
    watch.seconds(30)
    for _ in range(STORM):
        engine.say(CLEARED)
        watch.seconds(2)
    row = watch.row()

    clears = row.clears
    assert (STORM, STORM, STORM, STORM) == (clears.engine, clears.minute, clears.ten_minutes, clears.hour)
    assert any("clear storm" in warning for warning in row.warnings)
    watch.seconds(90)
    row = watch.row()
    assert (0, STORM) == (row.clears.minute, row.clears.ten_minutes)
    assert not any("clear storm" in warning for warning in row.warnings)


def test_tiers_are_told_apart(watch: Watch, engine: Speaker) -> None:
    """Events, blocks, what is held; only those that were named."""
    engine.say(stored([2, 3], prompt(2, 50)), stored([2], prompt(1, 50), medium="CPU"), removed(3))
    watch.seconds(3)
    tiers = watch.row().tiers

    assert {"gpu", "cpu"} == set(tiers)
    gpu, cpu = tiers["gpu"], tiers["cpu"]
    assert (2, 3, 1, 1, 2) == (
        gpu.stored_events,
        gpu.stored_blocks,
        gpu.removed_events,
        gpu.removed_blocks,
        gpu.blocks,
    )
    assert (1, 1, 0, 0, 1) == (
        cpu.stored_events,
        cpu.stored_blocks,
        cpu.removed_events,
        cpu.removed_blocks,
        cpu.blocks,
    )
    assert 3_000 == cpu.event_age_ms


def test_a_tier_that_went_silent(watch: Watch, engine: Speaker) -> None:
    """It holds blocks, and only the others are spoken of: its removals may be missing."""
    engine.say(stored([2], prompt(1, 50), medium="CPU"))
    watch.core.clock.at += SILENT_S - 1.0
    engine.say(stored([3], prompt(1, 60)))
    assert not any("silent" in warning for warning in watch.row().warnings)

    watch.core.clock.at += 1.0
    engine.say(stored([4], prompt(1, 70)))
    assert ["tier cpu silent: 1 blocks, and no event of it for 10 minutes while others came"] == [
        warning for warning in watch.row().warnings if "silent" in warning
    ]


def test_a_tier_without_removals(watch: Watch, engine: Speaker) -> None:
    """From so many blocks on; the first removal ends it."""
    hashes = range(10_000, 10_000 + NO_REMOVALS_FROM)
    engine.say(stored(hashes, prompt(NO_REMOVALS_FROM, 9), medium="CPU"))
    assert any("no removals seen in tier cpu" in warning for warning in watch.row().warnings)

    engine.say(removed(10_000, medium="CPU"))
    assert not any("no removals seen" in warning for warning in watch.row().warnings)


@pytest.mark.parametrize(
    ("told", "meaning"),
    [
        (NO_REMOVALS_FROM + 1, None),
        (NO_REMOVALS_FROM, f"it is full by its blocks_total of {NO_REMOVALS_FROM}: they are not announced, or"),
        (None, "it is not full yet, or they are not announced: blocks_total would tell"),
    ],
)
def test_gpu_memory_without_removals_need_not_be_full(watch: Watch, told: int | None, meaning: str | None) -> None:
    """Blocks of the engine's earlier lives were not to be taken back: only what this one holds counts."""
    engine = watch.core.engine(model="m", blocks_total=told)
    half = NO_REMOVALS_FROM // 2
    for first in (10_000, 20_000):
        engine.say(CLEARED, stored(range(first, first + half), prompt(half, first)))
    assert not any("no removals seen" in warning for warning in watch.row().warnings)

    engine.say(stored(range(30_000, 30_000 + NO_REMOVALS_FROM - half), prompt(NO_REMOVALS_FROM - half, 3)))
    warned = [warning for warning in watch.row().warnings if "no removals seen in tier gpu" in warning]
    assert meaning is None if not warned else meaning is not None and meaning in warned[0]
    assert not any("entry_ttl_s" in warning for warning in warned)


def test_filters_and_tenants(watch: Watch) -> None:
    """Others are not there for a tenant."""
    for pod, tenant, model in (("a", "one", "m"), ("b", "two", "m"), ("c", "two", "n")):
        watch.core.engine(pod, tenant=tenant, model=model)

    def pods(**filters: str) -> list[str]:
        return [row.pod for row in watch.report(**filters).sources]

    assert ["a", "b", "c"] == pods()
    assert ["b", "c"] == pods(tenant="two")
    assert ["b"] == pods(tenant="two", model="m")
    assert [] == pods(tenant="two", pod="a")
    assert ["a", "b", "c"] == pods(state="new")
    assert [] == pods(state="live")


def test_a_source_that_comes_again_begins_anew(watch: Watch, engine: Speaker) -> None:
    """What was seen of one that has left goes with it."""
    watch.seconds(10)
    watch.core.remove("pod")
    done(watch.staleness.sample())
    watch.core.engine()

    assert watch.row().lag_ms.hour.p50 is None
    assert engine.source is not watch.core.sinks[next(iter(watch.core.sinks))].source
