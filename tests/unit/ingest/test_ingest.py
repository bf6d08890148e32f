"""The write side as its callers see it: sinks, cursors, proofs, counters, housekeeping in slices."""

from __future__ import annotations

import logging

import pytest

from indexer.index.lane import SHARDS
from indexer.index.plan import Presence
from indexer.index.removals import Why
from indexer.ingest import Ingest
from indexer.model import Descriptor, RawBatch, Tier
from tests.support.core import Core, ManualClock, check_mirror
from tests.support.core_events import CLEARED, TS, payload, placeholder, prompt, removed, stored


def test_a_sink_belongs_to_one_registration() -> None:
    """It names it, and its cursor is the last batch applied in this generation."""
    core = Core()
    engine = core.engine("pod", dp_rank=2, model="m")

    assert (2, True, None) == (engine.sink.descriptor.dp_rank, engine.sink.open, engine.sink.cursor)
    engine.say()
    assert 0 == engine.sink.cursor
    engine.restart()
    assert engine.sink.cursor is None
    core.remove("pod", 2)
    assert not engine.sink.open


def test_what_was_applied_is_visible_when_apply_returns() -> None:
    """Every batch, in both directions."""
    core = Core()
    engine = core.engine()
    for number in range(1, 40):
        engine.say(stored([number], [number] * 4))
        assert 4 == core.ask([number] * 4)["pod"].matched_tokens
        engine.say(removed(number))
        assert 0 == core.ask([number] * 4)["pod"].matched_tokens


def test_without_readers() -> None:
    """The write side stands alone: nobody need listen to what it touches."""
    core = Core()
    ingest = Ingest(core.mirror, ManualClock())
    sink = ingest.open_source(Descriptor(pod="alone"))
    sink.apply(RawBatch(b"", 0, payload(stored([1], prompt(1)))))
    sink.restart("probe_differs")

    assert 1 == sink.source.counters["restarts.probe_differs"]


def test_changes_may_go_elsewhere_too() -> None:
    """A store beside the mirror is told the same changes, in order."""
    core = Core()
    told: list[tuple[str, int]] = []

    class Recorder(Presence):
        def add(self, slot: int, lane: int, hashes: list[int], parents: list[int]) -> list[int]:
            told.append(("add", len(hashes)))
            return core.mirror.add(slot, lane, hashes, parents)

        def remove(self, slot: int, lane: int, hashes: list[int], why: Why) -> None:
            told.append(("remove", len(hashes)))
            core.mirror.remove(slot, lane, hashes, why)

    ingest = Ingest(core.mirror, core.clock, presence=Recorder())
    sink = ingest.open_source(Descriptor(pod="pod"))
    events = [stored([1, 2, 3], prompt(3)), stored([3], prompt(1, 8), parent=2), removed(3), removed(3), removed(2)]
    sink.apply(RawBatch(b"", 0, payload(*events)))

    assert [("add", 3), ("remove", 2)] == told
    assert 1 == core.mirror.table.live


# -- ages and proofs ---------------------------------------------------------------------------------------------------


def test_lag_is_the_age_of_the_newest_proof_that_nothing_is_missing() -> None:
    """A message in order, or an idle probe; `event_age_ms` is the message alone."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1], prompt(1)))
    core.clock.at += 2.0
    before = core.ask(prompt(1))["pod"]
    engine.sink.proved()
    core.clock.at += 1.0
    after = core.ask(prompt(1))["pod"]

    assert (2_000, 2_000) == (about(before.lag_ms), about(before.event_age_ms))
    assert (1_000, 3_000) == (about(after.lag_ms), about(after.event_age_ms))


def about(age_ms: int | None) -> int:
    """Ages are those of the end of a moment: never shown younger than they are, nor much older."""
    assert age_ms is not None
    return age_ms // 100 * 100


def test_a_source_that_never_spoke_has_no_ages() -> None:
    """Nor after a restart, whose life has not spoken yet; the old message is no proof."""
    core = Core()
    engine = core.engine()
    assert (None, None) == ages(core)
    engine.say(stored([1], prompt(1)))
    engine.restart()
    assert core.ask(prompt(1))["pod"].lag_ms is None


def ages(core: Core) -> tuple[int | None, int | None]:
    """Both ages of the one source."""
    entry = core.ask(prompt(1))["pod"]
    return entry.lag_ms, entry.event_age_ms


def test_a_connection_that_comes_and_goes() -> None:
    """Down, it is no sign of life; up again, it is."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1], prompt(1)))
    engine.sink.alive(connected=False)
    core.clock.at += 10.0
    engine.sink.alive(connected=False)
    assert "stale" == core.ask(prompt(1))["pod"].state

    engine.sink.alive(connected=True)

    assert "live" == core.ask(prompt(1))["pod"].state


