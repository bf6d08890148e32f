"""Lives of a source: joins, gaps, restarts, clears, removal and return; what of before is never seen again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from indexer.model import RawBatch, SourceId
from tests.support.core import Core, Speaker, check_mirror
from tests.support.core_events import CLEARED, as_array, payload, placeholder, prompt, removed, stored

if TYPE_CHECKING:
    from indexer.model import GapPolicy

TOKENS = prompt(4)


def matched(core: Core, pod: str = "pod") -> int:
    """Tokens of the prompt that the pod holds."""
    return core.ask(TOKENS)[pod].matched_tokens


def trust(core: Core) -> tuple[str, str, str]:
    """Answer state, source state, bound."""
    answer = core.ask(TOKENS)
    return answer.state, answer["pod"].state, answer["pod"].bound


@pytest.fixture
def held() -> tuple[Core, Speaker]:
    """An engine that holds the whole prompt."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2, 3, 4], TOKENS))
    return core, engine


# -- joining -----------------------------------------------------------------------------------------------------------


def test_a_history_from_its_beginning_is_exact(held: tuple[Core, Speaker]) -> None:
    """Batch 0 is a real batch."""
    core, engine = held

    assert ("exact", "live", "exact") == trust(core)
    assert 0 == engine.sink.cursor == core.ask(TOKENS)["pod"].sequence


def test_a_history_truncated_at_join_can_only_under_report() -> None:
    """Live, lower; exact after the engine's clear."""
    core = Core()
    engine = core.engine()
    engine.next_sequence = 7
    engine.say(stored([3], TOKENS[8:12], parent=2))
    assert (0, ("degraded", "live", "lower")) == (matched(core), trust(core))

    engine.say(CLEARED, stored([1, 2], TOKENS[:8]))

    assert (8, ("exact", "live", "exact")) == (matched(core), trust(core))


def test_an_engine_that_confirms_an_empty_history() -> None:
    """It holds nothing, for certain; its first batch is number 0."""
    core = Core()
    engine = core.engine()
    assert ("no_signal", "new", "lower") == trust(core)
    engine.sink.proved()
    assert (("exact", "live", "exact"), None) == (trust(core), core.ask(TOKENS)["pod"].sequence)

    engine.say(stored([1], TOKENS[:4]))

    assert (4, ("exact", "live", "exact")) == (matched(core), trust(core))


def test_an_empty_history_whose_first_batches_never_came() -> None:
    """Truncated, like any other beginning."""
    core = Core()
    engine = core.engine()
    engine.sink.proved()
    engine.next_sequence = 5
    engine.say(stored([1], TOKENS[:4]))

    assert (4, ("degraded", "live", "lower")) == (matched(core), trust(core))


def test_numbers_that_jump_without_a_gap_reported(held: tuple[Core, Speaker]) -> None:
    """A fault on the way in: removals may be missing, and the source says so."""
    core, engine = held
    engine.lose(removed(4))
    engine.say(stored([9], TOKENS[:4]))

    assert ("degraded", "suspect", "estimate") == trust(core)


# -- gaps --------------------------------------------------------------------------------------------------------------


def test_a_lost_removal_is_never_called_exact(held: tuple[Core, Speaker]) -> None:
    """Nobody can know which blocks went; the source is suspect from the gap on, and says how many batches are lost."""
    core, engine = held
    engine.lose(removed(4), removed(3))
    engine.gap()
    engine.say(stored([9], prompt(1, 50)))

    assert (16, ("degraded", "suspect", "estimate")) == (matched(core), trust(core))
    assert (1, 1) == (engine.source.counters["gaps"], engine.source.counters["batches_lost"])
    assert 2 == engine.sink.cursor


@pytest.mark.parametrize(
    ("policy", "expected", "told"),
    [("keep", 16, ("degraded", "suspect", "estimate")), ("clear", 0, ("degraded", "live", "lower"))],
)
def test_what_a_gap_does(policy: GapPolicy, expected: int, told: tuple[str, str, str]) -> None:
    """Keep and doubt, or clear and under-report: by choice."""
    core = Core(gap_policy=policy)
    engine = core.engine()
    engine.say(stored([1, 2, 3, 4], TOKENS))
    assert ("exact", "live", "exact") == trust(core)
    engine.lose()
    engine.gap()

    assert (expected, told) == (matched(core), trust(core))
    assert ({"cleared_at_gap"} if policy == "clear" else set()) == engine.source.facts.shortfalls
    engine.say(stored([1, 2, 3, 4], TOKENS))
    assert 16 == matched(core)


