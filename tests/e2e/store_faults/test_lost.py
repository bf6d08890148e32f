"""The store lost what it had: emptied, gone back in time, failed over. The owner's memory has it, and writes it anew.

A replica that starts afterwards finds everything in the store.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tests.support.in_trouble import PODS, Trouble, assert_clean, in_trouble, keys_of
from tests.support.redis_servers import cut_off, start_store, wait_for_copy
from tests.support.sentinels import watched

if TYPE_CHECKING:
    from pathlib import Path


def heal(trouble: Trouble, generations: list[dict[str, str]]) -> None:
    """All is right again, also at a replica that knows nothing but the store."""
    trouble.heal(generations)
    trouble.wait_right(trouble.start_follower("fresh"))


def test_emptied(tmp_path: Path) -> None:
    """FLUSHALL, while engines go on."""
    with in_trouble(tmp_path, by_test=["flushall"]) as (server, trouble):
        generations = trouble.begin()
        trouble.publish(2)
        with server.client() as look:
            look.flushall()
        trouble.publish(2)
        trouble.wait_applied()
        for replica in trouble.replicas:
            trouble.ask_all(replica)
        heal(trouble, generations)


def test_emptied_again_and_again(tmp_path: Path) -> None:
    """Also while it is being written anew."""
    with in_trouble(tmp_path, by_test=["flushall"]) as (server, trouble), server.client() as look:
        generations = trouble.begin()
        for _ in range(10):
            trouble.publish(1)
            look.flushall()
            trouble.wait_applied()
            trouble.ask_all(trouble.replicas[-1])
        heal(trouble, generations)


def test_restarted_empty(tmp_path: Path) -> None:
    """Killed without a snapshot."""
    with in_trouble(tmp_path) as (server, trouble):
        generations = trouble.begin()
        server.stop()
        trouble.publish(2)
        for replica in trouble.replicas:
            replica.wait_trouble()
        trouble.wait_applied()
        server.start()
        heal(trouble, generations)


def test_restored_from_an_older_snapshot(tmp_path: Path) -> None:
    """It goes back in time: what was acknowledged since is gone, its journal ends earlier."""
    with in_trouble(tmp_path) as (server, trouble):
        generations = trouble.begin()
        with server.client() as look:
            look.save()
        shutil.copy(server.folder / "dump.rdb", tmp_path / "kept")
        trouble.publish(3)
        trouble.wait_right()
        server.stop()
        shutil.copy(tmp_path / "kept", server.folder / "dump.rdb")
        server.start()
        trouble.publish(1)
        trouble.wait_applied()
        heal(trouble, generations)


def test_failed_over_with_a_loss(tmp_path: Path) -> None:
    """The primary was killed between a write, which the follower has read already, and its replication."""
    with watched(tmp_path) as (primary, replica, sentinel):
        with Trouble(f"redis+sentinel://127.0.0.1:{sentinel.port}/main") as trouble:
            generations = trouble.begin()
            wait_for_copy(primary, replica)
            cut_off(primary, replica)
            trouble.publish(3)
            trouble.wait_right()
            primary.stop()
            replica.thaw()
            trouble.publish(1)
            trouble.wait_applied()
            heal(trouble, generations)
        assert_clean(replica)


def test_failed_over_without_a_loss(tmp_path: Path) -> None:
    """All that was acknowledged is there: the owner goes on."""
    with watched(tmp_path) as (primary, replica, sentinel):
        with Trouble(f"redis+sentinel://127.0.0.1:{sentinel.port}/main") as trouble:
            generations = trouble.begin()
            wait_for_copy(primary, replica)
            primary.stop()
            trouble.publish(2)
            trouble.wait_applied()
            heal(trouble, generations)
        assert_clean(replica)


def test_a_cluster_fails_over(tmp_path: Path) -> None:
    """The primary that has all sources is killed, with what it acknowledged last; partitions elsewhere go on."""
    cluster = start_store("cluster", tmp_path, replicas=True)
    try:
        with Trouble(cluster.url) as trouble:
            generations = trouble.begin()
            primary, replica = cluster.pair(keys_of(PODS[0]).owner)
            wait_for_copy(primary, replica)
            cut_off(primary, replica)
            trouble.publish(2)
            trouble.wait_right()
            primary.stop()
            replica.thaw()
            trouble.publish(1)
            trouble.wait_applied()
            heal(trouble, generations)
        assert_clean(replica)
    finally:
        cluster.close()
