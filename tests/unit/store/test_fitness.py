"""What a store must be: version and eviction policy, of every server that takes writes."""

from __future__ import annotations

import pytest

from indexer.store.failures import StoreFailure
from indexer.store.fitness import Fitness, judge

GOOD = {"redis_version": "7.0.15", "maxmemory_policy": "noeviction"}


def test_the_oldest_of_all_servers_counts() -> None:
    """In a cluster."""
    newer = {"redis_version": "10.2.0", "maxmemory_policy": "noeviction"}

    assert Fitness("redis", "7.0.15") == judge([newer, GOOD, newer], as_cluster=True)


def test_valkey_is_known_by_its_own_version() -> None:
    """Beside the one it shows to clients of Redis."""
    assert Fitness("valkey", "9.1.2") == judge(
        [{**GOOD, "redis_version": "7.2.4", "valkey_version": "9.1.2"}], as_cluster=False
    )


@pytest.mark.parametrize(
    ("report", "rule"),
    [
        ({"redis_version": "6.2.14", "maxmemory_policy": "noeviction"}, "at least 7.0"),
        ({"maxmemory_policy": "noeviction"}, "at least 7.0"),
        ({"redis_version": "x", "maxmemory_policy": "noeviction"}, "at least 7.0"),
        ({"redis_version": "8.2.3", "maxmemory_policy": "volatile-lru"}, "noeviction"),
        ({"redis_version": "8.2.3"}, "noeviction"),
    ],
)
def test_what_does_not_serve_is_refused_with_the_rule(report: dict[str, str], rule: str) -> None:
    """Also where only one of several servers is unfit."""
    with pytest.raises(StoreFailure, match=rule) as told:
        judge([GOOD, report], as_cluster=True)

    assert "unfit" == told.value.kind


def test_no_server_is_unfit() -> None:
    """Nobody reported."""
    with pytest.raises(StoreFailure, match="no server"):
        judge([], as_cluster=False)


def test_a_cluster_must_be_told_as_one() -> None:
    """Else most keys would be refused, later."""
    report = {**GOOD, "cluster_enabled": 1}
    assert judge([report], as_cluster=True)

    with pytest.raises(StoreFailure, match=r"redis\+cluster"):
        judge([report], as_cluster=False)