def test_copies_count_anew_after_a_kept_gap(held: tuple[Core, Speaker]) -> None:
    """An entry announced before counts once: a removal ends it, a new announcement sets its count to one."""
    core, engine = held
    engine.say(stored([3, 4], TOKENS[8:], parent=2))
    engine.lose()
    engine.gap()

    engine.say(removed(4))
    assert 12 == matched(core)
    engine.say(stored([3, 4], TOKENS[8:], parent=2), stored([4], TOKENS[12:], parent=3))
    engine.say(removed(3))
    assert 8 == matched(core)
    engine.say(stored([3], TOKENS[8:12], parent=2), removed(4))
    assert 16 == matched(core)


def test_doubt_ends_with_a_restart_or_a_clear(held: tuple[Core, Speaker]) -> None:
    """Not with mere traffic."""
    core, engine = held
    engine.lose()
    engine.gap()
    for _ in range(50):
        engine.say(stored([1], TOKENS[:4]))
    assert ("degraded", "suspect", "estimate") == trust(core)

    engine.say(CLEARED)
    assert ("exact", "live", "exact") == trust(core)


# -- restarts ----------------------------------------------------------------------------------------------------------


def test_a_restart_forgets_everything_of_before(held: tuple[Core, Speaker]) -> None:
    """Also where hashes of both lives are equal: removals of the new one find only what it stored."""
    core, engine = held
    before = core.ask(TOKENS)["pod"].generation
    engine.restart()
    assert (0, ("no_signal", "new", "lower")) == (matched(core), trust(core))
    engine.say(stored([1, 2], TOKENS[:8]), removed(4), removed(3))

    entry = core.ask(TOKENS)["pod"]
    assert (8, "exact", 0) == (entry.matched_tokens, entry.bound, entry.sequence)
    assert int(entry.generation, 16) > int(before, 16)
    assert 1 == engine.source.counters["restarts"]


def test_a_child_of_the_old_life_finds_no_parent(held: tuple[Core, Speaker]) -> None:
    """Engine hashes mean nothing outside their generation, placeholders included."""
    core, engine = held
    engine.restart()
    engine.say(stored([4], TOKENS[12:], parent=3), placeholder([1, 2, 3]))

    assert 0 == matched(core)


def test_generations_only_grow() -> None:
    """Over restarts, clears, returns and other sources, whatever the wall clock does."""
    core = Core()
    engine, other = core.engine("a"), core.engine("b")
    seen = [engine.source.facts.generation, other.source.facts.generation]
    for _ in range(3):
        engine.restart()
        seen.append(engine.source.facts.generation)
        core.clock.at -= 100.0
        core.ingest.clear(other.sink)
        seen.append(other.source.facts.generation)

    assert sorted(set(seen)) == seen


# -- clears ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["map", "array"])
def test_an_engines_clear_empties_all_tiers(held: tuple[Core, Speaker], form: str) -> None:
    """It names none: a reset of GPU memory reads as everything, which can only under-report. What follows counts."""
    core, engine = held
    engine.say(placeholder([1, 2]))

    engine.say(as_array(CLEARED) if form == "array" else CLEARED, stored([9], TOKENS[:4]))

    entry = core.ask(TOKENS)["pod"]
    assert (4, 4, ("exact", "live", "exact")) == (entry.matched_tokens, entry.tiers.gpu, trust(core))
    engine.say(removed(1, medium="CPU"), removed(2), removed(3))
    assert 4 == matched(core)


def test_clears_may_come_with_every_batch(held: tuple[Core, Speaker]) -> None:
    """Cheap, counted, and nothing piles up."""
    core, engine = held
    for _ in range(500):
        engine.say(CLEARED)
        core.ingest.tidy_slice()
    core.tidy()

    assert 500 == engine.source.counters["cleared"]
    assert (0, 0) == (core.mirror.retired_slots(), core.mirror.table.live)


