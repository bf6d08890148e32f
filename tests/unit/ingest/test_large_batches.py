"""Large batches: applied in pieces, in order with everything else that is told of the source."""

from __future__ import annotations

import random

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from indexer import ingest
from indexer.decode import large
from indexer.model import RawBatch
from indexer.tracing import Tracing
from tests.support.core import Core, Speaker
from tests.support.core_events import payload, prompt, removed, stored

BLOCKS = 6
TOKENS = prompt(BLOCKS)


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "LARGE_BYTES", 130)
    monkeypatch.setattr(large, "PIECE_BLOCKS", 2)


def matched(core: Core) -> int:
    """Tokens the one engine is said to hold."""
    (entry,) = core.ask([*TOKENS, 1]).pods
    return entry.matched_tokens


def begin(core: Core, sequence: int = 0) -> Speaker:
    """An engine of whose large batch the first piece is applied."""
    engine = core.engine()
    for earlier in range(sequence):
        engine.sink.apply(RawBatch(b"", earlier, payload()))
    engine.sink.apply(RawBatch(b"", sequence, payload(stored([1, 2, 3, 4, 5, 6], TOKENS))))
    assert engine.sink.busy
    return engine


def finish(engine: Speaker) -> int:
    """Apply the rest; how many steps that took."""
    steps = 1
    while engine.sink.go_on():
        steps += 1
    assert not engine.sink.busy
    return steps


def test_a_lookup_between_two_pieces_sees_what_is_applied() -> None:
    """And the number of the batch only when it is applied whole: until then nothing is `exact`, whoever applies it."""
    core = Core()
    engine = begin(core, sequence=1)
    seen = [(matched(core), engine.sink.cursor, core.ask(TOKENS).state)]
    while engine.sink.go_on():
        seen.append((matched(core), engine.sink.cursor, core.ask(TOKENS).state))

    assert [(8, 0, "degraded"), (16, 0, "degraded"), (24, 0, "degraded")] == seen
    assert ("live", "exact") == (core.ask(TOKENS)["pod"].state, core.ask(TOKENS).state)
    assert (24, 1, 1) == (matched(core), engine.sink.cursor, engine.source.counters["stored"])


@pytest.mark.parametrize("blocks", [1, 2, 6])
def test_what_is_computed_anew_is_noticed_in_whatever_pieces(monkeypatch: pytest.MonkeyPatch, blocks: int) -> None:
    """Two blocks that are held, in one store: also where each is a piece of its own."""
    monkeypatch.setattr(large, "PIECE_BLOCKS", blocks)
    core = Core()
    engine = core.engine()
    for sequence, again in enumerate((stored([1, 2, 3], TOKENS[:12]), stored([1, 2], TOKENS[:8]))):
        engine.sink.apply(RawBatch(b"", sequence, payload(again, stored([9], TOKENS[:4]), stored([9], TOKENS[:4]))))
        while engine.sink.go_on():
            pass
        assert ("live", "suspect")[sequence] == core.ask(TOKENS)["pod"].state


@pytest.mark.parametrize("sequence", [0, 5])
def test_the_first_batch_decides_the_bound_in_pieces_too(sequence: int) -> None:
    """Sequence 0 is a whole history."""
    core = Core()
    engine = core.engine()
    engine.sink.apply(RawBatch(b"", sequence, payload(stored([1, 2, 3, 4, 5, 6], TOKENS))))
    finish(engine)

    assert ("exact" if sequence == 0 else "lower") == core.ask(TOKENS).pods[0].bound
    assert sequence == engine.sink.cursor


def test_what_is_told_meanwhile_waits_its_turn() -> None:
    """Batches and gaps, large and small."""
    core = Core()
    engine = begin(core)
    engine.sink.apply(RawBatch(b"", 1, payload(removed(6))))
    engine.sink.gap(2, 3)
    engine.sink.apply(RawBatch(b"", 4, payload(stored([1, 2, 3, 4, 5, 6], TOKENS))))
    engine.sink.apply(RawBatch(b"", 5, payload(removed(5))))
    assert (8, -1, 0) == (matched(core), engine.sink.cursor, engine.source.counters["gaps"])

    finish(engine)

    assert (16, 5, 1, 2) == (
        matched(core),
        engine.sink.cursor,
        engine.source.counters["gaps"],
        engine.source.counters["stored"],
    )


def test_a_span_is_of_one_batch_also_where_it_waited() -> None:
    """It ends with the last piece of its own, and counts nobody else's events."""
    core, ended = Core(), InMemorySpanExporter()
    core.ingest.tracing = Tracing(SimpleSpanProcessor(ended), core.clock, random.Random(7), ratio=1.0, about={})
    engine = begin(core)
    engine.sink.apply(RawBatch(b"", 1, payload(*(stored([n], TOKENS[:4]) for n in (7, 8, 9)))))
    engine.sink.apply(RawBatch(b"", 2, payload(removed(5))))
    assert not ended.get_finished_spans()

    finish(engine)

    told = [span.attributes or {} for span in ended.get_finished_spans()]
    assert [(0, 1), (1, 3), (2, 1)] == [(span["sequence"], span["events"]) for span in told]


def test_a_restart_drops_the_rest() -> None:
    """Of the batch and of what waits behind it (P4)."""
    core = Core()
    engine = begin(core)
    engine.sink.apply(RawBatch(b"", 1, payload(stored([9], TOKENS[:4]))))
    engine.sink.restart("sequence_went_back")

    assert not engine.sink.busy
    assert not engine.sink.go_on()
    assert (0, None) == (matched(core), engine.sink.cursor)


def test_a_removed_source_applies_nothing_more() -> None:
    """Its sink is closed."""
    core = Core()
    engine = begin(core)
    core.ingest.close_source(engine.sink)

    assert not engine.sink.go_on()
    assert not engine.sink.busy


def test_a_clear_forgets_what_was_applied() -> None:
    """What comes after it counts again, once its parents do."""
    core = Core()
    engine = begin(core)
    core.ingest.clear(engine.sink)
    finish(engine)

    assert (0, 0) == (matched(core), engine.sink.cursor)
    engine.next_sequence = 1
    engine.say(stored([1, 2], TOKENS[:8]))
    assert 24 == matched(core)


def test_a_large_payload_that_is_no_batch() -> None:
    """Counted, and the source is suspect."""
    core = Core()
    engine = core.engine()
    engine.say_bytes(b"\xff" * 200)

    assert ("suspect", 1) == (core.ask(TOKENS).pods[0].state, engine.source.counters["skipped.undecodable"])
    assert not engine.sink.busy


def test_a_large_first_store_makes_its_group_as_credible_as_a_small_one() -> None:
    """One store that contradicts it and all that follow is not believed (decisions/0007)."""
    core = Core()
    engine = core.engine()
    kind = {"kv_cache_spec_kind": "full_attention", "group_idx": 0}
    engine.say(stored([1, 2, 3, 4, 5, 6], TOKENS, **kind))
    engine.say(stored([7], TOKENS[:4], 6, **kind))

    engine.say(stored([8], TOKENS[:4], 7, kv_cache_spec_kind="mamba", group_idx=0))

    assert 24 == matched(core)
    assert 1 == engine.source.counters["skipped.group_contradiction"]
