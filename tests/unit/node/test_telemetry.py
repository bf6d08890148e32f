"""The exposition: complete, each metric once, no two sources in one series; made in pieces."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from indexer.index.source import SourceIndex
from indexer.index.states import StateLimits
from indexer.slices import Slices
from indexer.telemetry import METRICS, SOURCES_A_PIECE, DiscoveryHealth, StoreHealth, Telemetry
from tests.support.core import Core
from tests.support.core_events import prompt, stored

ODD = ["pod", "pod#1", "pod#1#1", "# HELP x", 'a"b\\c', "http://[::1]:80/", "\n# HELP y"]


def _text(
    core: Core, *, per_source: bool = True, store: StoreHealth | None = None, discovery: DiscoveryHealth | None = None
) -> str:
    telemetry = Telemetry(core.clock, StateLimits(), "0", per_source=per_source)
    telemetry.store, telemetry.discovery = store, discovery
    sources: list[SourceIndex] = [sink.source for sink in core.sinks.values()]
    return asyncio.run(Slices(core.clock).run(telemetry.text(sources))).decode()


@pytest.mark.parametrize("count", [0, 1, SOURCES_A_PIECE, 2 * SOURCES_A_PIECE + 1])
def test_every_metric_is_there_once_and_has_all_its_sources(count: int) -> None:
    """However many pieces it was made in."""
    core = Core()
    for number in range(count):
        core.engine(f"pod-{number}").say(stored([1], prompt(1)))
    text = _text(core)
    families = list(text_string_to_metric_families(text))

    assert len(families) == len({family.name for family in families}) == text.count("# HELP ") == text.count("# TYPE ")
    series = {
        family.name: {sample.labels["source"] for sample in family.samples}
        for family in families
        if "source" in family.name
    }
    expected = {f"pod-{number}" for number in range(count)}
    assert all(labels == expected for labels in series.values())
    assert bool(count) == ("kvindexer_source_state" in series)
    assert text.endswith("\n")
    assert "\n\n" not in text


def test_no_two_sources_share_a_series() -> None:
    """Whatever pods are called: a name may look like another's rank, or like a line of the exposition."""
    core = Core()
    for pod in ODD:
        for rank in (0, 1, 2):
            core.engine(pod, dp_rank=rank).say()
    families = {family.name: family for family in text_string_to_metric_families(_text(core))}

    for name in ("kvindexer_source_state", "kvindexer_source_bound", "kvindexer_source_lag_seconds"):
        assert 3 * len(ODD) == len({tuple(sorted(sample.labels.items())) for sample in families[name].samples})


def test_large_fleets_may_leave_the_sources_out() -> None:
    """And still have the totals."""
    core = Core()
    core.engine("a").say(stored([1], prompt(1)))
    text = _text(core, per_source=False)

    assert "source=" not in text
    assert 'kvindexer_events_total{kind="stored"} 1.0' in text


def test_only_documented_metrics_are_shown() -> None:
    """METRICS is the list."""
    core = Core()
    core.engine("a").say()
    store = StoreHealth(up=True, owned=0, lags_s={}, pending_bytes={}, failures={})

    discovery = DiscoveryHealth(watching=False, sources={}, heard_age_s={}, failures={}, waiting=0, remarks={})
    text = _text(core, store=store, discovery=discovery)
    shown = {line.split()[2] for line in text.splitlines() if line.startswith("# HELP")}
    assert shown == set(METRICS)


def test_a_store_is_shown_where_there_is_one() -> None:
    """By partition; in memory mode there is nothing to alert on."""
    store = StoreHealth(
        up=False,
        owned=2,
        lags_s={0: 0.25, 11: 3.5},
        pending_bytes={0: 0, 11: 900},
        failures={"timeout": 4},
        standby=3,
        standby_bytes=4096,
        standby_dropped=5,
        takeovers={"lease_expired": 2},
        handovers=1,
        replicas={"live": 2, "silent": 1},
        followed={"llama": 3, "other": 0},
        passed_over=4,
    )
    samples = {
        "kvindexer_redis_up 0.0",
        "kvindexer_partitions_owned 2.0",
        'kvindexer_redis_failures_total{kind="timeout"} 4.0',
        'kvindexer_journal_lag_seconds{partition="0"} 0.25',
        'kvindexer_journal_lag_seconds{partition="11"} 3.5',
        'kvindexer_journal_pending_bytes{partition="11"} 900.0',
        "kvindexer_partitions_standby 3.0",
        "kvindexer_standby_bytes 4096.0",
        "kvindexer_standby_dropped_total 5.0",
        'kvindexer_takeovers_total{cause="lease_expired"} 2.0',
        "kvindexer_handovers_total 1.0",
        'kvindexer_replicas{state="live"} 2.0',
        'kvindexer_replicas{state="silent"} 1.0',
        'kvindexer_followed_sources{model="llama"} 3.0',
        'kvindexer_followed_sources{model="other"} 0.0',
        "kvindexer_sources_passed_over 4.0",
    }

    assert samples <= set(_text(Core(), store=store).splitlines())
    assert not samples & set(_text(Core()).splitlines())