def test_an_operators_clear_forgets_and_goes_on(held: tuple[Core, Speaker]) -> None:
    """The engine may hold what is forgotten: bound lower. What it announces from here on counts."""
    core, engine = held
    assert 16 == matched(core)
    core.ingest.clear(engine.sink)
    assert (0, ("degraded", "live", "lower"), 0) == (matched(core), trust(core), engine.sink.cursor)
    assert {"cleared_by_operator"} == engine.source.facts.shortfalls

    engine.say(stored([1, 2], TOKENS[:8]))

    assert (8, ("degraded", "live", "lower")) == (matched(core), trust(core))
    engine.say(CLEARED)
    assert ("exact", "live", "exact") == trust(core)


def test_an_operators_clear_before_anything_came() -> None:
    """There is nothing to forget, and nothing is missing afterwards."""
    core = Core()
    engine = core.engine()
    core.ingest.clear(engine.sink)
    engine.say(stored([1], TOKENS[:4]))

    assert ("exact", "live", "exact") == trust(core)


@pytest.mark.parametrize("how", ["engine", "operator", "gap", "restart"])
def test_what_is_known_of_an_engines_groups_outlives_a_clear(how: str) -> None:
    """Placeholders never name their kind; another process may be another model, and tells it anew."""
    core = Core(gap_policy="clear")
    engine = core.engine()
    window = {"group_idx": 1, "kv_cache_spec_kind": "sliding_window", "kv_cache_spec_sliding_window": 5}
    engine.say(
        stored([1], TOKENS[:4], group_idx=0, kv_cache_spec_kind="full_attention"), stored([1], TOKENS[:4], **window)
    )
    if how == "engine":
        engine.say(CLEARED)
    elif how == "operator":
        core.ingest.clear(engine.sink)
    elif how == "gap":
        engine.lose()
        engine.gap()
    else:
        engine.restart()
    engine.say(stored([1], TOKENS[:4]), placeholder([1], group_idx=1))

    entry = core.ask(prompt(2))["pod"]
    assert ("hybrid_window" if how == "restart" else None) == entry.reason
    assert 4 == entry.matched_tokens


def test_clearing_touches_nothing_that_was_held() -> None:
    """However much: a new slot and a new map; the table is given back in slices afterwards."""
    core = Core()
    engine = core.engine()
    engine.say(stored(range(1, 20_001), prompt(20_000)))
    other = core.engine("other")
    other.say(stored([1, 2, 3, 4], TOKENS))
    core.tidy()
    cells = bytes(core.mirror.table.current.cells)

    core.ingest.clear(engine.sink)

    assert (0, 16) == (matched(core), matched(core, "other"))
    assert cells == bytes(core.mirror.table.current.cells)
    slices = core.tidy()
    assert slices > 50
    assert 4 == core.mirror.table.live
    check_mirror(core.mirror)


# -- leaving -----------------------------------------------------------------------------------------------------------


def test_nothing_brings_back_a_source_that_left(held: tuple[Core, Speaker]) -> None:
    """Events in flight find a closed sink, also after the same pod came back."""
    core, engine = held
    core.remove("pod")
    engine.say(stored([1, 2, 3, 4], TOKENS))
    assert ([], "no_signal") == (core.ask(TOKENS).pods, core.ask(TOKENS).state)

    core.engine()
    engine.say(stored([1, 2, 3, 4], TOKENS))
    engine.sink.restart("probe_differs")
    engine.sink.gap(0, 5)
    engine.sink.proved()
    engine.sink.syncing(True)
    engine.sink.alive(connected=False)

    assert (0, ("no_signal", "new", "lower")) == (matched(core), trust(core))
    assert not engine.sink.open


def test_a_pod_of_fifty_thousand_blocks_leaves_nothing() -> None:
    """Neither mappings nor counts nor slots."""
    core = Core()
    engine = core.engine()
    engine.say(stored(range(1, 50_001), prompt(50_000)))
    engine.say(stored(range(1, 50_001), prompt(50_000)), placeholder(range(1, 1_001)), placeholder([10**9]))
    core.remove("pod")
    core.tidy()

    assert (0, 0, 1) == (core.mirror.table.live, core.mirror.retired_slots(), len(core.mirror.book))
    assert {} == core.mirror.book.tables
    assert {} == engine.source.map.lanes
    check_mirror(core.mirror)