def test_a_look_at_a_connection_that_is_up_is_no_news() -> None:
    """Nothing is prepared anew for it, and the source is alive all the same."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1], prompt(1)))
    epoch = core.lookup.view.epoch
    for _ in range(20):
        core.clock.at += 0.5
        engine.sink.alive(connected=True)

    assert epoch == core.lookup.view.epoch
    assert "live" == core.ask(prompt(1))["pod"].state


def test_a_source_that_was_never_connected_is_not_live() -> None:
    """Whatever was applied from elsewhere."""
    core = Core()
    engine = core.engine(connected=False)
    engine.sink.syncing(True)
    assert "new" == core.ask(prompt(1))["pod"].state
    engine.say(stored([1], prompt(1)))

    assert "down" == core.ask(prompt(1))["pod"].state


def test_a_doubt_of_the_collector() -> None:
    """What is claimed may be false: suspect, until a restart or clear."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1], prompt(1)))
    for _ in range(2):
        engine.sink.doubt("absence")
    assert ("suspect", "estimate") == (core.ask(prompt(1))["pod"].state, core.ask(prompt(1))["pod"].bound)

    engine.say(CLEARED)

    assert "exact" == core.ask(prompt(1)).state


@pytest.mark.parametrize(("ahead_s", "warned"), [(0.0, False), (29.0, False), (31.0, True), (-31.0, True)])
def test_a_clock_that_differs_is_remarked_on(ahead_s: float, warned: bool) -> None:
    """At the first batch of a life; it has no other effect."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1], prompt(1)), ts=core.clock.wall_us() / 1e6 + ahead_s)
    engine.say(ts=TS + 1e6)

    assert warned is ("clock" in engine.source.warnings)
    assert "exact" == core.ask(prompt(1)).state


def test_a_replayed_batch_says_nothing_of_the_engines_clock() -> None:
    """It is old by nature; the first live message that did not wait behind a replay is what tells."""
    core = Core()
    engine = core.engine()
    now_s = core.clock.wall_us() / 1e6
    engine.replay(stored([1], prompt(1)), ts=now_s - 3_600.0)
    engine.sink.syncing(active=True)
    engine.say(ts=now_s - 60.0)  # waited while the replay ran
    engine.sink.syncing(active=False)
    assert "clock" not in engine.source.warnings

    engine.say(ts=now_s - 31.0)

    assert "clock" in engine.source.warnings


def test_a_clock_that_was_set_right_is_remarked_on_no_more() -> None:
    """In the same generation: it may have been a message that lay here while this process stood still."""
    core = Core()
    engine = core.engine()
    engine.say(ts=core.clock.wall_us() / 1e6 - 31.0)
    assert "clock" in engine.source.warnings

    engine.say(ts=core.clock.wall_us() / 1e6)
    assert "clock" not in engine.source.warnings
    engine.say(ts=core.clock.wall_us() / 1e6 - 31.0)
    assert "clock" not in engine.source.warnings  # once right is enough for a generation

    engine.say(CLEARED, ts=core.clock.wall_us() / 1e6)
    engine.say(ts=core.clock.wall_us() / 1e6 + 31.0)
    assert "clock" in engine.source.warnings


def test_a_replayed_batch_is_no_message_of_now() -> None:
    """It proves what it proves, and `event_age_ms` stays that of the last live message; null before the first."""
    core = Core()
    engine = core.engine()
    engine.replay(stored([1], prompt(1)))
    assert (0, None) == (about(ages(core)[0]), ages(core)[1])

    engine.say()
    core.clock.at += 2.0
    engine.replay(stored([2], prompt(1, 50)))

    assert (0, 2_000) == (about(ages(core)[0]), about(ages(core)[1]))


def test_a_replayed_clear_is_a_proof_of_now() -> None:
    """What it empties is proven as of the replay, not as of the message before."""
    core = Core()
    engine = core.engine()
    engine.replay(CLEARED)

    assert 0 == about(ages(core)[0])


def test_remarks_are_set_and_taken_back() -> None:
    """By the collector, under a key each."""
    engine = Core().engine()
    engine.sink.warn("never delivered", key="silent")
    engine.sink.warn("other model", key="topic")
    engine.sink.warn(None, key="silent")
    engine.sink.warn(None, key="silent")

    assert {"topic": "other model"} == engine.source.warnings


# -- counters ----------------------------------------------------------------------------------------------------------


def test_everything_is_counted() -> None:
    """A source's own counters, whatever happens to it."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2], prompt(2)), removed(2), removed(9), CLEARED, stored([], prompt(1)))
    engine.say(stored([5], prompt(1), parent=4), placeholder([6]), {"type": "New"}, stored(["x"], prompt(1)))
    engine.say_bytes(b"?")
    engine.lose()
    engine.lose()
    engine.gap()
    engine.restart()
    engine.sink.count("duplicates", 3)
    engine.sink.count("duplicates")

    assert {
        "batches": 3,
        "batches_lost": 2,
        "cleared": 1,
        "gaps": 1,
        "orphaned": 1,
        "orphans_ended": 1,
        "removed": 2,
        "removed_unknown": 1,
        "restarts": 1,
        "restarts.sequence_went_back": 1,
        "skipped.empty": 1,
        "skipped.stored_malformed": 1,
        "skipped.undecodable": 1,
        "skipped.unknown_kind": 1,
        "stored": 4,
        "unplaced": 1,
        "wire.duplicates": 4,
    } == dict(engine.source.counters)


