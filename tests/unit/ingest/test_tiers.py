"""Tiers beside GPU memory: offload events with and without tokens, unknown media, entries nobody ever removes."""

from __future__ import annotations

import itertools

import pytest

from indexer.model import Tier
from tests.support.core import Core
from tests.support.core_events import BLOCK, CLEARED, placeholder, prompt, removed, stored

TOKENS = prompt(4)


def tiers(core: Core, blocks: int = 4) -> tuple[int, int, int, int, int]:
    """Tokens of the matched blocks by best tier."""
    entry = core.ask(prompt(blocks))["pod"]
    by_tier = entry.tiers
    found = (by_tier.gpu, by_tier.cpu, by_tier.storage, by_tier.remote, by_tier.unknown)
    assert sum(found) == entry.matched_tokens
    return found


def test_a_placeholder_names_blocks_by_their_engine_hash() -> None:
    """No tokens, no parent, block size 0: resolved through what GPU events told."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2, 3, 4], TOKENS))
    engine.say(placeholder([3, 4]), removed(4), removed(3))

    assert (8, 8, 0, 0, 0) == tiers(core)
    assert "exact" == core.ask(TOKENS).state


@pytest.mark.parametrize("batches", [1, 2])
def test_the_gpu_copy_may_go_first(batches: int) -> None:
    """Even earlier in the same batch: the mapping outlives the block for a while."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2], prompt(2)))
    if batches == 1:
        engine.say(removed(2), removed(1), placeholder([1]), placeholder([2]))
    else:
        engine.say(removed(2), removed(1))
        engine.say(placeholder([1]), placeholder([2]))

    entry = core.ask(prompt(2))["pod"]
    assert (8, 0, 8) == (entry.matched_tokens, entry.prefix.gpu, entry.prefix.cpu)
    assert 0.8 == pytest.approx(entry.score)


def test_a_placeholder_before_its_block_waits_for_it() -> None:
    """A promotion may be announced before the tokens are."""
    core = Core()
    engine = core.engine()
    engine.say(placeholder([1]))
    assert (0, "lower") == (core.ask(TOKENS)["pod"].matched_tokens, core.ask(TOKENS)["pod"].bound)

    engine.say(stored([1], TOKENS[:BLOCK]), removed(1))

    assert (0, 4, 0, 0, 0) == tiers(core)
    assert "exact" == core.ask(TOKENS).state


def test_a_placeholder_that_is_never_explained_is_no_error() -> None:
    """It is removed again, and nothing is missing any more."""
    core = Core()
    engine = core.engine()
    engine.say(placeholder([1, 2]), placeholder([1]))
    engine.say(removed(1, 2, 1, medium="CPU"))

    assert ("exact", 0, 0) == (core.ask(TOKENS).state, engine.source.map.waiting, engine.source.pairs)


def test_offload_events_with_tokens_stand_for_themselves() -> None:
    """A CPU tier whose GPU original was never seen."""
    core = Core()
    core.engine().say(stored([1, 2], prompt(2), medium="CPU"), stored([3], TOKENS[8:12], parent=2, medium="cpu"))

    assert (0, 12, 0, 0, 0) == tiers(core)


def test_a_known_hash_is_a_better_witness_than_offload_tokens() -> None:
    """Offload events leave the salt out: the block stays the salted one."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2], prompt(2), extra_keys=[["s"], None]))
    engine.say(stored([1, 2], prompt(2), medium="CPU"), removed(1), removed(2))

    assert 8 == core.ask(prompt(2), cache_salt="s")["pod"].tiers.cpu
    assert 0 == core.ask(prompt(2))["pod"].matched_tokens


def test_offload_tokens_count_beyond_the_last_known_block() -> None:
    """Chained from there, salt and all."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2], prompt(2), extra_keys=[["s"], None]))
    engine.say(stored([1, 2, 3, 4], TOKENS, medium="CPU"))

    assert (8, 8) == tiers_salted(core)
    assert 0 == core.ask(TOKENS)["pod"].matched_tokens


def test_offload_tokens_with_keys_of_their_own() -> None:
    """Beyond the known blocks an event's own extra keys count, block by block."""
    core = Core()
    engine = core.engine()
    keys = [["ad"], ["ad"], ["ad"]]
    engine.say(stored([1], prompt(1), lora_name="ad", extra_keys=keys[:1]))
    engine.say(stored([1, 2, 3], prompt(3), lora_name="ad", extra_keys=keys, medium="CPU"))

    entry = core.ask(prompt(3), lora_name="ad")["pod"]
    assert (12, 4, 8) == (entry.matched_tokens, entry.tiers.gpu, entry.tiers.cpu)
    assert 0 == core.ask(prompt(3))["pod"].matched_tokens


