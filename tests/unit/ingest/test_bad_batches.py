"""Bytes and events that are not as they should be: each costs itself, and trust."""

from __future__ import annotations

import pytest

from indexer.model import RawBatch, SourceId
from tests.support.core import Core, Speaker
from tests.support.core_events import payload, prompt, removed, stored

TOKENS = prompt(4)


def matched(core: Core, pod: str = "pod") -> int:
    """Tokens of the prompt that the pod holds."""
    return core.ask(TOKENS)[pod].matched_tokens


def trust(core: Core) -> tuple[str, str, str]:
    """Answer state, source state, bound."""
    answer = core.ask(TOKENS)
    return answer.state, answer["pod"].state, answer["pod"].bound


@pytest.fixture
def held() -> tuple[Core, Speaker]:
    """An engine that holds the whole prompt."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2, 3, 4], TOKENS))
    return core, engine


# -- bytes that are no batch -------------------------------------------------------------------------------------------


def test_a_bad_batch_costs_itself_and_trust(held: tuple[Core, Speaker]) -> None:
    """It may have held removals: suspect; the stream goes on."""
    core, engine = held
    engine.say_bytes(b"\xff\x00 not a batch")
    engine.say(removed(4))

    assert (12, ("degraded", "suspect", "estimate"), 2) == (matched(core), trust(core), engine.sink.cursor)
    assert 1 == engine.source.counters["skipped.undecodable"]


def test_an_unknown_event_costs_itself_and_trust(held: tuple[Core, Speaker]) -> None:
    """Its neighbours count."""
    core, engine = held
    engine.say(stored([5], prompt(1, 16), parent=4), {"type": "TierBlocksCleared", "medium": "GPU"}, removed(99))

    assert 20 == core.ask(prompt(5))["pod"].matched_tokens
    assert ("degraded", "suspect", "estimate") == trust(core)


def test_a_broken_store_costs_itself_and_trust(held: tuple[Core, Speaker]) -> None:
    """What it meant to say nobody knows."""
    core, engine = held
    engine.say({**stored([5], prompt(1, 16)), "token_ids": None}, stored([6], prompt(1, 50)))

    assert (16, ("degraded", "suspect", "estimate")) == (matched(core), trust(core))
    assert 4 == core.ask(prompt(1, 50))["pod"].matched_tokens


def test_envelopes_of_two_elements_and_of_maps(held: tuple[Core, Speaker]) -> None:
    """No rank told; the rank counts for the collector, not here."""
    core, engine = held
    short = payload(removed(4))[:-1]
    engine.say_bytes(b"\x92" + short[1:])
    engine.say(removed(3), rank=7)

    assert 8 == matched(core)
    assert SourceId("pod", 0) in core.sinks


def test_a_batch_out_of_the_air_is_applied_as_the_collector_says() -> None:
    """The sink trusts the order it is given; the topic means nothing here."""
    core = Core()
    engine = core.engine()
    engine.sink.apply(RawBatch(b"kv@elsewhere@m", 0, payload(stored([1], TOKENS[:4]))))

    assert 4 == matched(core)