def test_counters_stay_numbers_that_anyone_can_write() -> None:
    """An engine that names absurd sequence numbers does not make them grow without end."""
    core = Core()
    engine = core.engine()
    engine.say()
    for _ in range(3):
        engine.sink.gap(1, 2**64 - 1)
        engine.sink.count("batches_lost", 2**64)

    assert engine.source.counters["batches_lost"] < 2**64
    assert engine.source.counters["wire.batches_lost"] < 2**64


def test_a_fault_of_ours_costs_one_event(caplog: pytest.LogCaptureFixture) -> None:
    """Told without what the event held; its neighbours count, the source is suspect."""
    core = Core()
    secret = 987_654_321

    class Broken(Presence):
        def add(self, slot: int, lane: int, hashes: list[int], parents: list[int]) -> list[int]:
            if len(hashes) == 2:
                raise ValueError(secret)
            return core.mirror.add(slot, lane, hashes, parents)

        def remove(self, slot: int, lane: int, hashes: list[int], why: Why) -> None:
            core.mirror.remove(slot, lane, hashes, why)

    ingest = Ingest(core.mirror, core.clock, presence=Broken())
    sink = ingest.open_source(Descriptor(pod="pod"))
    with caplog.at_level(logging.ERROR):
        sink.apply(RawBatch(b"", 0, payload(stored([1, 2], prompt(2)), stored([3], prompt(1, 50)))))

    assert (1, {"fault"}) == (sink.source.counters["skipped.fault"], sink.source.facts.doubts)
    assert 1 == core.mirror.table.live
    assert "ValueError" in caplog.text
    assert str(secret) not in caplog.text


# -- housekeeping ------------------------------------------------------------------------------------------------------


def test_housekeeping_comes_to_an_end() -> None:
    """Nothing to do is said at once."""
    core = Core()
    engine = core.engine()
    assert 0 == core.tidy()
    engine.say(stored(range(1, 5_001), prompt(5_000)))
    core.tidy()
    assert 0 == core.tidy()


def test_churn_leaves_the_reverse_map_small() -> None:
    """Pieces that many entries went through are made compact; what is held stays."""
    core = Core()
    engine = core.engine()
    for start in range(1, 200_001, 2_000):
        engine.say(*(stored([number], [number] * 4) for number in range(start, start + 2_000)))
        engine.say(removed(*range(start + 10, start + 2_000)))
        while core.ingest.tidy_slice():
            pass
    (lane,) = engine.source.map.lanes.values()

    assert 1_000 == engine.source.pairs
    assert sum(piece.__sizeof__() for piece in lane.maps) < 100 * 1_000 + SHARDS * 1_000
    assert all(core.ask([number] * 4)["pod"].matched_tokens for number in range(1, 200_001, 2_000))
    check_mirror(core.mirror)


def test_tiers_with_a_time_to_live_are_looked_at_for_present_sources_only() -> None:
    """One that left is not looked at any more."""
    core = Core(tier_ttls={Tier.STORAGE: 10.0})
    engine = core.engine()
    engine.say(stored([1], prompt(1), medium="STORAGE"))
    core.remove("pod")
    core.clock.at += 100.0
    core.tidy()

    assert 0 == engine.source.counters["expired"]
