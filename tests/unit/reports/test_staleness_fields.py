"""Each field of the staleness report, from the list in the code, tells what happened and not what it always tells."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest

from indexer.model import Tier
from indexer.reports.staleness import Staleness
from schemas.reports import StalenessReport
from tests.support.core import Core, Speaker
from tests.support.core_events import CLEARED, placeholder, prompt, removed, stored
from tests.support.report_fields import ON_A_STORE, fields_of, said
from tests.support.steps import done

HOUR_S: Final = 3_600
TALKS: Final = frozenset([*range(0, 3_000, 600), *range(3_000, 3_540, 120), *range(3_540, 3_600, 20)])
"""Seconds of the hour in which the engine speaks: ever more often, so that no two windows see the same."""
PROOFS: Final = frozenset(range(50, 3_600, 90))
"""Seconds in which it says that there is nothing new."""
CLEARS: Final = frozenset({1_800, 3_360, 3_580})
AFTER_S: Final = 2.5
SILENT: Final = 2
"""Seconds at the end of the windows that were not sampled."""
QUANTUM_MS: Final = 11
"""For so long an answer's ages stand, and then are told as of the end of that."""
WAITING_MAX: Final = 3
TTL_S: Final = 100.0
KEYS: Final = {"tiers": "cpu", "states": "suspect"}


class Story:
    """One engine to which all of it happens, and what the report has to say of that."""

    def __init__(self) -> None:
        self.core = Core(orphans_max=WAITING_MAX, tier_ttls={Tier.STORAGE: TTL_S})
        self.staleness = Staleness(
            self.core.registry,
            self.core.lookup.view,
            self.core.clock,
            owner=lambda _: None,
            follows=lambda _: False,
            journal_age_s=lambda _: None,
            expected_s=self.core.routed.ttl_s,
        )
        self.began = self.core.clock.at
        self.lags: list[float] = []
        self.event_ages: list[float] = []

    def report(self) -> Any:  # noqa: ANN401  as a caller reads it
        report = done(self.staleness.report(pod=None, model=None, state=None, tenant=None))
        return msgspec.to_builtins(report)

    def tell(self) -> Speaker:
        engine = self.core.engine("engine-1", dp_rank=3, model="m", tenant="acme", blocks_total=10)
        _evicted_unheard(engine)
        _what_cannot_be_used(engine)
        _in_vain(engine)
        self.core.clock.at += TTL_S
        self.core.tidy()
        engine.say(CLEARED)
        engine.restart()
        self._hour(engine)
        self.core.clock.at += 1.0
        self.core.alive()
        _at_the_end(engine)
        done(self.staleness.sample())
        self.lags.append(0.0)
        self.event_ages.append(0.0)
        self.core.clock.at += 1.0
        engine.sink.proved()
        self.core.clock.at += AFTER_S - 1.0
        return engine

    def _hour(self, engine: Speaker) -> None:
        began = proof = message = self.core.clock.at
        for second in range(HOUR_S):
            now = self.core.clock.at = began + second
            self.core.alive()
            if second in TALKS:
                engine.say(*([CLEARED] if second in CLEARS else []))
                message = proof = now
            elif second in PROOFS:
                engine.sink.proved()
                proof = now
            done(self.staleness.sample())
            self.lags.append(now - proof)
            self.event_ages.append(now - message)


def _evicted_unheard(engine: Speaker) -> None:
    """A gap that is not healed, after which ten blocks turn out to be gone."""
    engine.say(*_blocks(0))
    engine.lose()
    engine.gap()
    engine.say(*_blocks(100))
    for start in (200, 300, 400):
        engine.say(*(removed(start - 100 + each) for each in range(1, 11)), *_blocks(start))


def _blocks(start: int) -> list[object]:
    return [stored([start + each], prompt(1, 1_000 * (start + each))) for each in range(1, 11)]


def _what_cannot_be_used(engine: Speaker) -> None:
    engine.say(*({"type": "BlockTeleported"} for _ in range(6)))
    engine.say_bytes(b"\xc1")
    engine.say({"type": "BlockStored", "block_hashes": "no"})
    engine.say(*(removed(number) for number in range(9_001, 9_008)))


def _in_vain(engine: Speaker) -> None:
    """Blocks that wait for others: one is placed, two are taken back; and what lies where no end is announced."""
    engine.say(CLEARED)
    engine.say(stored([51], prompt(1, 4), parent=50), stored([50], prompt(1)))
    for number in (61, 71):
        engine.say(stored([number], prompt(1, 400), parent=number - 1), removed(number))
    engine.say(stored([81, 82], prompt(2, 800)), placeholder([81, 82], "STORAGE"))


def _at_the_end(engine: Speaker) -> None:
    for what, times in WIRE.items():
        engine.sink.count(what, times)  # type: ignore[arg-type]
    for _ in range(8):
        engine.core.delays.seen(engine.source.descriptor.id, "m", 1.5)
    engine.say(
        stored([1, 2, 3, 4], prompt(4)), placeholder([1, 2, 3], "CPU"), placeholder([4], "CPU"), placeholder([1], "CPU")
    )
    engine.say(removed(4), removed(2, 3, medium="CPU"))
    engine.say(*(stored([number], prompt(1, 4_000), parent=9_000) for number in range(500, 507)))
    engine.lose()
    engine.lose()
    engine.gap()


