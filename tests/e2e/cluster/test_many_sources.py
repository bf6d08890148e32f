"""A thousand engines that have nothing to say, shared by three replicas, of which one dies."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import pytest

from tests.support.in_trouble import assert_clean, tokens_of
from tests.support.many import Cluster
from tests.support.redis_servers import own_server

if TYPE_CHECKING:
    from tests.support.many import Member

SOURCES: Final = 1_000
PARTITIONS: Final = 16
PATIENT: Final = {
    "redis__lease_s": "8",
    "redis__heartbeat_s": "0.5",
    "redis__timeout_ms": "1000",
    "staleness__stale_after_s": "6",
}
"""Three processes with all of this are slow on a small machine, and are not to be missed for that."""
FDS_OWNED: Final = 8
FDS_LISTENED: Final = 4
FDS: Final = 200
"""Open files of a process: for a source that it collects from, for one that it listens to, and besides."""
RSS_BYTES: Final = 300 * 1024**2
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class IdleEngines:
    """Their process. A context manager."""

    def __init__(self, count: int) -> None:
        words = [sys.executable, "-m", "tests.support.idle_engines", str(count)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.endpoints = [line.strip() for line in iter(self._process.stdout.readline, "-\n")]

    def say(self) -> None:
        """One batch each: the next prompt."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "sent\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_thousand_idle_sources(tmp_path: Path) -> None:
    """All are collected from, and listened along to; what a process needs for it is bounded; a death loses nothing."""
    with own_server(tmp_path) as server, IdleEngines(SOURCES) as engines:
        flags = [f"pod-{number}={endpoint}" for number, endpoint in enumerate(engines.endpoints)]
        with Cluster(server.port, flags, partitions=PARTITIONS, **PATIENT) as cluster:
            cluster.deadline_s, cluster.pause_s = 90.0, 1.0  # to look at all of it costs a replica a tenth of a second
            cluster.wait_settled()
            wait_known(cluster, None)
            engines.say()
            wait_known(cluster, 0)
            for name in cluster.running:
                assert_bounded(cluster.replicas[name])
            victim = cluster.owners()[0]
            cluster.kill(victim)
            engines.say()
            cluster.wait_taken_from(victim)
            wait_known(cluster, 1)
            cluster.wait_settled()
            engines.say()
            wait_known(cluster, 2)
            for name in cluster.running:
                assert_bounded(cluster.replicas[name])
                assert not any(source["counters"].get("gaps") for source in cluster.replicas[name].sources().values())
        assert_clean(server)


def wait_known(cluster: Cluster, sequence: int | None) -> None:
    """Until every replica that runs has that batch of every engine, `live` and `exact`; None: all are connected."""
    for name in cluster.running:
        cluster.wait_for(
            lambda name=name: is_known(cluster.replicas[name], sequence),  # type: ignore[misc]
            f"{name} to have batch {sequence} of all",
            lambda name=name: str(left(cluster.replicas[name], sequence)),  # type: ignore[misc]
        )


def is_known(replica: Member, sequence: int | None) -> bool:
    """Of all sources."""
    if sequence is None:
        return SOURCES == len(replica.sources()) and not left(replica, None)
    answer = replica.ask(tokens_of(sequence))
    return SOURCES == len(answer.pods) and all(
        (entry.state, entry.bound, entry.sequence, entry.matched_tokens) == ("live", "exact", sequence, 16)
        for entry in answer.pods
    )


def left(replica: Member, sequence: int | None) -> list[tuple[str, str, int | None]]:
    """The first of those that are not as far."""
    wanted = {"new"} if sequence is None else {"live"}
    return [
        (pod, source["state"], source["sequence"])
        for pod, source in replica.sources().items()
        if source["state"] not in wanted or source["sequence"] != sequence
    ][:5]


def assert_bounded(replica: Member) -> None:
    """What the process has open, and in memory."""
    folder = Path(f"/proc/{replica.pid}")
    shares = Counter({"owner": 0, "standby": 0})
    for view in replica.partitions().values():
        shares[view["role"]] += view["sources"]
    fds = len(list((folder / "fd").iterdir()))
    rss_bytes = int((folder / "statm").read_text().split()[1]) * PAGE_BYTES
    print(f"{replica.name}: {dict(shares)}, {fds} files, {rss_bytes >> 20} MiB")
    assert shares["owner"] * FDS_OWNED + shares["standby"] * FDS_LISTENED + FDS >= fds
    assert rss_bytes <= RSS_BYTES
