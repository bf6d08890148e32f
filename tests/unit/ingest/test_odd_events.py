"""One odd event among good ones costs itself: what the source holds stays found, before it and after it (P11)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.core import Core, Speaker
from tests.support.core_events import prompt, stored

GOOD = prompt(6)
ODD = prompt(2, 500)
LARGE = 5_000
"""Blocks of an event that comes in parts."""
FULL: dict[str, Any] = {"group_idx": 0, "kv_cache_spec_kind": "full_attention"}
WINDOW: dict[str, Any] = {"kv_cache_spec_kind": "sliding_window"}

ODDITIES: list[dict[str, Any]] = [
    {"lookahead_token_ids": [[4]]},
    {"lookahead_token_ids": [[-1], [-1]]},
    {"lookahead_token_ids": [[4], [8, 9]]},
    {"lookahead_token_ids": [[508], [600]]},
    {"group_idx": -1},
    {"group_idx": 2**64 - 1},
    {"kv_cache_spec_kind": "quantum"},
    {"kv_cache_spec_kind": "unknown"},
    {"kv_cache_spec_kind": "mamba"},
    {**WINDOW, "kv_cache_spec_sliding_window": 0},
    {**WINDOW, "kv_cache_spec_sliding_window": -1},
    {**WINDOW, "kv_cache_spec_sliding_window": 2**63},
    {**WINDOW, "kv_cache_spec_sliding_window": 128},
    {"kv_cache_spec_sliding_window": -1},
]


def blocks(engine: Speaker, first: int, last: int, fields: dict[str, Any]) -> None:
    """Blocks first..last of the good prompt, a store each."""
    for number in range(first, last + 1):
        tokens = GOOD[4 * (number - 1) : 4 * number]
        engine.say(stored([number], tokens, number - 1 if number > 1 else None, **fields))


def matched(core: Core) -> int:
    """Tokens of the good prompt that are found."""
    return core.ask([*GOOD, 9_999])["pod"].matched_tokens


@pytest.mark.parametrize("usual", [{}, FULL], ids=["no kinds", "full attention"])
@pytest.mark.parametrize("odd", ODDITIES, ids=str)
def test_it_costs_itself_amid_good_ones(odd: dict[str, Any], usual: dict[str, Any]) -> None:
    """Found before, just after and later; never `exact` again."""
    core = Core()
    engine = core.engine()
    blocks(engine, 1, 3, usual)

    engine.say({**stored([50, 51], ODD, **usual), **odd})
    assert 12 == matched(core)
    blocks(engine, 4, 6, usual)

    assert 24 == matched(core)
    if odd != {"kv_cache_spec_sliding_window": -1}:  # of a group without windows: it means nothing
        assert "exact" != core.ask(GOOD)["pod"].bound


@pytest.mark.parametrize("usual", [{}, FULL], ids=["no kinds", "full attention"])
@pytest.mark.parametrize("odd", ODDITIES, ids=str)
def test_it_costs_itself_as_the_first_word(odd: dict[str, Any], usual: dict[str, Any]) -> None:
    """What the others say outweighs it."""
    core = Core()
    engine = core.engine()

    engine.say({**stored([50, 51], ODD, **usual), **odd})
    blocks(engine, 1, 6, usual)

    assert 24 == matched(core)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    "odd", [{"kv_cache_spec_kind": "mamba"}, {"lookahead_token_ids": [[7]] * LARGE}], ids=["kind", "lookahead"]
)
def test_a_large_event_does_not_repeat_itself(odd: dict[str, Any], first: bool) -> None:
    """It is applied in parts, each of which says the same."""
    core = Core()
    engine = core.engine()
    large = {**stored(range(100, 100 + LARGE), prompt(LARGE, 10**6), **FULL), **odd}
    if first:
        engine.say(large)
    blocks(engine, 1, 3, FULL)
    if not first:
        engine.say(large)

    blocks(engine, 4, 6, FULL)

    assert 24 == matched(core)
    assert engine.source.counters["skipped.group_contradiction"] == (
        0 if first or "kv_cache_spec_kind" not in odd else 1
    )


def test_what_is_told_twice_in_a_row_is_believed() -> None:
    """A group that really is another from now on."""
    core = Core()
    engine = core.engine()
    blocks(engine, 1, 3, FULL)

    for _ in range(2):
        engine.say(stored([50, 51], ODD, **{**FULL, "kv_cache_spec_kind": "mamba"}))

    assert 0 == matched(core)
    assert {"group_contradiction", "waiting"} == engine.source.facts.doubts | engine.source.facts.shortfalls


def test_another_lookahead_twice_in_a_row_is_asked_for() -> None:
    """And what was held without is not found by it."""
    core = Core()
    engine = core.engine()
    blocks(engine, 1, 3, {})

    engine.say(stored([50], ODD[:4], lookahead_token_ids=[ODD[4:5]]))
    assert (0, 12) == (core.ask([*ODD, 1])["pod"].matched_tokens, matched(core))
    engine.say(stored([51], ODD[4:], 50, lookahead_token_ids=[[1]]))

    assert (8, 0) == (core.ask([*ODD, 1])["pod"].matched_tokens, matched(core))
    assert {"lookahead_changed"} == engine.source.facts.shortfalls
