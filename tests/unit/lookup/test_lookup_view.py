"""What is prepared of each source: as new as its facts, never younger than it is, in memory that is bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec
import pytest

from indexer.index.source import SourceIndex
from indexer.index.states import StateLimits, state_of
from indexer.lookup_view import (
    FRAGMENTS_MAX,
    QUANTUM_MIN_S,
    QUANTUM_PER_SOURCE_S,
    TOUCHES_KEPT,
    FleetView,
    encode_held_in_gpu,
    encode_nothing,
    frame_of,
    nothing_entry,
)
from schemas.lookup import LookupQuery, PodEntry, PrefixTokens, TierTokens
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


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_encoded_forms_are_kept_within_bounds(core: Core, encoding: Literal["json", "msgpack"]) -> None:
    """Callers may call a pod by any number of names."""
    view, source = FleetView(LIMITS), core.sinks[next(iter(core.sinks))].source
    prepared = view.prepared(source, 1_000.004)
    decode = msgspec.json.decode if encoding == "json" else msgspec.msgpack.decode
    for number in range(2 * FRAGMENTS_MAX):
        raw = encode_nothing(source, prepared, "no_match", f"name-{number}", encoding)
        assert f"name-{number}" == decode(bytes(raw), type=PodEntry).pod
    assert FRAGMENTS_MAX == len(prepared.shells if encoding == "json" else prepared.fragments)


def test_what_is_kept_of_an_untouched_source_grows_older_with_it(core: Core) -> None:
    """Quantum after quantum, byte for byte as the encoder has it; and no facts of before are shown after a touch."""
    view, source = FleetView(LIMITS), core.sinks[next(iter(core.sinks))].source
    shown = set()
    for step in range(600):
        now = 1_000.004 + step * QUANTUM_MIN_S
        if step == 100:
            core.engine("a").say(stored([2], prompt(1)))
            view.touch(source)
        if step == 300:
            source.facts.cordoned = True
            view.touch(source)
        prepared = view.prepared(source, now)
        entry = nothing_entry(source, prepared, "no_match", None)
        frame = frame_of(source, prepared, None, 1.0, "json")
        framed = frame.head + encode_held_in_gpu(16, 12, 0.25, "json") + frame.tail
        held = msgspec.structs.replace(
            nothing_entry(source, prepared, None, None),
            matched_tokens=16,
            reusable_tokens=12,
            tiers=TierTokens(16),
            prefix=PrefixTokens(16, 16, 16, 16),
            score=0.25,
        )

        assert msgspec.json.encode(entry) == bytes(encode_nothing(source, prepared, "no_match", None, "json"))
        assert msgspec.json.encode(held) == framed
        facts = (prepared.state, prepared.scored, prepared.sequence)
        assert (state_of(source.facts, now, LIMITS), step < 300, source.facts.sequence) == facts
        shown.add((facts, prepared.lag_ms))
    assert {"live", "stale"} == {facts[0] for facts, _ in shown}
    assert 500 < len(shown)


@pytest.mark.parametrize(
    "change",
    [
        lambda source: setattr(source.facts, "cordoned", True),
        lambda source: setattr(source.facts, "sequence", 17),
        lambda source: setattr(source.facts, "generation", 17),
        lambda source: setattr(source, "block_size", 64),
        lambda source: source.facts.doubts.add("gap"),
        lambda source: source.facts.shortfalls.add("expired"),
    ],
)
def test_a_fact_that_nobody_told_of_shows_a_quantum_later(core: Core, change: Callable[[SourceIndex], None]) -> None:
    """What is kept of an entry is compared with the facts, whoever changed them."""
    view, source = FleetView(LIMITS), core.sinks[next(iter(core.sinks))].source
    view.prepared(source, 1_000.004)
    change(source)
    later = 1_000.004 + 2 * QUANTUM_MIN_S
    kept, fresh = view.prepared(source, later), FleetView(LIMITS).prepared(source, later)

    assert fresh == kept
    assert encode_nothing(source, fresh, None, None, "json") == encode_nothing(source, kept, None, None, "json")


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
