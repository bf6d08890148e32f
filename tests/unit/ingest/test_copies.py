"""Copies of one block: engines announce and remove each on its own, and a hash goes with its last."""

from __future__ import annotations

import pytest

from indexer.model import Tier
from tests.support.core import Core
from tests.support.core_events import as_array, placeholder, prompt, removed, stored

TOKENS = prompt(3)


def test_the_trace_of_two_equal_requests() -> None:
    """A stores three blocks; the same prompt again recomputes the last; both copies go, then the middle block."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2, 3], TOKENS))
    engine.say(stored([3], TOKENS[8:], parent=2))

    matched = [core.ask(TOKENS)["pod"].matched_tokens]
    for gone in (3, 3, 2, 1):
        engine.say(removed(gone))
        matched.append(core.ask(TOKENS)["pod"].matched_tokens)

    assert [12, 12, 8, 4, 0] == matched
    assert (0, 0) == (engine.source.pairs, engine.source.copies)


@pytest.mark.parametrize("form", ["map", "array"])
def test_stored_twice_removed_once(form: str) -> None:
    """It is still there; removed once more, it is not."""
    core = Core()
    engine = core.engine()
    for event in [stored([1, 2], prompt(2))] * 2 + [removed(1, 2)]:
        engine.say(as_array(event) if form == "array" else event)

    assert 8 == core.ask(prompt(2))["pod"].matched_tokens
    engine.say(removed(1))
    assert 0 == core.ask(prompt(2))["pod"].matched_tokens


def test_removals_that_name_nothing_known_change_nothing() -> None:
    """Unknown hashes, a tier or a group that never held it, the same removal again: counted, and harmless."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2], prompt(2)))
    engine.say(
        removed(77, 1, 88, medium="STORAGE"), removed(1, group_idx=5), removed(77), removed(1, medium="CPU"), removed()
    )

    assert 8 == core.ask(prompt(2))["pod"].matched_tokens
    assert "exact" == core.ask(prompt(2)).state
    assert 6 == engine.source.counters["removed_unknown"]
    engine.say(removed(2), removed(2), removed(1))
    assert (0, 0) == (engine.source.pairs, engine.source.copies)


def test_one_absent_block_does_not_end_a_removal_of_many() -> None:
    """Each hash of an event counts by itself."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2, 3], TOKENS))
    engine.say(removed(3, 77, 2, 3))

    assert 4 == core.ask(TOKENS)["pod"].matched_tokens
    assert 1 == engine.source.pairs


def test_copies_are_counted_a_tier() -> None:
    """Overlapping offload chunks announce shared hashes again: each removal takes one copy of its own tier."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2, 3], TOKENS))
    engine.say(stored([1, 2], TOKENS[:8], medium="CPU"), stored([2, 3], TOKENS[4:], parent=1, medium="CPU"))
    engine.say(removed(1), removed(2), removed(3))
    assert (12, 12) == (core.ask(TOKENS)["pod"].matched_tokens, core.ask(TOKENS)["pod"].tiers.cpu)

    engine.say(removed(2, 3, medium="CPU"))
    assert 8 == core.ask(TOKENS)["pod"].matched_tokens
    engine.say(removed(2, medium="CPU"))

    assert 4 == core.ask(TOKENS)["pod"].matched_tokens


def test_numbers_change_on_real_transitions_only() -> None:
    """Blocks are distinct hashes; a second copy is no second block."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2], prompt(2)))
    engine.say(*[stored([2], prompt(1, 4), parent=1)] * 3)
    assert (2, 5) == (engine.source.pairs, engine.source.copies)
    assert 2 == core.mirror.table.live
    engine.say(removed(2), removed(99))
    assert (2, 4) == (engine.source.pairs, engine.source.copies)

    engine.say(removed(2), removed(2), removed(2))

    assert (1, 1) == (engine.source.pairs, engine.source.copies)
    assert 1 == core.mirror.table.live


def test_engines_that_report_again_what_they_hold() -> None:
    """With `events.copies: set` an announcement of a held block is no copy: the first removal ends it."""
    counting, plain = Core(), Core(count_copies=False)
    for core in (counting, plain):
        engine = core.engine()
        engine.say(stored([1, 2], prompt(2)))
        engine.say(stored([1, 2], prompt(2)), placeholder([1]), placeholder([1]))
        engine.say(removed(2), removed(1), removed(1, medium="CPU"))

    assert 8 == counting.ask(prompt(2))["pod"].matched_tokens
    assert 0 == plain.ask(prompt(2))["pod"].matched_tokens
    assert 0 == plain.mirror.table.live


def test_full_reports_of_a_hybrid_model_count_no_copies() -> None:
    """They list empty window positions, too; under `set` every group's block goes with its first removal."""
    core = Core(count_copies=False)
    engine = core.engine()
    window = {"group_idx": 1, "kv_cache_spec_kind": "sliding_window", "kv_cache_spec_sliding_window": 5}
    full = stored([1, 2], prompt(2), group_idx=0, kv_cache_spec_kind="full_attention")
    for _ in range(3):
        engine.say(full, stored([2], prompt(2), **window), stored([], prompt(2), **window))

    assert 8 == core.ask(range(9))["pod"].reusable_tokens
    engine.say(removed(2, group_idx=1))
    assert (8, 0) == (core.ask(range(9))["pod"].matched_tokens, core.ask(range(9))["pod"].reusable_tokens)
    engine.say(removed(2), removed(1))
    assert (0, 0) == (core.mirror.table.live, engine.source.copies)


