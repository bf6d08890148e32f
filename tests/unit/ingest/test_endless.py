"""Clears, restarts and registrations without end leave nothing behind: counted in objects, slots, records and maps."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from indexer.index.source import SLOTS_WAITING_MIN, VACATED_AT_ONCE
from tests.support.core import Core, Speaker, check_mirror
from tests.support.core_events import CLEARED, placeholder, prompt, stored

if TYPE_CHECKING:
    from collections.abc import Callable

TOKENS = prompt(2)
TURNS = 2_000
WAITING_MAX = SLOTS_WAITING_MIN + 2


def engine_clears(_: Core, engine: Speaker) -> Speaker:
    """Of what it held in two tiers, and of what waited."""
    engine.say(stored([1, 2], TOKENS), placeholder([2, 77]), CLEARED)
    return engine


def engine_clears_nothing(_: Core, engine: Speaker) -> Speaker:
    """An engine may say so in every batch."""
    engine.say(CLEARED, CLEARED)
    return engine


def engine_restarts(_: Core, engine: Speaker) -> Speaker:
    """Another process, another lane table."""
    engine.say(stored([1, 2], TOKENS))
    engine.restart()
    return engine


def operator_clears(core: Core, engine: Speaker) -> Speaker:
    """The stream goes on."""
    engine.say(stored([1, 2], TOKENS))
    core.ingest.clear(engine.sink)
    return engine


def registered_anew(core: Core, engine: Speaker) -> Speaker:
    """Another source altogether."""
    engine.say(stored([1, 2], TOKENS))
    core.remove("pod")
    return core.engine()


TURN = [engine_clears, engine_clears_nothing, engine_restarts, operator_clears, registered_anew]


@pytest.mark.parametrize("turn", TURN)
def test_nothing_piles_up(turn: Callable[[Core, Speaker], Speaker]) -> None:
    """No housekeeping in between: what ends is given back as it ends."""
    core = Core()
    core.engine("other").say(stored([1, 2], TOKENS))
    engine = core.engine()
    for _ in range(40):
        engine = turn(core, engine)
    gc.collect()
    before = len(gc.get_objects())

    for _ in range(TURNS):
        engine = turn(core, engine)

    gc.collect()
    assert len(gc.get_objects()) - before < 20
    assert (0b11, 0) == (core.mirror.live_slots, core.mirror.retired_slots())
    assert len(core.mirror.book.records) <= 8
    assert 0 == core.tidy()
    check_mirror(core.mirror)
    assert 8 == core.ask(TOKENS)["other"].matched_tokens


def test_clears_of_more_than_little_pile_up_no_further_than_a_bound() -> None:
    """Faster than the scrub: so many slots wait, and the masks are that wide."""
    core = Core()
    engine = core.engine()
    blocks = VACATED_AT_ONCE + 1
    for _ in range(WAITING_MAX + 20):
        engine.say(stored(range(1, blocks + 1), prompt(blocks)), CLEARED)

    assert WAITING_MAX == core.mirror.retired_slots()
    assert core.mirror.live_slots.bit_length() <= WAITING_MAX + 1
    check_mirror(core.mirror)
    core.tidy()

    assert (0, 0, 1) == (core.mirror.table.live, core.mirror.retired_slots(), len(core.mirror.book))


def test_a_slot_that_is_used_again_means_the_new_lanes() -> None:
    """Another process on the same slot numbers its lanes anew: no presence of before is read with them."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2], TOKENS), placeholder([1]))
    engine.restart()

    engine.say(placeholder([1]), stored([1], TOKENS[:4]))

    entry = core.ask(TOKENS)["pod"]
    assert (4, 4) == (entry.matched_tokens, entry.tiers.gpu)
    engine.say(stored([2], TOKENS[4:], 1, medium="STORAGE"))
    entry = core.ask(TOKENS)["pod"]
    assert (8, 4, 4) == (entry.matched_tokens, entry.tiers.gpu, entry.tiers.storage)
    check_mirror(core.mirror)
