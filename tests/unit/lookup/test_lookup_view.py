"""What is prepared of each source: as new as its facts, never younger than it is, in memory that is bounded."""

from __future__ import annotations

import msgspec
import pytest

from indexer.index.states import StateLimits
from indexer.lookup_view import (
    FRAGMENTS_MAX,
    QUANTUM_MIN_S,
    QUANTUM_PER_SOURCE_S,
    TOUCHES_KEPT,
    FleetView,
    encode_nothing,
)
from schemas.lookup import LookupQuery, PodEntry
from tests.support.core import Answer, Core
from tests.support.core_events import prompt, removed, stored, u32

LIMITS = StateLimits()


@pytest.fixture
def core() -> Core:
    """One engine with one block, at a moment in the middle of a quantum."""
    core = Core()
    core.clock.at = 1_000.004
    core.engine("a").say(stored([1], prompt(1)))
    return core


def test_ages_are_those_of_the_end_of_the_quantum(core: Core) -> None:
    """Prepared once a quantum, and shown no younger than they are at its end."""
    view, source = FleetView(LIMITS), core.sinks[next(iter(core.sinks))].source
    early = view.prepared(source, 1_000.004)

    assert early is view.prepared(source, 1_000.009)
    assert 6 <= (early.lag_ms or 0) <= 7
    assert early is not view.prepared(source, 1_000.010_1)
    assert pytest.approx(1_000.010) == early.until


def test_a_large_fleet_has_longer_quanta(core: Core) -> None:
    """Preparing it all stays a small part of the time."""
    view, source = FleetView(LIMITS), core.sinks[next(iter(core.sinks))].source
    view.fit(1_000)
    until = view.prepared(source, 1_000.004).until

    assert QUANTUM_MIN_S < 1_000 * QUANTUM_PER_SOURCE_S
    assert pytest.approx(1_000.0 + 1_000 * QUANTUM_PER_SOURCE_S) == until


def test_a_state_that_falls_due_ends_a_quantum(core: Core) -> None:
    """However long it is."""
    view, source = FleetView(LIMITS), core.sinks[next(iter(core.sinks))].source
    view.fit(100_000)
    source.facts.alive_at = 1_000.0

    assert ("live", 1_005.0) == (view.prepared(source, 1_000.1).state, view.prepared(source, 1_000.1).until)
    assert "stale" == view.prepared(source, 1_005.0).state


def test_a_touched_source_is_prepared_anew(core: Core) -> None:
    """And whoever keeps what was composed of it can tell which sources those were."""
    view, source = FleetView(LIMITS), core.sinks[next(iter(core.sinks))].source
    before, epoch = view.prepared(source, 1_000.004), view.epoch
    source.facts.doubts.add("gap")
    view.touch(source)

    assert ("live", "suspect") == (before.state, view.prepared(source, 1_000.004).state)
    assert [source] == view.touched_since(epoch)
    assert [] == view.touched_since(view.epoch)
    for _ in range(TOUCHES_KEPT):
        view.touch(source)
    assert view.touched_since(epoch) is None


def test_encoded_forms_are_kept_within_bounds(core: Core) -> None:
    """Callers may call a pod by any number of names."""
    view, source = FleetView(LIMITS), core.sinks[next(iter(core.sinks))].source
    prepared = view.prepared(source, 1_000.004)
    for number in range(2 * FRAGMENTS_MAX):
        raw = encode_nothing(source, prepared, "no_match", f"name-{number}", "json")
        assert f"name-{number}" == msgspec.json.decode(bytes(raw), type=PodEntry).pod
    assert FRAGMENTS_MAX == len(prepared.fragments)
    assert (
        encode_nothing(source, prepared, "no_match", "name-0", "json")
        is prepared.fragments["json", "no_match", "name-0"]
    )


def test_both_encodings_say_the_same(core: Core) -> None:
    """Entries with hits and entries without, in JSON and in MessagePack."""
    core.engine("b").say()
    query = LookupQuery(tokens=u32(prompt(1)))

    by_json = msgspec.json.decode(msgspec.json.encode(core.lookup.answer(query, "json")), type=Answer)
    packed = msgspec.msgpack.encode(core.lookup.answer(query, "msgpack"))
    by_msgpack = msgspec.msgpack.decode(packed, type=Answer)

    assert by_json == by_msgpack
    assert {"a": 4, "b": 0} == by_json.matched


@pytest.mark.parametrize("names", [None, ("a", "unseen", 'odd "matched_tokens": name'), ("other-model",)])
def test_entries_put_together_from_parts_are_what_the_encoder_makes(names: tuple[str, ...] | None) -> None:
    """Byte for byte: hits of equal and of different length, tiers, doubts, several block sizes, a hybrid source."""
    core = Core()
    tokens = prompt(8)
    for pod in ("a", "b", 'odd "matched_tokens": name'):
        core.engine(pod).say(stored([1, 2, 3], tokens[:12]))
    core.engine("short").say(stored([1], tokens[:4]))
    core.engine("tiered").say(stored([1, 2], tokens[:8]), stored([1, 2, 3], tokens[:12], medium="CPU"), removed(2))
    core.engine("wide").say(stored([1], tokens[:8], block_size=8))
    core.engine("windows").say(stored([1, 2], tokens[:8], group_idx=0, kv_cache_spec_kind="sliding_window"))
    core.engine("other-model", model="m2").say(stored([1, 2], tokens[:8]))
    doubtful = core.engine("doubtful")
    doubtful.say(stored([1, 2, 3], tokens[:12]))
    doubtful.lose()
    doubtful.gap()
    query = LookupQuery(tokens=u32(tokens), pods=names)

    answer = core.lookup.answer(query, "json")
    entries = [msgspec.json.encode(entry) for entry in answer.pods]

    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(core.lookup.answer(query, "msgpack")), type=Answer)
    assert [msgspec.json.encode(entry) for entry in plain.pods] == entries
    assert any(entry.matched_tokens for entry in plain.pods)
