"""What a replica is called in the store."""

from __future__ import annotations

import pytest

from indexer.settings import Redis, Server, Settings, replica_name
from indexer.settings.replica import NAME_MAX


@pytest.mark.parametrize(
    ("host", "port", "name"),
    [
        ("kvindexer-0", 8080, "kvindexer-0-8080"),
        ("kvindexer-0", 0, "kvindexer-0-p7"),
        ("a b:c/ü", 80, "a-b-c-80"),
        ("", 80, "replica-80"),
        ("x" * 200, 65_535, "x" * (NAME_MAX - 6) + "-65535"),
    ],
)
def test_a_name_is_made_of_host_and_port(host: str, port: int, name: str) -> None:
    """Safe in keys and fence tokens, whatever the machine is called."""
    assert name == replica_name(Settings(server=Server(port=port)), host, 7)
    assert ":" not in name
    assert len(name) <= NAME_MAX


def test_a_name_that_is_given_stands() -> None:
    """As it is."""
    assert "one" == replica_name(Settings(redis=Redis(replica="one")), "host", 7)


def test_replicas_without_a_port_differ_by_their_sockets() -> None:
    """And one that is started again has its name of before."""
    names = [
        replica_name(Settings(server=Server(port=None, uds=path)), "host", pid)
        for path, pid in (("/a", 1), ("/a", 2), ("/b", 1))
    ]

    assert names[0] == names[1] != names[2]
    assert names[0].startswith("host-u")
