"""Sources that leave, return or are long gone: nothing brings back what they held, and nothing is left of it."""

from __future__ import annotations

import pytest

from tests.support.core import Core, Speaker, check_mirror
from tests.support.core_events import placeholder, prompt, stored

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


# -- leaving -----------------------------------------------------------------------------------------------------------


def test_nothing_brings_back_a_source_that_left(held: tuple[Core, Speaker]) -> None:
    """Events in flight find a closed sink, also after the same pod came back."""
    core, engine = held
    core.remove("pod")
    engine.say(stored([1, 2, 3, 4], TOKENS))
    assert ([], "no_signal") == (core.ask(TOKENS).pods, core.ask(TOKENS).state)

    core.engine()
    engine.say(stored([1, 2, 3, 4], TOKENS))
    engine.sink.restart("probe_differs")
    engine.sink.gap(0, 5)
    engine.sink.proved()
    engine.sink.syncing(True)
    engine.sink.alive(connected=False)

    assert (0, ("no_signal", "new", "lower")) == (matched(core), trust(core))
    assert not engine.sink.open


def test_a_pod_of_fifty_thousand_blocks_leaves_nothing() -> None:
    """Neither mappings nor counts nor slots."""
    core = Core()
    engine = core.engine()
    engine.say(stored(range(1, 50_001), prompt(50_000)))
    engine.say(stored(range(1, 50_001), prompt(50_000)), placeholder(range(1, 1_001)), placeholder([10**9]))
    core.remove("pod")
    core.tidy()

    assert (0, 0, 1) == (core.mirror.table.live, core.mirror.retired_slots(), len(core.mirror.book))
    assert {} == core.mirror.book.tables
    assert {} == engine.source.map.lanes
    check_mirror(core.mirror)


def test_a_pod_may_leave_and_return_for_ever() -> None:
    """Slots come round; the smallest table is enough."""
    core = Core()
    for life in range(200):
        engine = core.engine()
        engine.say(stored([life * 10 + 1, life * 10 + 2], TOKENS[:8]))
        assert 8 == matched(core)
        core.remove("pod")
        if life % 7 == 0:
            core.tidy()
    core.tidy()

    assert (0, 1) == (core.mirror.table.live, len(core.mirror.book))


def test_a_source_long_gone_gives_its_memory_back() -> None:
    """After `retain_s` without a sign of life; when it comes back its history is known to be incomplete."""
    core = Core()
    engine = core.engine()
    engine.say(stored([1, 2], TOKENS[:8]), placeholder([77]))
    core.clock.at += 3_599.0
    assert not core.ingest.forget_lost(engine.source, 3_600.0)
    core.clock.at += 1.0
    before = core.ask(TOKENS)["pod"].generation

    assert core.ingest.forget_lost(engine.source, 3_600.0)
    after = core.ask(TOKENS)["pod"].generation
    assert before != after
    assert {"forgotten"} == engine.source.facts.shortfalls
    assert core.ingest.forget_lost(engine.source, 3_600.0)
    core.tidy()
    assert (0, 0) == (core.mirror.table.live, engine.source.map.waiting)
    assert after == core.ask(TOKENS)["pod"].generation
    core.alive()

    assert (0, ("degraded", "live", "lower")) == (matched(core), trust(core))


def test_a_source_that_was_never_seen_is_not_long_gone() -> None:
    """There is no moment to count from."""
    core = Core()
    engine = core.engine(connected=False)
    core.clock.at += 10_000.0

    assert not core.ingest.forget_lost(engine.source, 3_600.0)