def tiers_salted(core: Core) -> tuple[int, int]:
    """GPU and CPU tokens of the salted prompt."""
    entry = core.ask(TOKENS, cache_salt="s")["pod"]
    return entry.tiers.gpu, entry.tiers.cpu


def test_cumulative_prefixes() -> None:
    """Two blocks on GPU, continued on CPU and storage: each view an unbroken prefix, none smaller than another."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2, 3, 4], TOKENS))
    engine.say(placeholder([3]), placeholder([4], "STORAGE"), removed(3), removed(4))

    prefix = core.ask(TOKENS)["pod"].prefix
    assert (8, 12, 16, 16) == (prefix.gpu, prefix.cpu, prefix.storage, prefix.remote)


@pytest.mark.parametrize(
    ("medium", "weight"),
    [("GPU", 1.0), ("CPU_PINNED", 0.8), ("DISK", 0.5), ("EXTERNAL", 0.5), ("tape", 0.0), ("cuda:0", 0.0)],
)
def test_scores_by_tier(medium: str, weight: float) -> None:
    """A block on disk alone is worth less than one on GPU; an unknown medium is held and worth nothing."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1], prompt(1)), placeholder([1], medium), removed(1))
    if medium == "GPU":
        engine.say(stored([1], prompt(1)))

    entry = core.ask(prompt(1))["pod"]
    assert (4, weight) == (entry.matched_tokens, pytest.approx(entry.score))


def test_remote_locality() -> None:
    """What lies elsewhere counts as remote."""
    core = Core()
    core.engine().say(stored([1], prompt(1), medium="CPU", locality="REMOTE"))

    assert (0, 0, 0, 4, 0) == tiers(core)


# -- entries with a time to live ---------------------------------------------------------------------------------------


def test_entries_nobody_removes_live_for_a_set_time() -> None:
    """Storage tiers announce no removals; announced again, the time begins again; then either way may be wrong."""
    core = Core(tier_ttls={Tier.STORAGE: 100.0})
    engine = core.engine()
    engine.say(stored([1, 2], prompt(2)), placeholder([1, 2], "STORAGE"), removed(2), removed(1))
    core.clock.at += 60.0
    engine.say(placeholder([1], "STORAGE"))
    core.clock.at += 50.0
    core.alive()
    core.tidy()

    assert (0, 0, 4, 0, 0) == tiers(core, 2)
    assert "estimate" == core.ask(prompt(2))["pod"].bound  # an end was not announced, and it may be held after all
    core.clock.at += 60.0
    core.tidy()

    assert (0, 0, 0, 0, 0) == tiers(core, 2)
    assert (2, 0, 0) == (engine.source.counters["expired"], engine.source.pairs, engine.source.copies)


def test_nothing_is_certain_of_blocks_whose_end_is_never_announced() -> None:
    """What is matched in such a tier may be gone: bound `upper`; what is matched in others is as certain as ever."""
    core = Core(tier_ttls={Tier.STORAGE: 100.0})
    engine = core.engine()
    engine.say(stored([1, 2], prompt(2)), placeholder([1, 2], "CPU"), placeholder([1, 2], "STORAGE"))
    assert ("exact", "exact") == (core.ask(prompt(2)).state, core.ask(prompt(2))["pod"].bound)
    engine.say(removed(2), removed(2, medium="CPU"))

    answer = core.ask(prompt(2))
    assert ("degraded", "live", "upper") == (answer.state, answer["pod"].state, answer["pod"].bound)
    answer = core.ask(prompt(1))
    assert ("exact", "exact") == (answer.state, answer["pod"].bound)

    core = Core()
    core.engine().say(stored([1], prompt(1)), placeholder([1], "STORAGE"), removed(1))
    assert "exact" == core.ask(prompt(1)).state


def test_more_than_an_engine_can_hold_is_in_doubt() -> None:
    """Removals were never announced, or its capacity is told too low: `suspect` until it begins anew, and scored."""
    core = Core()
    engine = core.engine(blocks_total=2)
    engine.say(stored([1, 2], prompt(2)), stored([1], prompt(1)), placeholder([1, 2], "CPU"))
    assert "exact" == core.ask(prompt(2)).state
    engine.say(stored([3], prompt(3)[8:], parent=2))

    entry = core.ask(prompt(3))["pod"]
    assert (12, "suspect", "estimate") == (entry.matched_tokens, entry.state, entry.bound)
    engine.say(removed(3))
    assert "suspect" == core.ask(prompt(3))["pod"].state
    engine.say(CLEARED, stored([1], prompt(1)))
    assert "exact" == core.ask(prompt(1)).state


