"""The store is not to be reached, slow, or silent: lookups go on out of memory, and when it is back all is right."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.support.in_trouble import Trouble, assert_clean, in_trouble, stand_still
from tests.support.proxy import ProxyThread
from tests.support.redis_servers import own_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.proxy import Way

DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
"""A server that has everything again after a kill."""


@contextlib.contextmanager
def behind_proxy(folder: Path) -> Iterator[tuple[ProxyThread, Trouble]]:
    """The way to the store is in the test's hands."""
    with own_server(folder) as server:
        with ProxyThread(server.port) as proxy, Trouble(proxy.url) as trouble:
            yield proxy, trouble
            proxy.set("pass")
        assert_clean(server)


def test_refused_at_the_start(tmp_path: Path) -> None:
    """Both processes run and answer, the owner out of what it hears. Once the store is there, all is right."""
    with own_server(tmp_path, *DURABLE) as server:
        server.stop()
        with Trouble(server.url) as trouble:
            trouble.publish(3)
            for replica in trouble.replicas:
                replica.wait_trouble()
                trouble.ask_all(replica)
            server.start()
            trouble.wait_right()
            trouble.heal(trouble.generations())
        assert_clean(server)


@pytest.mark.parametrize("way", ["reset", "stall_requests", "stall_replies"])
def test_cut_or_silent(tmp_path: Path, way: Way) -> None:
    """Connections are refused, or stand and nothing comes back, be it that the store acts on what it is sent."""
    with behind_proxy(tmp_path) as (proxy, trouble):
        generations = trouble.begin()
        proxy.set(way)
        trouble.publish(2)
        for replica in trouble.replicas:
            replica.wait_trouble()
        trouble.publish(2)
        trouble.wait_applied()
        for replica in trouble.replicas:
            trouble.ask_all(replica)
        proxy.set("pass")
        trouble.heal(generations)


def test_slow(tmp_path: Path) -> None:
    """First within the deadline of a call, where all goes on; then beyond it, where nothing does."""
    with behind_proxy(tmp_path) as (proxy, trouble):
        generations = trouble.begin()
        proxy.set("delay", delay_s=0.05)
        trouble.publish(2)
        trouble.wait_right()
        proxy.set("delay", delay_s=0.4)
        trouble.publish(2)
        trouble.wait_applied()
        for replica in trouble.replicas:
            replica.wait_trouble()
            trouble.ask_all(replica)
        proxy.set("pass")
        trouble.heal(generations)


def test_killed_and_back_with_everything(tmp_path: Path) -> None:
    """Where it stood: what waited is written, and nobody reads anything anew."""
    with in_trouble(tmp_path, *DURABLE) as (server, trouble):
        generations = trouble.begin()
        server.stop()
        trouble.publish(3)
        trouble.wait_applied()
        for replica in trouble.replicas:
            replica.wait_trouble()
            trouble.ask_all(replica)
        server.start()
        trouble.heal(generations)


@pytest.mark.slow
def test_frozen_for_longer_than_a_lease(tmp_path: Path) -> None:
    """Who owned it owns it again. While the lease is over what is known is `stale`, and scored."""
    with in_trouble(tmp_path) as (server, trouble):
        generations = trouble.begin()
        server.freeze()
        trouble.publish(2)
        trouble.wait_applied()
        for replica in trouble.replicas:
            replica.wait_for(
                lambda replica=replica: {"stale"} == {each["state"] for each in replica.sources().values()},  # type: ignore[misc]
                "all sources to be stale",
            )
            assert any(entry.score for entries in trouble.ask_all(replica) for entry in entries.values())
        server.thaw()
        trouble.heal(generations)


@pytest.mark.slow
def test_frozen_for_longer_than_every_ttl(tmp_path: Path) -> None:
    """Maps, journal and states are gone when it wakes; what lasts stays, and the owner writes all anew."""
    times = {
        "redis__lease_s": "1.2",
        "staleness__stale_after_s": "1",
        "staleness__score_ttl_s": "2",
        "staleness__retain_s": "4",
    }
    with in_trouble(tmp_path, **times) as (server, trouble):
        generations = trouble.begin()
        server.freeze()
        trouble.publish(2)
        stand_still(float(times["staleness__retain_s"]) + 1)
        trouble.wait_applied()
        for replica in trouble.replicas:
            trouble.ask_all(replica)
        server.thaw()
        trouble.heal(generations)
