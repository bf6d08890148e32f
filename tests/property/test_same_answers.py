"""Same events in, same answers out (P12): however they are cut into batches, spelt, and interleaved with the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer import ingest
from indexer.decode import large
from tests.support.core import Core, Speaker
from tests.support.core_events import CLEARED
from tests.support.core_streams import (
    CHAINS,
    LAYOUTS,
    REMOVED,
    STORED,
    Contents,
    Removal,
    Store,
    removal_event,
    store_event,
)

if TYPE_CHECKING:
    from indexer.index.source import SourceIndex
    from schemas.lookup import PodEntry
    from tests.support.core_streams import Chain

OPERATIONS = st.lists(st.one_of(STORED, REMOVED, st.just(["clear"])), min_size=1, max_size=12).map(
    lambda lists: [operation for each in lists for operation in each]
)


def events_of(operations: list[Store | Removal | str], layout: str, form: str) -> list[object]:
    """The stream of one engine, in one form."""
    contents, groups = Contents(), LAYOUTS[layout]
    out: list[object] = []
    for operation in operations:
        if isinstance(operation, str):
            out.append(CLEARED if form == "map" else ["AllBlocksCleared"])
        elif isinstance(operation, Removal):
            out.append(removal_event(operation._replace(form=form), contents, "seed", groups).event)
        else:
            told = store_event(operation._replace(form=form), contents, "seed", groups, lambda *_: False)
            out.append(told.event)
    return out


def said(entry: PodEntry) -> dict[str, Any]:
    """Everything of an entry but which life and batch it is of."""
    fields = ("matched_tokens", "reusable_tokens", "tiers", "prefix", "score", "state", "bound", "reason")
    told = {name: getattr(entry, name) for name in fields}
    # An adapter is known as soon as any engine of the model has named it.
    return {**told, "reason": "no_match"} if entry.reason == "adapter_unknown" else told


def counted(source: SourceIndex) -> dict[str, int]:
    """What was counted of its events."""
    names = [name for name in source.counters if name.startswith("skipped.")]
    return {name: source.counters[name] for name in ("stored", "removed", "cleared", "orphaned", "healed", *names)}


def answers(core: Core, chains: list[Chain]) -> list[dict[str, Any]]:
    """What is said of the engine for these prompts."""
    return [said(core.ask(**chain.query(1))["pod"]) for chain in chains]


def speak(engine: Speaker, events: list[object], cuts: list[int]) -> None:
    """One batch up to each cut, then the rest."""
    start = 0
    for cut in [*sorted(cuts), len(events)]:
        engine.say(*events[start:cut])
        start = max(start, cut)


@given(
    OPERATIONS,
    st.sampled_from(sorted(LAYOUTS)),
    st.lists(st.integers(0, 30), max_size=6),
    st.lists(CHAINS, min_size=1, max_size=4),
)
def test_batches_forms_and_company_make_no_difference(
    operations: list[Store | Removal | str], layout: str, cuts: list[int], chains: list[Chain]
) -> None:
    """One event a batch and many, arrays and maps, alone and beside others with slices of housekeeping between."""
    alone, beside = Core(), Core(shift=13)
    maps, arrays = events_of(operations, layout, "map"), events_of(operations, layout, "array")
    speak(alone.engine(), maps, list(range(len(maps))))

    other = beside.engine("other")
    engine = beside.engine()
    start = 0
    for cut in [*sorted(cuts), len(arrays)]:
        engine.say(*arrays[start:cut])
        start = max(start, cut)
        other.say(*maps[:cut])
        beside.ingest.tidy_slice()
        if cut % 3 == 0:
            other.restart()

    assert answers(alone, chains) == answers(beside, chains)
    assert (alone.sinks.popitem()[1].source.pairs) == engine.source.pairs


@given(
    OPERATIONS,
    st.sampled_from(sorted(LAYOUTS)),
    st.sampled_from(["map", "array"]),
    st.lists(st.integers(0, 30), max_size=6),
    st.lists(CHAINS, min_size=1, max_size=4),
    st.tuples(st.integers(1, 400), st.integers(1, 3)),
)
def test_large_batches_in_pieces_make_no_difference(
    operations: list[Store | Removal | str],
    layout: str,
    form: str,
    cuts: list[int],
    chains: list[Chain],
    piece: tuple[int, int],
) -> None:
    """Whatever the size of the pieces, also in the middle of an event."""
    whole, in_pieces = Core(), Core(shift=13)
    events = events_of(operations, layout, form)
    speak(whole.engine(), events, cuts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest, "LARGE_BYTES", 0)
        patch.setattr(large, "PIECE_BYTES", piece[0])
        patch.setattr(large, "PIECE_BLOCKS", piece[1])
        speak(in_pieces.engine(), events, cuts)

    assert answers(whole, chains) == answers(in_pieces, chains)
    one, other = (core.sinks.popitem()[1].source for core in (whole, in_pieces))
    assert (one.pairs, one.copies, one.facts.sequence) == (other.pairs, other.copies, other.facts.sequence)
    assert counted(one) == counted(other)
    assert one.facts.doubts == other.facts.doubts
    assert (one.groups, one.lane_table.main_groups) == (other.groups, other.lane_table.main_groups)
