"""Whatever comes while a chain is being placed slice by slice ends as if it had been placed at once (P12)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer import ingest
from indexer.index import plan
from tests.support.core import Core, Speaker, check_mirror
from tests.support.core_events import BLOCK, CLEARED, placeholder, prompt, removed, stored

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCKS = 10
PARENTS = (0, 0, 1, 2, 3, 2, 5, 6, 3, 8, 1)
"""Of blocks 1..10: a tree with forks, block 1 the root."""


def tokens(block: int) -> list[int]:
    """Those of one block: no two alike."""
    return prompt(1, block * BLOCK)


def path(block: int) -> list[int]:
    """The prompt that ends with it."""
    return [*path(PARENTS[block]), *tokens(block)] if block else []


numbers = st.integers(1, BLOCKS)
operations = st.one_of(
    st.tuples(st.just("store"), numbers),
    st.tuples(st.just("store"), numbers),
    st.tuples(st.just("store"), numbers),
    st.tuples(st.just("remove"), numbers),
    st.tuples(st.just("place"), numbers),
    st.tuples(st.just("evict"), numbers),
    st.tuples(st.sampled_from(["gap", "clear"]), st.just(0)),
)
steps = st.lists(st.tuples(operations, st.integers(0, 3)), max_size=40)


def event(what: str, block: int) -> dict[str, Any]:
    """As it stands on the wire."""
    if what == "store":
        return stored([block], tokens(block), PARENTS[block] or None)
    if what == "place":
        return placeholder([block])
    return CLEARED if what == "clear" else removed(block, medium="CPU" if what == "evict" else "GPU")


def say(engine: Speaker, what: str, block: int) -> None:
    """One batch, or a kept gap."""
    if what == "gap":
        engine.lose()
        engine.gap()
    else:
        engine.say(event(what, block))


def known(core: Core, engine: Speaker) -> dict[str, object]:
    """All that can be asked of it, and what it counts."""
    entries = [core.ask(path(block))["pod"] for block in range(1, BLOCKS + 1)]
    source = engine.source
    lanes = source.map.lanes.values()
    return {
        "found": [(entry.matched_tokens, entry.tiers, entry.state) for entry in entries],
        "pairs": source.pairs,
        "copies": source.copies,
        "announced": {(lane.tier, h): lane.announced(h) for lane in lanes for piece in lane.maps for h in piece},
    }


@given(steps)
def test_slices_change_nothing_in_the_end(steps: list[tuple[tuple[str, int], int]]) -> None:
    """The same stream twice: placed at once, and one block at a time with housekeeping now and then."""
    with pytest.MonkeyPatch.context() as patch:
        at_once = run(steps, lambda _: None)

        for module, limit in ((plan, "HEALED_WITH_A_BATCH"), (plan, "RUN_MAX"), (ingest, "HEALED_IN_A_SLICE")):
            patch.setattr(module, limit, 1)
        sliced = run(steps, lambda core: core.ingest._heal_slice() if core.ingest._healing else None)

    assert at_once == sliced


def run(steps: list[tuple[tuple[str, int], int]], meanwhile: Callable[[Core], None]) -> dict[str, object]:
    """What is known after all of it."""
    core = Core()
    engine = core.engine(blocks_total=1_000_000)  # never full: which ghosts are given up depends on the moment
    for (what, block), slices in steps:
        say(engine, what, block)
        for _ in range(slices):
            meanwhile(core)
    core.tidy()
    check_mirror(core.mirror)
    return known(core, engine)
