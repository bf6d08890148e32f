"""Replicas as processes: what operators see of them and have them do, and that nobody takes their keys away."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from indexer.sharding.rendezvous import share_out
from tests.support.many import Cluster
from tests.support.redis_servers import own_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DEADLINE_S = 60.0
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("KVINDEXER_")}
ENVIRONMENT["KVINDEXER_SERVER__GRPC_PORT"] = "0"
PARTITIONS = 5
NAMES = ("a", "b", "c")
FLAGS = [f"pod-{number}=tcp://127.0.0.1:9" for number in range(12)]


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Of a store of its own."""
    with own_server(tmp_path) as server:
        yield server.port


@pytest.fixture
def cluster(port: int) -> Iterator[Cluster]:
    """Three replicas that have shared out the partitions."""
    with Cluster(port, FLAGS, partitions=PARTITIONS, names=NAMES) as cluster:
        cluster.wait_settled()
        yield cluster


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command to its end."""
    words = [sys.executable, "-m", "indexer", *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, env=ENVIRONMENT, check=False)


def replicas(cluster: Cluster, asked: str) -> dict[str, dict[str, Any]]:
    """What that one says of all."""
    listed = cluster.replicas[asked].call("GET", "/v1/partitions").json()["replicas"]
    return {view["name"]: view for view in listed}


def metrics(cluster: Cluster, asked: str) -> dict[str, float]:
    """Of partitions and replicas."""
    lines = cluster.replicas[asked].call("GET", "/metrics").text.splitlines()
    samples = (
        line.rpartition(" ") for line in lines if re.match(r"kvindexer_(partitions|standby|hand|take|rep)", line)
    )
    return {name: float(value) for name, _, value in samples}


def test_each_replica_tells_of_all(cluster: Cluster) -> None:
    """Who is there, what each owns and stands by for; what waits at an owner is known elsewhere, too."""
    plan = share_out(PARTITIONS, NAMES)
    cluster.wait_for(
        lambda: all(
            {name: ("live", sum(share.owner == name for share in plan)) for name in NAMES}
            == {name: (view["state"], view["owned"]) for name, view in replicas(cluster, asked).items()}
            for asked in NAMES
        ),
        "beats that tell what is owned",
    )
    for asked in NAMES:
        told = replicas(cluster, asked)
        assert {asked} == {name for name, view in told.items() if view["me"]}
        assert {name: cluster.replicas[name].url for name in NAMES} == {n: view["address"] for n, view in told.items()}
        assert [sum(share.standby == name for share in plan) for name in NAMES] == [told[n]["standby"] for n in NAMES]
        for number, view in cluster.replicas[asked].partitions().items():
            assert (plan[number].owner, plan[number].standby) == (view["owner"], view["standby"])
            assert view["pending_bytes"] is not None
            assert (view["role"] == "standby") == (view["standby_bytes"] is not None)
        samples = metrics(cluster, asked)
        assert (
            sum(share.owner == asked for share in plan),
            sum(share.standby == asked for share in plan),
        ) == (samples["kvindexer_partitions_owned"], samples["kvindexer_partitions_standby"])
        assert 3 == samples['kvindexer_replicas{state="live"}']


def test_a_replica_is_drained_and_taken_back(cluster: Cluster) -> None:
    """Asked of another one; it owns nothing, others own all, none is lost on the way; then it gets its share again."""
    url = cluster.replicas["a"].url
    done = run("drain", "b", "--url", url)
    assert (0, "b owns nothing any more: it can be stopped\n") == (done.returncode, done.stdout), done.stderr
    cluster.wait_for(
        lambda: (
            [("draining", 0)] * 3
            == [(view["state"], view["owned"]) for view in (replicas(cluster, asked)["b"] for asked in NAMES)]
        ),
        "all to see it drained",
    )
    cluster.wait_for(lambda: len(cluster.owners("b")) == PARTITIONS, "others to own all")
    again = run("drain", "b", "--url", cluster.replicas["c"].url, "--json")
    assert '{"name":"b","draining":true,"owned":0,"effect":"done"}\n' == again.stdout

    back = run("drain", "b", "--undo", "--url", url)
    assert (0, "b may own partitions again\n") == (back.returncode, back.stdout)
    cluster.wait_settled(NAMES)


def test_a_drain_ends_with_the_process(cluster: Cluster) -> None:
    """Who is started again under the name owns its share."""
    assert 0 == run("drain", "b", "--url", cluster.replicas["b"].url).returncode
    cluster.stop("b")
    cluster.join("b")
    cluster.wait_settled(NAMES)


def test_the_last_one_is_not_drained(port: int) -> None:
    """Nor both of two: nobody could take over."""
    with Cluster(port, FLAGS, partitions=PARTITIONS, names=("a", "b")) as cluster:
        cluster.wait_settled()
        url = cluster.replicas["a"].url
        assert 0 == run("drain", "b", "--url", url).returncode
        refused = run("drain", "a", "--url", url)
        assert (1, "") == (refused.returncode, refused.stdout)
        assert "409 replica.conflict: nobody could take over from a: " in refused.stderr
        unknown = run("drain", "bb", "--url", url)
        assert "404 replica.unknown: name: a replica of this deployment, got bb (b)" in unknown.stderr


def test_what_replicas_use_is_not_reset(cluster: Cluster, port: int) -> None:
    """All of them are named; stopped, nothing stands against it."""
    words = ("redis", "reset", "--redis-url", f"redis://127.0.0.1:{port}", "--yes")
    refused = run(*words)
    assert 1 == refused.returncode
    assert re.search(r"replicas of namespace kvi run: a \(.*\), b \(.*\), c \(.*\); stop them first", refused.stderr)

    for name in NAMES:
        cluster.stop(name)
    done = run(*words)
    assert 0 == done.returncode, done.stderr
