"""The store answers and refuses: no memory, read-only, another password, no scripts, keys that hold something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from redis import Redis

from indexer.model import SourceId
from indexer.store.layout import deployment_key
from tests.support.in_trouble import PODS, Trouble, assert_clean, in_trouble, keys_of
from tests.support.redis_servers import free_port, own_server

if TYPE_CHECKING:
    from pathlib import Path


def test_no_memory(tmp_path: Path) -> None:
    """Nothing is written until there is some again; reads go on."""
    with in_trouble(tmp_path) as (server, trouble), server.client() as look:
        generations = trouble.begin()
        look.config_set("maxmemory", 1)
        trouble.publish(3)
        trouble.owner.wait_trouble("out_of_memory")
        trouble.wait_applied()
        for replica in trouble.replicas:
            trouble.ask_all(replica)
        look.config_set("maxmemory", 0)
        trouble.heal(generations)


def test_read_only(tmp_path: Path) -> None:
    """It became the replica of a server that nobody reaches, as after a failover that the address does not follow."""
    with in_trouble(tmp_path) as (server, trouble), server.client() as look:
        generations = trouble.begin()
        look.replicaof("127.0.0.1", str(free_port()))
        trouble.publish(3)
        trouble.owner.wait_trouble("read_only")
        trouble.wait_applied()
        for replica in trouble.replicas:
            trouble.ask_all(replica)
        look.replicaof("NO", "ONE")
        trouble.heal(generations)


def test_another_password(tmp_path: Path) -> None:
    """Changed at the server while all run; changed back, all is right."""
    with in_trouble(tmp_path) as (server, trouble), server.client() as look:
        generations = trouble.begin()
        look.config_set("requirepass", "other")
        look.client_kill_filter(_type="normal", skipme=True)
        trouble.publish(3)
        for replica in trouble.replicas:
            replica.wait_trouble("denied")
        trouble.wait_applied()
        for replica in trouble.replicas:
            trouble.ask_all(replica)
        look.config_set("requirepass", "")
        trouble.heal(generations)
        assert not any("other" in replica.log() for replica in trouble.replicas)


def test_a_wrong_password_at_the_start(tmp_path: Path) -> None:
    """Told without it; the service answers, and is right once the server takes it."""
    with own_server(tmp_path, "--requirepass", "right") as server:
        with Trouble(server.url.replace("//", "//:s3cr3t@")) as trouble:
            trouble.publish(2)
            for replica in trouble.replicas:
                replica.wait_trouble()
                trouble.ask_all(replica)
                assert "s3cr3t" not in replica.log()
            with Redis.from_url(server.url.replace("//", "//:right@")) as look:
                look.config_set("requirepass", "s3cr3t")
            trouble.wait_right()
            trouble.heal(trouble.generations())
        with Redis.from_url(server.url.replace("//", "//:s3cr3t@")) as look:
            look.config_set("requirepass", "")
        assert_clean(server)


@pytest.mark.parametrize("right", ["evalsha", pytest.param("xadd", marks=pytest.mark.slow)])
def test_a_right_is_taken_away(tmp_path: Path, right: str) -> None:
    """The server answers, and refuses what matters: that is told as if it did not answer. Given back, all is right."""
    with in_trouble(tmp_path) as (server, trouble), server.client() as look:
        generations = trouble.begin()
        look.execute_command("ACL", "SETUSER", "default", f"-{right}")
        trouble.publish(3)
        trouble.owner.wait_trouble()
        trouble.wait_applied()
        for replica in trouble.replicas:
            trouble.ask_all(replica)
        look.execute_command("ACL", "SETUSER", "default", f"+{right}")
        trouble.heal(generations)
        trouble.owner.wait_for(lambda: trouble.owner.metrics()["kvindexer_redis_up"] == 1.0, "the trouble to be over")


def test_scripts_are_gone(tmp_path: Path) -> None:
    """Loaded anew, each time; nobody notices."""
    with in_trouble(tmp_path) as (server, trouble), server.client() as look:
        generations = trouble.begin()
        for _ in range(10):
            look.script_flush()
            trouble.publish(1)
        trouble.heal(generations)


def key_of(look: Redis, name: str) -> bytes:
    """A key of the first pod's partition; of its map a segment."""
    keys, source = keys_of(PODS[0]), SourceId(PODS[0], 0)
    if name == "deployment":
        return deployment_key("kvi")
    if name == "state":
        return keys.source(source)
    if name == "map":
        state: Any = look.hgetall(keys.source(source))
        where = [int(state[field]) for field in (b"generation", b"copy", b"segments")]
        return next(key for key in keys.copy(source, *where) if look.exists(key))
    key: bytes = getattr(keys, name)
    return key


def in_use(tmp_path: Path, name: str, **settings: str) -> None:
    """Put a list there while all run, later take it away; a replica that starts then finds everything."""
    with in_trouble(tmp_path, **settings) as (server, trouble), server.client() as look:
        generations = trouble.begin()
        for replica in trouble.replicas:
            replica.errors_allowed = ("is in use for something else",)
        key = key_of(look, name)
        with look.pipeline() as at_once:
            at_once.unlink(key).rpush(key, "x").pexpire(key, 600_000).execute()
        trouble.publish(3)
        trouble.wait_applied()
        for replica in trouble.replicas:
            trouble.ask_all(replica)
        look.unlink(key)
        trouble.heal(generations)
        trouble.wait_right(trouble.start_follower("fresh"))


@pytest.mark.parametrize("name", ["head", pytest.param("state", marks=pytest.mark.slow)])
def test_a_key_holds_something_else(tmp_path: Path, name: str) -> None:
    """Named in the log; other sources go on. When it is taken away the owner writes what stood there anew."""
    in_use(tmp_path, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["epoch", "owner", "log", "control", "deployment"])
def test_another_key_holds_something_else(tmp_path: Path, name: str) -> None:
    """The same with the rest of them."""
    in_use(tmp_path, name)


@pytest.mark.parametrize("name", ["sources", pytest.param("map", marks=pytest.mark.slow)])
def test_a_key_that_is_seldom_looked_at_holds_something_else(tmp_path: Path, name: str) -> None:
    """What is not written to with each batch is found lost when its time to live is renewed."""
    in_use(tmp_path, name, staleness__score_ttl_s="6", staleness__retain_s="8")