def test_a_pod_may_leave_and_return_for_ever() -> None:
    """Slots come round; the smallest table is enough."""
    core = Core()
    for life in range(200):
        engine = core.engine()
        engine.say(stored([life * 10 + 1, life * 10 + 2], TOKENS[:8]))
        assert 8 == matched(core)
        core.remove("pod")
        if life % 7 == 0:
            core.tidy()
    core.tidy()

    assert (0, 1) == (core.mirror.table.live, len(core.mirror.book))


def test_a_source_long_gone_gives_its_memory_back() -> None:
    """After `retain_s` without a sign of life; when it comes back its history is known to be incomplete."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2], TOKENS[:8]), placeholder([77]))
    core.clock.at += 3_599.0
    assert not core.ingest.forget_lost(engine.source, 3_600.0)
    core.clock.at += 1.0
    before = core.ask(TOKENS)["pod"].generation

    assert core.ingest.forget_lost(engine.source, 3_600.0)
    after = core.ask(TOKENS)["pod"].generation
    assert before != after
    assert {"forgotten"} == engine.source.facts.shortfalls
    assert core.ingest.forget_lost(engine.source, 3_600.0)
    core.tidy()
    assert (0, 0) == (core.mirror.table.live, engine.source.map.waiting)
    assert after == core.ask(TOKENS)["pod"].generation
    core.alive()

    assert (0, ("degraded", "live", "lower")) == (matched(core), trust(core))


def test_a_source_that_was_never_seen_is_not_long_gone() -> None:
    """There is no moment to count from."""
    core = Core()
    engine = core.engine(connected=False)
    core.clock.at += 10_000.0

    assert not core.ingest.forget_lost(engine.source, 3_600.0)


# -- bytes that are no batch -------------------------------------------------------------------------------------------


def test_a_bad_batch_costs_itself_and_trust(held: tuple[Core, Speaker]) -> None:
    """It may have held removals: suspect; the stream goes on."""
    core, engine = held
    engine.say_bytes(b"\xff\x00 not a batch")
    engine.say(removed(4))

    assert (12, ("degraded", "suspect", "estimate"), 2) == (matched(core), trust(core), engine.sink.cursor)
    assert 1 == engine.source.counters["skipped.undecodable"]


def test_an_unknown_event_costs_itself_and_trust(held: tuple[Core, Speaker]) -> None:
    """Its neighbours count."""
    core, engine = held
    engine.say(stored([5], prompt(1, 16), parent=4), {"type": "TierBlocksCleared", "medium": "GPU"}, removed(99))

    assert 20 == core.ask(prompt(5))["pod"].matched_tokens
    assert ("degraded", "suspect", "estimate") == trust(core)


def test_a_broken_store_costs_itself_and_completeness(held: tuple[Core, Speaker]) -> None:
    """Nothing that is claimed becomes false by it: live, lower."""
    core, engine = held
    engine.say({**stored([5], prompt(1, 16)), "token_ids": None}, stored([6], prompt(1, 50)))

    assert (16, ("degraded", "live", "lower")) == (matched(core), trust(core))
    assert 4 == core.ask(prompt(1, 50))["pod"].matched_tokens


def test_envelopes_of_two_elements_and_of_maps(held: tuple[Core, Speaker]) -> None:
    """No rank told; the rank counts for the collector, not here."""
    core, engine = held
    short = payload(removed(4))[:-1]
    engine.say_bytes(b"\x92" + short[1:])
    engine.say(removed(3), rank=7)

    assert 8 == matched(core)
    assert SourceId("pod", 0) in core.sinks


def test_a_batch_out_of_the_air_is_applied_as_the_collector_says() -> None:
    """The sink trusts the order it is given; the topic means nothing here."""
    core = Core()
    engine = core.engine()
    engine.sink.apply(RawBatch(b"kv@elsewhere@m", 0, payload(stored([1], TOKENS[:4]))))

    assert 4 == matched(core)
