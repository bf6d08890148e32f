"""Parents: known, unknown, late, gone. Children wait for theirs and are never put under the root."""

from __future__ import annotations

import itertools

import pytest

from tests.support.core import Core
from tests.support.core_events import BLOCK, CLEARED, placeholder, prompt, removed, stored

TOKENS = prompt(4)


def block(number: int) -> list[int]:
    """Tokens of the block of that number in the prompt."""
    return TOKENS[number * BLOCK : (number + 1) * BLOCK]


def link(number: int) -> dict[str, object]:
    """That block alone; its hash is its number + 1."""
    return stored([number + 1], block(number), parent=number or None)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
def test_any_order_of_arrival_ends_in_the_same_answer(order: tuple[int, ...]) -> None:
    """Child, grandchild, then root: every block is found once its chain is complete, and none before."""
    core = Core()
    engine = core.engine()
    seen: set[int] = set()

    for number in order:
        engine.say(link(number))
        seen.add(number)
        unbroken = next((i for i in range(4) if i not in seen), 4)
        assert unbroken * BLOCK == core.ask(TOKENS)["pod"].matched_tokens

    assert 0 == engine.source.map.waiting
    assert "exact" == core.ask(TOKENS).state


def test_a_run_whose_parent_is_unknown_waits_as_a_whole() -> None:
    """It is never taken for the beginning of a prompt; the answer admits that more may be held."""
    core = Core()
    engine = core.engine()
    engine.say(stored([2, 3, 4], TOKENS[BLOCK:], parent=1))

    assert core.unreachable([TOKENS, TOKENS[BLOCK:], block(1), block(2)])
    assert (3, 0) == (engine.source.map.waiting, core.mirror.table.live)
    assert "lower" == core.ask(TOKENS)["pod"].bound

    engine.say(link(0))

    assert ("exact", 16) == (core.ask(TOKENS).state, core.ask(TOKENS)["pod"].matched_tokens)
    assert 3 == engine.source.counters["healed"]


def test_blocks_inside_one_event_are_each_others_parents() -> None:
    """The event's parent is the first one's alone."""
    core = Core()
    core.engine().say(stored([1, 2, 3, 4], TOKENS))

    assert 16 == core.ask(TOKENS)["pod"].matched_tokens
    assert core.unreachable([block(1), block(2), block(0)[::-1]])


def test_a_removal_does_not_cascade() -> None:
    """Children of a removed parent count again when it comes back."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2, 3, 4], TOKENS))

    engine.say(removed(2))
    assert 4 == core.ask(TOKENS)["pod"].matched_tokens
    engine.say(link(1))
    assert 16 == core.ask(TOKENS)["pod"].matched_tokens


def test_a_parent_that_went_is_still_a_parent() -> None:
    """Its mapping is kept for a while: the child has its place, and counts once the parent is there again."""
    core = Core()
    engine = core.engine()
    engine.say(link(0), removed(1), link(1))

    assert (0, 0) == (core.ask(TOKENS)["pod"].matched_tokens, engine.source.map.waiting)
    engine.say(link(0))
    assert 8 == core.ask(TOKENS)["pod"].matched_tokens


def test_a_waiting_block_that_is_removed_waits_no_more() -> None:
    """Its children go on waiting, for it."""
    core = Core()
    engine = core.engine()
    engine.say(link(1), link(2), removed(2))
    assert 1 == engine.source.map.waiting

    engine.say(link(0))
    assert 4 == core.ask(TOKENS)["pod"].matched_tokens
    engine.say(link(1))
    assert 12 == core.ask(TOKENS)["pod"].matched_tokens


def test_copies_of_a_waiting_block_are_counted() -> None:
    """Two announcements, two removals."""
    core = Core()
    engine = core.engine()
    engine.say(link(1), link(1), link(0), removed(2))
    assert 8 == core.ask(TOKENS)["pod"].matched_tokens

    engine.say(removed(2))

    assert 4 == core.ask(TOKENS)["pod"].matched_tokens


def test_a_waiting_block_on_two_tiers_is_found_on_both() -> None:
    """And stays on the one when it goes from the other, even while it waits."""
    core = Core()
    engine = core.engine()
    engine.say(link(1), placeholder([2]), stored([2], block(1), parent=1, medium="STORAGE"), removed(2))
    engine.say(link(0))

    entry = core.ask(TOKENS)["pod"]
    assert (8, 4, 4) == (entry.matched_tokens, entry.tiers.gpu, entry.tiers.cpu)
    engine.say(removed(2, medium="CPU"))
    assert 4 == core.ask(TOKENS)["pod"].tiers.storage


def test_what_waits_is_bounded() -> None:
    """Beyond the bound blocks are not kept: counted, and the bound of answers says that some are missing."""
    core = Core(orphans_max=2)
    engine = core.engine()
    engine.say(stored([2, 3, 4], TOKENS[BLOCK:], parent=1), placeholder([77]))

    assert (2, 2) == (engine.source.map.waiting, engine.source.counters["skipped.orphans"])
    engine.say(link(0))
    assert (12, "lower") == (core.ask(TOKENS)["pod"].matched_tokens, core.ask(TOKENS)["pod"].bound)


@pytest.mark.parametrize("end", ["restart", "clear", "operator"])
def test_what_waits_goes_with_its_generation(end: str) -> None:
    """A parent of the next life does not bring it back."""
    core = Core()
    engine = core.engine()
    engine.say(link(1))
    if end == "restart":
        engine.restart()
        engine.say(link(0))
    elif end == "clear":
        engine.say(CLEARED, link(0))
    else:
        core.ingest.clear(engine.sink)
        engine.say(link(0))

    assert (4, 0) == (core.ask(TOKENS)["pod"].matched_tokens, engine.source.map.waiting)


def test_a_gap_makes_waiting_copies_doubtful_too() -> None:
    """Two copies announced before it: one removal ends both, whether the parent came before or after."""
    core = Core()
    engine = core.engine()
    engine.say(link(1), link(1), placeholder([3]), placeholder([3]))
    engine.lose(removed(2))
    engine.gap()
    engine.say(link(0), stored([3], block(2), parent=2), removed(3))
    assert (12, 4) == (core.ask(TOKENS)["pod"].matched_tokens, core.ask(TOKENS)["pod"].tiers.cpu)

    engine.say(removed(3, medium="CPU"))
    assert 8 == core.ask(TOKENS)["pod"].matched_tokens
    engine.say(link(1), removed(2))
    assert 4 == core.ask(TOKENS)["pod"].matched_tokens


def test_what_was_announced_since_the_gap_and_waited_is_not_doubted() -> None:
    """Announced twice after it, once before its parent came and once after: two copies."""
    core = Core()
    engine = core.engine()
    engine.say(stored([9], prompt(1, 90)))
    engine.lose()
    engine.gap()
    engine.say(link(1))
    engine.say(link(0), link(1), removed(2))

    assert 8 == core.ask(TOKENS)["pod"].matched_tokens


def test_long_chains_heal_without_deep_recursion() -> None:
    """Thousands of blocks behind one parent."""
    core = Core()
    engine = core.engine()
    tokens = prompt(5_000)
    engine.say(stored(range(2, 5_001), tokens[BLOCK:], parent=1))

    engine.say(stored([1], tokens[:BLOCK]))

    assert len(tokens) == core.ask(tokens)["pod"].matched_tokens
