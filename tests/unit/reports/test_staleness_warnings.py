"""Each warning that a report works out itself is made to happen, from the lists in the code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, get_args

import pytest

from indexer.index.served import Served
from indexer.model import Tier
from indexer.reports.staleness import NO_REMOVALS_FROM, SILENT_S, STORM, Remark, Staleness
from indexer.source_words import StandingWarning
from tests.support.core import Core
from tests.support.core_events import CLEARED, prompt, stored
from tests.support.steps import done

EVENTS: Final = "tcp://engine-1:5557"
WELL: Final = {"endpoint": EVENTS, "replay_endpoint": "tcp://engine-1:5558", "model": "m", "blocks_total": 5_000}
"""A registration of which nothing is remarked."""


def _well(core: Core) -> None:
    core.engine(**WELL).say(stored([1], prompt(1)))


def _tier_silent(core: Core) -> None:
    engine = core.engine(**WELL)
    engine.say(stored([1], prompt(1), medium="CPU"))
    core.clock.at += SILENT_S
    engine.say(stored([2], prompt(1, 50)))


def _clear_storm(core: Core) -> Callable[[], None]:
    engine = core.engine(**WELL)
    return lambda: engine.say(*[CLEARED] * STORM)


def _shared(core: Core) -> None:
    core.engine(**WELL)
    core.engine("other", **WELL | {"replay_endpoint": None})


def _model(core: Core) -> None:
    core.engine(**WELL | {"model": None})
    core.engine("other", **WELL | {"endpoint": "tcp://engine-2:5557"})


def _serves(*names: str, beside: str = "n") -> Callable[[Core], None]:
    """Its engine says so, beside one that serves another model."""

    def story(core: Core) -> None:
        core.engine("other", **WELL | {"endpoint": "tcp://engine-2:5557", "model": beside})
        core.registry.learn(core.engine(**WELL).source, Served(names))

    return story


STORIES: Final[dict[Remark | StandingWarning, tuple[Callable[[Core], object], str]]] = {
    "tier_silent": (_tier_silent, "tier cpu silent: 1 blocks, and no event of it for 10 minutes"),
    "no_removals": (
        lambda core: core.engine(**WELL).say(
            stored(range(1, NO_REMOVALS_FROM + 1), prompt(NO_REMOVALS_FROM), medium="CPU")
        ),
        f"no removals seen in tier cpu: {NO_REMOVALS_FROM} blocks",
    ),
    "clear_storm": (_clear_storm, f"clear storm: the engine emptied its cache {STORM} times"),
    "replay": (lambda core: core.engine(**WELL | {"replay_endpoint": None}), "no replay endpoint"),
    "endpoint_shared": (_shared, "its endpoint is also that of other"),
    "model": (_model, "no model, and others have one"),
    "replay_shared": (
        lambda core: core.engine(**WELL | {"replay_endpoint": EVENTS}),
        "its replay endpoint is the endpoint of events, its own",
    ),
    "capacity": (lambda core: core.engine(**WELL | {"blocks_total": None}), "capacity unknown (blocks_total)"),
    "unannounced": (
        lambda core: core.engine(**WELL).say(stored([1], prompt(1), medium="STORAGE")),
        "it stores in a tier whose producers announce no removals",
    ),
    "served_model": (_serves("x", "y"), "its model is m, and its engine serves x, y: another engine's address?"),
    "served_names": (_serves("m", "n"), "its engine also serves n, and who asks for that is answered for n"),
    "waiting": (
        lambda core: core.engine(**WELL).say(stored([2], prompt(1), parent=1)),
        "1 blocks wait for a parent or for tokens",
    ),
}


def warned(story: Callable[[Core], object]) -> list[str]:
    """What the report warns of pod `pod` after that. What a story returns, if it can be called, comes after a look."""
    core = Core(tier_ttls={Tier.STORAGE: 3_600.0})
    staleness = Staleness(
        core.registry,
        core.lookup.view,
        core.clock,
        owner=lambda _: None,
        follows=lambda _: False,
        journal_age_s=lambda _: None,
        expected_s=core.routed.ttl_s,
    )
    then = story(core)
    done(staleness.sample())
    if callable(then):
        then()
    (row,) = done(staleness.report(pod="pod", model=None, state=None, tenant=None)).sources
    return [text for text in row.warnings if "clock" not in text]


def test_each_warning_has_its_story() -> None:
    """A new one needs what makes it happen."""
    assert sorted(STORIES) == sorted([*get_args(Remark), *get_args(StandingWarning)])


@pytest.mark.parametrize("name", STORIES)
def test_a_warning_is_told_where_it_happened(name: Remark | StandingWarning) -> None:
    """It alone."""
    story, words = STORIES[name]

    assert [True] == [text.startswith(words) for text in warned(story)]


def test_where_all_is_well_nothing_is_remarked() -> None:
    """A list of warnings that is never empty is not read."""
    assert [] == warned(_well)
