"""What an operator is told of a source, in words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from indexer.index.states import StateLimits
from indexer.lookup_view import FleetView
from indexer.ports import DoubtReason, SuspectReason
from indexer.source_words import DOUBTS, SHORTFALLS, listed_warnings, reason_in_words, warnings_of
from tests.support.core import Core
from tests.support.core_events import prompt, stored

INDEXER = Path(__file__).parents[3] / "indexer"


def _in_code(pattern: str) -> set[str]:
    return {name for path in INDEXER.rglob("*.py") for name in re.findall(pattern, path.read_text())}


def test_every_reason_has_words() -> None:
    """Also one that is added: what is set anywhere in the code, and what the ports allow."""
    doubts = _in_code(r'doubts\.add\("(\w+)"\)') | _in_code(r'Skipped\("(\w+)", suspect=True\)')
    shortfalls = _in_code(r'shortfalls\.add\("(\w+)"\)') | _in_code(r'_shortfall\(source, "(\w+)"')
    shortfalls |= _in_code(r'_forget\([\w.]+, "(\w+)"[,)]')

    assert doubts | {*get_args(DoubtReason), *get_args(SuspectReason)} == set(DOUBTS)
    assert shortfalls == set(SHORTFALLS)


def _warned(core: Core, pod: str) -> dict[str, str]:
    return warnings_of(next(s for k, s in core.registry.sources.items() if k.pod == pod), core.registry)


@pytest.mark.parametrize("other", ["tcp://engine-1:5557", "tcp://ENGINE-1:5557"])
def test_two_sources_at_one_endpoint_are_warned_of_on_both(other: str) -> None:
    """Both would be credited for what one engine holds. Gone when one of them leaves."""
    core = Core()
    core.engine("a", endpoint="tcp://engine-1:5557")
    core.engine("b", endpoint=other)
    core.engine("c", endpoint="tcp://engine-1:5558")

    assert "its endpoint is also that of b:" in _warned(core, "a")["endpoint_shared"]
    assert "its endpoint is also that of a:" in _warned(core, "b")["endpoint_shared"]
    assert "endpoint_shared" not in _warned(core, "c")
    core.engine("d", endpoint=other)
    assert "also that of a and of 1 more" in _warned(core, "d")["endpoint_shared"]
    for pod in ("d", "b"):
        core.registry.remove(next(key for key in core.registry.sources if key.pod == pod))
    assert "endpoint_shared" not in _warned(core, "a")


def test_a_replay_endpoint_that_publishes_is_warned_of() -> None:
    """Its own endpoint, or another's of its tenant: one of the two is a mistake."""
    core = Core()
    core.engine("a", endpoint="tcp://engine-1:5557", replay_endpoint="tcp://ENGINE-1:5557")
    core.engine("b", endpoint="tcp://engine-2:5557", replay_endpoint="tcp://engine-1:5557")
    core.engine("c", endpoint="tcp://engine-3:5557", replay_endpoint="tcp://engine-3:6557")
    core.engine("d", endpoint="tcp://engine-4:5557", replay_endpoint="tcp://engine-3:5557", tenant="t")

    assert "the endpoint of events, its own:" in _warned(core, "a")["replay_shared"]
    assert "the endpoint of events, that of a:" in _warned(core, "b")["replay_shared"]
    assert not any("replay_shared" in _warned(core, pod) for pod in ("c", "d"))


def test_one_without_model_among_others_is_warned_of() -> None:
    """As long as one of its tenant's has one."""
    core = Core()
    core.engine("a", model=None)
    core.engine("b", model=None)
    assert "model" not in _warned(core, "a")
    core.engine("other", model="m", tenant="t")
    assert "model" not in _warned(core, "a")
    core.engine("c", model="m")
    core.engine("d", model="n")
    assert "it answers for none" in _warned(core, "a")["model"]
    assert "model" not in _warned(core, "c")
    for pod in ("c", "d"):
        core.registry.remove(next(key for key in core.registry.sources if key.pod == pod))
    assert "model" not in _warned(core, "a")


def test_lists_say_that_replay_is_missing_before_any_socket_does() -> None:
    """Not of one that comes by its topic: it is asked for nothing."""
    core = Core()
    core.engine("a", endpoint="tcp://engine-1:5557")
    core.engine("b", endpoint=None)
    sources = {key.pod: source for key, source in core.registry.sources.items()}

    assert "no replay endpoint" in listed_warnings(sources["a"], core.registry)["replay"]
    assert "replay" not in listed_warnings(sources["b"], core.registry)


def test_of_one_that_announces_nothing_no_replay_and_no_capacity_is_missed() -> None:
    """Though it has an endpoint, where it might: until it does."""
    core = Core()
    speaker = core.engine("a", endpoint="tcp://engine-1:5557")
    speaker.source.facts.may_be_silent = True
    speaker.source.warnings["replay"] = "no replay endpoint"

    assert {} == listed_warnings(speaker.source, core.registry)
    speaker.say(stored([1], prompt(1)))
    assert {"replay", "capacity"} < set(listed_warnings(speaker.source, core.registry))


def test_a_capacity_that_is_too_small_is_warned_of() -> None:
    """It would make held blocks look like ghosts after a gap."""
    core = Core()
    small, enough, unknown = (core.engine(f"of-{n}", blocks_total=n) for n in (2, 3, None))
    for engine in (small, enough, unknown):
        engine.say(stored([1, 2, 3], prompt(3)))

    assert "holds 3 blocks in GPU memory, more than its blocks_total of 2" in _warned(core, "of-2")["capacity"]
    assert "capacity" not in _warned(core, "of-3")
    assert _warned(core, "of-None")["capacity"].startswith("capacity unknown")


def test_an_engine_without_events_can_lose_none() -> None:
    """Its capacity is asked for once it speaks after all."""
    core = Core(silent_block_sizes={"m": 4})
    engine = core.engine("a", model="m")
    assert "capacity" not in _warned(core, "a")

    engine.say(stored([1], prompt(1)))
    assert "capacity" in _warned(core, "a")


@pytest.mark.parametrize(
    ("followed", "why"),
    [
        (False, "the connection was not seen up lately"),
        (True, "nothing was heard of it lately from the replica that owns it"),
    ],
)
def test_silence_is_the_connections_only_where_it_is_listened_to(followed: bool, why: str) -> None:
    """Of a source that another replica owns, an operator looks at that one first, or at the store."""
    core = Core()
    engine = core.engine("a")
    engine.say(stored([1], prompt(1)))
    source = engine.source
    core.clock.at += 10.0
    view = FleetView(StateLimits()).prepared(source, core.clock.now())
    assert ("stale", why) == (view.state, reason_in_words(source.facts, view, followed=followed))
