"""Cache groups of hybrid models: which of their events say which blocks these are, and what a hit is then."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.core import Core, Speaker
from tests.support.core_events import BLOCK, as_array, prompt, removed, stored

TOKENS = prompt(8)
ASKED = [*TOKENS, 999]
FULL: dict[str, Any] = {"group_idx": 0, "kv_cache_spec_kind": "full_attention"}


def window(group: int = 1, tokens: int = 9) -> dict[str, Any]:
    """Fields of a sliding-window group's stores."""
    return {
        "group_idx": group,
        "kv_cache_spec_kind": "sliding_window",
        "kv_cache_spec_sliding_window": tokens,
    }


def hits(core: Core) -> tuple[int, int, str, str | None]:
    """Matched, reusable, bound and reason."""
    entry = core.ask(ASKED)["pod"]
    return entry.matched_tokens, entry.reusable_tokens, entry.bound, entry.reason


@pytest.fixture
def hybrid() -> tuple[Core, Speaker]:
    """A full-attention group and a window of nine tokens, both with the whole prompt of eight blocks."""
    core = Core()
    engine = core.engine()
    hashes = list(range(1, 9))
    engine.say(stored(hashes, TOKENS, **FULL), stored(hashes, TOKENS, **window()))
    return core, engine


def test_a_hit_needs_every_group(hybrid: tuple[Core, Speaker]) -> None:
    """The window group need hold only its last blocks before the end of the hit."""
    core, engine = hybrid
    assert (32, 32, "exact", None) == hits(core)

    engine.say(removed(1, 2, 3, 4, 5, 6, group_idx=1))
    assert (32, 32, "exact", None) == hits(core)
    engine.say(removed(8, group_idx=1))
    assert (32, 0, "exact", None) == hits(core)
    engine.say(stored([3, 4], TOKENS[:16], **window()))

    assert (32, 16, "exact", None) == hits(core)


def test_hashes_are_keyed_by_group(hybrid: tuple[Core, Speaker]) -> None:
    """Groups share hash values: a removal of one group's block leaves the other's."""
    core, engine = hybrid

    engine.say(removed(8))
    assert (28, 28, "exact", None) == hits(core)
    engine.say(removed(*range(1, 9), group_idx=1))

    assert (28, 0, "exact", None) == hits(core)
    assert 7 == engine.source.pairs


def test_a_block_that_only_a_window_group_holds_is_no_hit() -> None:
    """It has no place before the full-attention group tells it, and no prefix even then."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2, 3, 4, 5, 6, 7, 8], TOKENS, **window()))
    assert (0, 0) == hits(core)[:2]

    engine.say(stored([1], TOKENS[:BLOCK], **FULL))

    assert (4, 4) == hits(core)[:2]


def test_sparse_window_events_say_nothing_of_positions() -> None:
    """Tokens cover more than the hashes: placed by equal hash alone."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2, 3], TOKENS[:12], **FULL), stored([3], TOKENS[:12], **window(tokens=4)))

    assert (12, 12, "exact", None) == hits(core)
    assert core.unreachable([TOKENS[8:12], TOKENS[4:12]])


@pytest.mark.parametrize("form", ["map", "array"])
def test_removals_never_name_the_kind(form: str) -> None:
    """It is remembered from the group's stores."""
    core = Core()
    engine = core.engine()
    for event in (stored([1, 2], TOKENS[:8], **FULL), stored([1, 2], TOKENS[:8], **window()), removed(2, group_idx=1)):
        engine.say(as_array(event) if form == "array" else event)

    assert (8, 4) == hits(core)[:2]


def test_blocks_of_another_size_carry_the_hash_at_their_end() -> None:
    """A window group with blocks twice as large: hits end where its blocks end."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2, 3, 4, 5], TOKENS[:20], **FULL))
    engine.say(stored([2, 4], TOKENS[:16], block_size=8, **window(tokens=9)))

    assert (20, 16, "exact", None) == hits(core)
    engine.say(removed(4, group_idx=1))
    assert (20, 8) == hits(core)[:2]


def test_a_full_attention_group_of_larger_blocks() -> None:
    """Must hold everything before the end of the hit, at its own size."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2, 3, 4, 5], TOKENS[:20], **FULL))
    engine.say(stored([2, 4], TOKENS[:16], block_size=8, group_idx=1, kv_cache_spec_kind="full_attention"))
    assert (20, 16, "exact", None) == hits(core)

    engine.say(removed(2, group_idx=1))

    assert (20, 0, "exact", None) == hits(core)