def test_two_engine_hashes_of_one_content() -> None:
    """Engines before 0.17 do not tell the salt: what looks equal to us goes when both are gone."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2], prompt(2)), stored([101, 102], prompt(2)))
    engine.say(removed(2), removed(1))
    assert 8 == core.ask(prompt(2))["pod"].matched_tokens

    engine.say(removed(102))

    assert 4 == core.ask(prompt(2))["pod"].matched_tokens
    engine.say(stored([2], prompt(1, 4), parent=101), removed(101))
    assert 0 == core.ask(prompt(2))["pod"].matched_tokens


def test_three_engine_hashes_placed_in_one_event() -> None:
    """An offload event may name several hashes of one content at once."""
    core = Core()
    engine = core.engine()
    engine.say(*(stored([engine_hash], prompt(1)) for engine_hash in (1, 2, 3)))
    engine.say(placeholder([1, 2, 3]), removed(1), removed(2), removed(3))
    assert 4 == core.ask(prompt(1))["pod"].tiers.cpu

    engine.say(removed(1, 3, medium="CPU"))
    assert 4 == core.ask(prompt(1))["pod"].matched_tokens
    engine.say(removed(2, medium="CPU"))
    assert 0 == core.ask(prompt(1))["pod"].matched_tokens


def test_one_engine_hash_for_two_contents() -> None:
    """Something was missed: the newer announcement wins and the source is suspect."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2], prompt(2)))
    engine.say(stored([1, 2], prompt(2)), stored([1], prompt(1, 50)))

    assert 0 == core.ask(prompt(2))["pod"].matched_tokens
    answer = core.ask(prompt(1, 50))
    assert (4, "suspect") == (answer["pod"].matched_tokens, answer["pod"].state)
    assert (2, 3) == (engine.source.pairs, engine.source.copies)
    engine.say(stored([1], prompt(1, 70)))
    assert (2, 3, 2) == (engine.source.pairs, engine.source.copies, engine.source.counters["hash_contradictions"])
    engine.say(removed(1), removed(2), removed(2))
    assert (0, 0) == (core.mirror.table.live, engine.source.copies)


def test_the_two_contents_of_a_hash_may_share_other_hashes() -> None:
    """What another hash still maps to stays."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1], prompt(1)), stored([2], prompt(1)))
    engine.say(stored([1], prompt(1, 50)))

    assert {0: 4, 50: 4} == {start: core.ask(prompt(1, start))["pod"].matched_tokens for start in (0, 50)}


def test_a_removal_touches_only_its_sender() -> None:
    """Three pods hold it; one lets go, twice; the others hold it still."""
    core = Core()
    engines = [core.engine(pod) for pod in ("a", "b", "c")]
    for engine in engines:
        engine.say(stored([1, 2], prompt(2)))

    engines[1].say(removed(1), removed(1), removed(2))

    assert {"a": 8, "b": 0, "c": 8} == core.ask(prompt(2)).matched
    assert 2 == core.mirror.table.live


def test_a_removal_names_its_tier() -> None:
    """Gone from GPU memory is not gone from storage."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1], prompt(1)), placeholder([1], "STORAGE"), placeholder([1], "CPU"))

    engine.say(removed(1))
    assert (0, 4, 0) == tiers(core)
    engine.say(removed(1, medium="CPU"))
    assert (0, 0, 4) == tiers(core)
    engine.say(removed(1, medium="DISK"))
    assert (0, 0, 0) == tiers(core)


def tiers(core: Core) -> tuple[int, int, int]:
    """GPU, CPU and storage tokens of the first block."""
    entry = core.ask(prompt(1))["pod"]
    return entry.tiers.gpu, entry.tiers.cpu, entry.tiers.storage


def test_an_event_that_names_itself_is_refused() -> None:
    """A block that is its own parent, or one hash twice: no content could be right. Said as a shortfall."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2], prompt(2), parent=2), stored([3, 3], prompt(2)))

    assert (0, 2) == (core.mirror.table.live, engine.source.counters["skipped.self_reference"])
    assert ("live", "lower") == (core.ask(prompt(2))["pod"].state, core.ask(prompt(2))["pod"].bound)


def test_more_lanes_than_sixteen() -> None:
    """The engine may hold more than is indexed: said as a shortfall; removals there are harmless."""
    core = Core()
    engine = core.engine()
    engine.say(
        *(stored([group + 1], prompt(1), group_idx=group, kv_cache_spec_kind="full_attention") for group in range(20))
    )
    engine.say(removed(20, group_idx=19))

    assert 4 == engine.source.counters["skipped.lanes"]
    assert (16, "lower") == (engine.source.pairs, core.ask(prompt(1))["pod"].bound)
    assert Tier.GPU == engine.source.lane_table.lanes[15][1]