WIRE: Final = {
    "gaps": 5,
    "replays_ok": 11,
    "replays_partial": 12,
    "replays_failed": 13,
    "replays_timeout": 14,
    "replays_foreign": 15,
    "reconnects": 16,
    "duplicates": 17,
}
"""What the collector counts."""


@pytest.fixture(scope="module")
def fresh() -> Any:  # noqa: ANN401  as a caller reads it
    """Of an engine of which nothing is known but its name."""
    story = Story()
    story.core.engine("a", connected=False)
    return story.report()


@pytest.fixture(scope="module")
def story() -> Story:
    """Told."""
    story = Story()
    story.tell()
    return story


@pytest.fixture(scope="module")
def report(story: Story) -> Any:  # noqa: ANN401  as a caller reads it
    """What was reported of it."""
    return story.report()


EXPECTED: Final[dict[str, object]] = {
    "at": "2023-11-14T23:31:42.500+00:00",
    "seen_s": 3_702,
    "states": 1,
    "sources.pod": "engine-1",
    "sources.dp_rank": 3,
    "sources.model": "m",
    "sources.tenant": "acme",
    "sources.state": "suspect",
    "sources.since": "2023-11-14T23:31:40.000+00:00",
    "sources.why": "something claimed may be false: a gap: messages were lost and could not be fetched again",
    "sources.bound": "estimate",
    "sources.sequence": 17,
    "sources.lag_ms.now": 1_511,
    "sources.event_age_ms.now": 2_511,
    "sources.gaps.noticed": 5,
    "sources.gaps.healed": 3,
    "sources.gaps.unhealed": 2,
    "sources.gaps.batches_lost": 3,
    "sources.replays.ok": 11,
    "sources.replays.partial": 12,
    "sources.replays.failed": 13,
    "sources.replays.timeout": 14,
    "sources.replays.foreign": 15,
    "sources.restarts": 1,
    "sources.reconnects": 16,
    "sources.clears.engine": 5,
    "sources.clears.1m": 1,
    "sources.clears.10m": 2,
    "sources.clears.1h": 3,
    "sources.orphans.parked": 10,
    "sources.orphans.healed": 1,
    "sources.orphans.expired": 2,
    "sources.orphans.refused": 4,
    "sources.orphans.waiting": 3,
    "sources.removals_unknown": 7,
    "sources.duplicates": 17,
    "sources.events_unknown": 6,
    "sources.decode_errors": 2,
    "sources.expired": 2,
    "sources.ghosts_dropped": 10,
    "sources.tiers.stored_events": 3,
    "sources.tiers.stored_blocks": 5,
    "sources.tiers.removed_events": 1,
    "sources.tiers.removed_blocks": 2,
    "sources.tiers.blocks": 2,
    "sources.tiers.event_age_ms": 2_500,
    "sources.copies": 5,
    "sources.expected_for_ms": 3_000,
    "sources.warnings": [
        "the engine's clock and ours differ by more than 30 s (informative)",
        "3 blocks wait for a parent or for tokens",
    ],
}
"""What the story comes to; ages show as the upper edge of the 10 ms for which an answer stands."""
WINDOWS: Final = {"1m": 60, "10m": 600, "1h": HOUR_S}
PERCENTILES: Final = [
    f"sources.{age}.{window}.p{share}"
    for age in ("lag_ms", "event_age_ms")
    for window in WINDOWS
    for share in (50, 95, 99)
]


def test_each_field_has_its_story() -> None:
    """A new one needs a value that it does not always have."""
    told = [*EXPECTED, *PERCENTILES, "sources.generation", *ON_A_STORE]

    assert sorted(fields_of(StalenessReport)) == sorted(told)


@pytest.mark.parametrize("path", EXPECTED)
def test_a_field_tells_what_happened(report: Any, fresh: Any, path: str) -> None:  # noqa: ANN401
    """And another value where nothing did."""
    assert EXPECTED[path] == said(report, path, KEYS)
    assert EXPECTED[path] != said(fresh, path, KEYS)


@pytest.mark.parametrize("path", PERCENTILES)
def test_percentiles_are_those_of_what_was_seen(story: Story, report: Any, path: str) -> None:  # noqa: ANN401
    """To a step of the scale, 6 %, and never younger."""
    _, age, window, share = path.split(".")
    seen = sorted((story.lags if age == "lag_ms" else story.event_ages)[-WINDOWS[window] + SILENT :])
    exact_ms = 1_000 * seen[-(-len(seen) * int(share[1:]) // 100) - 1]

    assert exact_ms <= said(report, path, KEYS) <= 1.06 * (exact_ms + QUANTUM_MS)


def test_the_generation_is_that_of_the_present_life(story: Story, report: Any, fresh: Any) -> None:  # noqa: ANN401
    """In hexadecimal."""
    (source,) = story.core.registry.sources.values()

    assert f"{source.facts.generation:x}" == said(report, "sources.generation", KEYS)
    assert said(fresh, "sources.generation", KEYS) != said(report, "sources.generation", KEYS)