def test_fine_hashes_are_never_taken_for_blocks() -> None:
    """The block size of the event counts, not what a group of finer blocks suggests."""
    core = Core()
    engine = core.engine()
    engine.say(stored([2, 4], TOKENS[:16], block_size=8, **FULL))
    engine.say(stored([1, 2, 3, 4], TOKENS[:16], block_size=4, **window()))

    entry = core.ask([*TOKENS[:16], 999])["pod"]
    assert (16, 8, "estimate", "hybrid_window") == (
        entry.matched_tokens,
        entry.block_size,
        entry.bound,
        entry.reason,
    )


def test_two_full_attention_groups_must_both_hold_a_block() -> None:
    """And the worse tier of the two counts."""
    core = Core()
    engine = core.engine()
    mla = {"group_idx": 1, "kv_cache_spec_kind": "mla_attention"}
    engine.say(stored([1, 2, 3], TOKENS[:12], **FULL))
    assert (12, 12, "exact", None) == hits(core)
    engine.say(stored([1, 2], TOKENS[:8], **mla))
    assert (8, 8, "exact", None) == hits(core)

    engine.say(stored([2], (), block_size=0, medium="CPU", **mla), removed(2, group_idx=1))

    assert (8, 4) == (hits(core)[0], core.ask(ASKED)["pod"].prefix.gpu)


def test_a_group_without_a_known_rule() -> None:
    """A Mamba group beside: less may be held than the full-attention group says. Never `exact`."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2], TOKENS[:8], **FULL))
    assert (8, 8, "exact", None) == hits(core)

    engine.say(stored([2], TOKENS[:8], block_size=8, group_idx=1, kv_cache_spec_kind="mamba"))

    assert (8, 8, "upper", "hybrid_window") == hits(core)
    assert "degraded" == core.ask(ASKED).state
    assert "hybrid_window" == core.ask(range(500, 509))["pod"].reason


def test_a_placeholder_of_a_window_group_before_its_stores() -> None:
    """Its block size is not known: no rule yet, and no lookup falls over it."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2], TOKENS[:8], **FULL), stored([1], (), block_size=0, medium="CPU", **window()))
    assert (8, 8, "upper", "hybrid_window") == hits(core)

    engine.say(stored([2], TOKENS[:8], **window(tokens=4)))

    assert (8, 8, "exact", None) == hits(core)


def test_inflated_block_sizes_make_short_prompts_silent() -> None:
    """No event is no error: the answer says that the prompt is below a block, and how large one is."""
    core = Core()
    engine = core.engine()
    engine.say()
    assert (None, "block_size_unknown") == (core.ask(range(300))["pod"].block_size, core.ask(range(300))["pod"].reason)
    engine.say(stored([1], range(528), block_size=528))

    entry = core.ask(range(300))["pod"]
    assert (528, "below_block_size") == (entry.block_size, entry.reason)
    assert "exact" == core.ask(range(300)).state
    assert 528 == core.ask(range(600))["pod"].matched_tokens


def test_the_block_size_is_learnt_from_events() -> None:
    """A size that changes while blocks are held is said, and its blocks not indexed; a new life may have another."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2], TOKENS[:8]))
    engine.say(stored([3], TOKENS[:8], block_size=8))

    entry = core.ask(TOKENS[:8])["pod"]
    assert (4, 8, "lower") == (entry.block_size, entry.matched_tokens, entry.bound)
    assert "events name block size 8, before 4" == engine.source.warnings["block_size"]
    engine.restart()
    engine.say(stored([3], TOKENS[:8], block_size=8))

    entry = core.ask(TOKENS[:8])["pod"]
    assert (8, 8, "exact") == (entry.block_size, entry.matched_tokens, entry.bound)
    assert "block_size" not in engine.source.warnings


def test_sources_of_different_block_sizes_answer_side_by_side() -> None:
    """Each in its own blocks; a small event fills whole blocks of its own source."""
    core = Core()
    for pod, size in (("fine", 4), ("coarse", 16)):
        engine = core.engine(pod)
        for number in range(32 // size):
            engine.say(
                stored([number + 1], TOKENS[number * size : (number + 1) * size], number or None, block_size=size)
            )

    answer = core.ask(TOKENS)
    assert {"fine": 32, "coarse": 32} == answer.matched
    assert {"fine": 4, "coarse": 16} == {entry.pod: entry.block_size for entry in answer.pods}
    assert {"fine": 28, "coarse": 16} == {entry.pod: entry.reusable_tokens for entry in answer.pods}
