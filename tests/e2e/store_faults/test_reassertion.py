"""While an owner writes everything anew: it may die, and who reads meanwhile must not believe what is not whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from indexer.model import SourceId
from tests.support.in_trouble import PODS, Trouble, assert_clean, keys_of
from tests.support.proxy import ProxyThread
from tests.support.redis_servers import own_server, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from redis import Redis

    from tests.support.redis_servers import Server

PROMPTS = 1_500
"""A batch: with the proxy's delay a map of ten such batches is written in many steps that a test can look between."""
DELAY_S = 0.02


def is_complete(look: Redis, pod: str) -> bool:
    """Whether the store has a whole copy of a pod's map."""
    return look.hget(keys_of(pod).source(SourceId(pod, 0)), "complete") == b"1"


def has_begun(look: Redis) -> bool:
    """Whether a part of a map is there and no source has all of its own."""
    keys: Any = look.scan_iter(match="*:map:*", count=1_000)
    return any(keys) and not any(is_complete(look, pod) for pod in PODS)


def while_written_anew(folder: Path, then: Callable[[Trouble, Redis], None]) -> None:
    """Empty the store, and let a test go on when the owner has begun to write, slowly, and has not ended."""
    with own_server(folder) as server:
        with ProxyThread(server.port) as proxy, Trouble(proxy.url) as trouble, server.client() as look:
            trouble.begin(2)
            for _ in range(10):
                trouble.publish(prompts=PROMPTS)
            trouble.wait_right()
            proxy.set("delay", delay_s=DELAY_S)
            look.flushall()
            wait_for(lambda: has_begun(look), "the owner to begin")
            then(trouble, look)
            proxy.set("pass")
            trouble.wait_right()
            trouble.publish(2)
            trouble.wait_right()
            trouble.wait_right(trouble.start_follower("after"))
        _clean(server)


def _clean(server: Server) -> None:
    assert_clean(server, by_test=("flushall", "scan"))


@pytest.mark.slow
def test_the_owner_dies(tmp_path: Path) -> None:
    """Nothing is left but parts of maps: the next process has the engines' replay, and all is right again."""

    def then(trouble: Trouble, look: Redis) -> None:
        trouble.owner.kill()
        assert trouble.follower is not None
        trouble.ask_all(trouble.follower)
        trouble.start_owner()

    while_written_anew(tmp_path, then)


@pytest.mark.slow
def test_a_replica_that_starts_meanwhile(tmp_path: Path) -> None:
    """It says `live` of no source whose map is not whole; nor of one that it has not read whole."""

    def then(trouble: Trouble, look: Redis) -> None:
        fresh = trouble.start_follower("meanwhile")
        while not all(is_complete(look, pod) for pod in PODS):
            for entries in trouble.ask_all(fresh):
                live = [pod for pod, entry in entries.items() if entry.state == "live"]
                assert all(is_complete(look, pod) for pod in live), entries

    while_written_anew(tmp_path, then)
