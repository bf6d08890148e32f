"""Restarts and clears: what of before is never seen again, and what stays known of the engine."""

from __future__ import annotations

import msgspec
import pytest

from tests.support.core import Core, Speaker, check_mirror
from tests.support.core_events import CLEARED, as_array, placeholder, prompt, removed, stored

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


@pytest.mark.parametrize(
    "said",
    [
        [placeholder([1, 2, 3])],
        [stored([], [], block_size=8)],
        [stored([4], TOKENS[12:], parent=3), removed(4)],
        [CLEARED],
        [stored([1, 2], TOKENS[:16], block_size=8)],
    ],
    ids=["no tokens", "no blocks", "no parent", "a clear", "another block size"],
)
def test_a_new_life_is_known_by_what_it_says_alone(held: tuple[Core, Speaker], said: list[object]) -> None:
    """Whoever heard of the life before knows no more than one who did not: all replicas answer alike."""
    core, engine = held
    engine.restart()
    engine.say(*said)
    fresh = Core()
    fresh.engine().say(*said)

    entries = [known.ask(TOKENS)["pod"] for known in (core, fresh)]
    first, second = (msgspec.structs.replace(entry, generation="") for entry in entries)
    assert second == first


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
