"""Long chains that waited for their parent are placed in slices; what comes meanwhile cannot tell the difference."""

from __future__ import annotations

import gc
from typing import Final

import pytest

from indexer.index.plan import HEALED_IN_A_SLICE, HEALED_WITH_A_BATCH, RUN_MAX
from indexer.index.reverse_map import Orphan, Waiting
from tests.support.core import Core, Speaker, check_mirror
from tests.support.core_events import BLOCK, CLEARED, placeholder, prompt, removed, stored

LENGTH: Final = 3 * HEALED_WITH_A_BATCH
TOKENS = prompt(LENGTH)
ROOT = stored([1], TOKENS[:BLOCK])


def parked(length: int = LENGTH, batch: int = 512) -> tuple[Core, Speaker]:
    """An engine whose blocks 2 and up are known and whose first one is not."""
    core = Core()
    engine = core.engine()
    for first in range(2, length + 1, batch):
        last = min(first + batch, length + 1)
        engine.say(stored(range(first, last), TOKENS[BLOCK * (first - 1) : BLOCK * (last - 1)], parent=first - 1))
    assert length - 1 == engine.source.map.waiting
    return core, engine


def held(core: Core) -> int:
    """Blocks of the long prompt that are found."""
    return core.ask(TOKENS)["pod"].matched_tokens // BLOCK


def test_a_long_chain_is_placed_in_slices() -> None:
    """So much with the batch that brings the parent, the rest slice by slice; `lower` until all of it is."""
    core, engine = parked()
    slack = RUN_MAX

    engine.say(ROOT)
    last = held(core)
    assert HEALED_WITH_A_BATCH <= last <= HEALED_WITH_A_BATCH + slack
    while engine.source.map.healing:
        assert ("live", "lower") == (core.ask(TOKENS)["pod"].state, core.ask(TOKENS)["pod"].bound)
        assert core.ingest.tidy_slice()
        now = held(core)
        assert 0 <= now - last <= HEALED_IN_A_SLICE + slack
        last = now

    assert LENGTH == held(core) == engine.source.pairs
    assert ("exact", 0) == (core.ask(TOKENS)["pod"].bound, engine.source.map.waiting)
    assert LENGTH - 1 == engine.source.counters["healed"]
    check_mirror(core.mirror)


@pytest.mark.parametrize("delayed", [False, True])
def test_what_comes_meanwhile_finds_all_as_if_it_were_placed(delayed: bool) -> None:
    """Removals, copies, placeholders and children of blocks whose turn has not come."""
    core, engine = parked()
    engine.say(ROOT)
    if not delayed:
        core.tidy()
    far = LENGTH - 100

    engine.say(
        removed(far), removed(far + 50), stored([far + 50], TOKENS[BLOCK * (far + 49) : BLOCK * (far + 50)], far + 49)
    )
    engine.say(removed(far), placeholder([far + 10]), stored([10**6], prompt(1, 10**6), parent=LENGTH))
    engine.say(stored([LENGTH], TOKENS[-BLOCK:], LENGTH - 1), removed(LENGTH))
    core.tidy()

    assert far - 1 == held(core)
    engine.say(stored([far], TOKENS[BLOCK * (far - 1) : BLOCK * far], far - 1))
    entry = core.ask([*TOKENS, *prompt(1, 10**6)])["pod"]
    assert LENGTH + 1 == entry.matched_tokens // BLOCK
    assert (LENGTH + 2, LENGTH + 2, 0) == (engine.source.pairs, engine.source.copies, engine.source.map.waiting)
    assert set() == engine.source.map.leaving
    check_mirror(core.mirror)


@pytest.mark.parametrize("end", ["clear", "restart", "operator", "leave"])
def test_nothing_is_placed_of_a_chain_whose_time_is_over(end: str) -> None:
    """Another generation began, or the source left, before it was placed."""
    core, engine = parked(2 * HEALED_WITH_A_BATCH)
    other = core.engine("other")
    engine.say(ROOT)
    assert engine.source.map.healing

    if end == "clear":
        engine.say(CLEARED)
    elif end == "restart":
        engine.restart()
    elif end == "operator":
        core.ingest.clear(engine.sink)
    else:
        core.remove("pod")
    core.tidy()

    assert 0 == core.mirror.table.live
    other.say(ROOT)
    assert BLOCK == core.ask(TOKENS)["other"].matched_tokens
    check_mirror(core.mirror)


def test_a_gap_before_its_turn_leaves_one_doubtful_copy() -> None:
    """It was announced before the gap: its removal ends it, its next announcement sets its count to 1."""
    core, engine = parked(2 * HEALED_WITH_A_BATCH)
    engine.say(stored([2 * HEALED_WITH_A_BATCH], TOKENS[:BLOCK], 2 * HEALED_WITH_A_BATCH - 1))  # a second copy
    engine.say(ROOT)
    engine.lose()
    engine.gap()
    core.tidy()
    lane = engine.source.gpu_lane
    assert lane is not None

    last = 2 * HEALED_WITH_A_BATCH
    assert (1, False) == (lane.count(last), lane.announced(last))
    engine.say(removed(last))
    assert 0 == lane.count(last)


def test_what_waits_is_no_work_for_the_garbage_collector() -> None:
    """Tens of thousands of tracked objects would make each of its full runs long."""
    _, engine = parked(2_000)

    orphans = list(engine.source.map.orphans.values())

    assert 1_999 == len(orphans)
    assert not any(gc.is_tracked(each) or gc.is_tracked(each.waited) for each in orphans)
    assert (Orphan, Waiting) == (type(orphans[0]), type(orphans[0].waited))