def test_what_is_computed_anew_was_gone() -> None:
    """An engine that computes blocks which it is known to hold does not announce its removals: `suspect`, and scored.

    One block again is the last one of a prompt that is held whole. Where it takes blocks back, more are copies.
    """
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2, 3], prompt(3)), stored([3], prompt(3)[8:], parent=2))
    assert "exact" == core.ask(prompt(3)).state
    engine.say(placeholder([1, 2], "CPU"), placeholder([1, 2], "CPU"))
    assert "exact" == core.ask(prompt(3)).state
    engine.say(stored([1, 2], prompt(2)))

    entry = core.ask(prompt(3))["pod"]
    assert (12, "suspect", "estimate") == (entry.matched_tokens, entry.state, entry.bound)
    engine.say(removed(1))
    assert ("exact", 12) == (core.ask(prompt(3)).state, core.ask(prompt(3))["pod"].matched_tokens)
    engine.say(removed(3), removed(3), stored([1, 2], prompt(2)))
    assert ("exact", 8) == (core.ask(prompt(3)).state, core.ask(prompt(3))["pod"].matched_tokens)


def test_a_clear_ends_the_doubt_whether_removals_are_announced() -> None:
    """And it begins anew where the engine still computes what it is known to hold."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2], prompt(2)), stored([1, 2], prompt(2)))
    assert "suspect" == core.ask(prompt(2))["pod"].state
    engine.say(CLEARED, stored([1, 2], prompt(2)))
    assert "exact" == core.ask(prompt(2)).state
    engine.say(stored([1, 2], prompt(2)))
    assert "suspect" == core.ask(prompt(2))["pod"].state


def test_full_reports_are_no_doubt() -> None:
    """Engines whose clients ask for full reports announce what is held again and again."""
    core = Core(count_copies=False)
    engine = core.engine()
    engine.say(stored([1, 2], prompt(2)), stored([1, 2], prompt(2)))

    assert "exact" == core.ask(prompt(2)).state


def test_a_block_is_not_forgotten_for_being_hot() -> None:
    """Reuse is silent: tiers that announce removals have no time to live, however long nothing is heard of a block."""
    core = Core(tier_ttls={Tier.STORAGE: 100.0})
    engine = core.engine()
    engine.say(stored([1], prompt(1)), placeholder([1]), placeholder([1], "STORAGE"))

    for _ in range(20):
        core.clock.at += 50.0
        core.alive()
        core.tidy()

    assert (4, 0, 0, 0, 0) == tiers(core, 1)
    engine.say(removed(1))
    assert (0, 4, 0, 0, 0) == tiers(core, 1)


def test_a_removal_after_any_time_finds_its_block() -> None:
    """The reverse mapping has no time to live of its own."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1], prompt(1)))
    core.clock.at += 30 * 86_400.0
    core.alive()
    core.tidy()

    engine.say(removed(1))

    assert (0, 0) == (core.ask(prompt(1))["pod"].matched_tokens, engine.source.pairs)


def test_time_to_live_begins_when_a_block_can_be_found() -> None:
    """What waited for its tokens counts from the moment it was placed."""
    core = Core(tier_ttls={Tier.STORAGE: 100.0})
    engine = core.engine()
    engine.say(placeholder([1], "STORAGE"))
    core.clock.at += 90.0
    engine.say(stored([1], prompt(1)), removed(1))
    core.clock.at += 50.0
    core.alive()
    core.tidy()

    assert (0, 0, 4, 0, 0) == tiers(core, 1)


def test_expiry_gives_the_loop_back_after_each_piece() -> None:
    """Many entries fall due at once: slice by slice, each with an answer in between."""
    core = Core(tier_ttls={Tier.STORAGE: 100.0})
    engine = core.engine()
    engine.say(stored(range(1, 2_001), prompt(2_000), medium="STORAGE"))
    core.clock.at += 100.0
    core.alive()
    sizes = [engine.source.pairs]
    while core.ingest.tidy_slice():
        sizes.append(engine.source.pairs)

    assert 0 == sizes[-1]
    assert max(before - after for before, after in itertools.pairwise(sizes)) < 100
