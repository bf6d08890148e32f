"""Owners that die, and owners that stand still and wake up. Engines do not replay: what is there, a standby had."""

from __future__ import annotations

import contextlib
import http.client
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
import pytest

from indexer.sharding.rendezvous import share_out
from tests.support.core import Answer
from tests.support.core_service import DEADLINE_S
from tests.support.deployment import PARTITIONS, deployed
from tests.support.in_trouble import tokens_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.deployment import Deployment
    from tests.support.many import Member


def test_a_standby_takes_over_from_one_that_was_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It becomes the owner in one epoch; nothing is missing, and no life of an engine begins."""
    with deployed(tmp_path) as deployment:
        generations = deployment.begin()
        cluster, epochs = deployment.cluster, deployment.epochs()
        plan = share_out(PARTITIONS, cluster.running)
        victim = plan[0].owner
        assert victim is not None
        stay = share_out(PARTITIONS, cluster.others(victim))
        cluster.kill(victim)
        killed_at = time.monotonic()
        deployment.publish(3)
        cluster.wait_taken_from(victim)
        taken_s = time.monotonic() - killed_at
        deployment.publish(1)
        deployment.wait_right()
        right_s = time.monotonic() - killed_at
        owners = cluster.owners()
        after = deployment.epochs()

        for number, share in enumerate(plan):
            if share.owner == victim:
                assert (share.standby, len(epochs[number]) + 1) == (owners[number], len(after[number]))
            elif share.owner == stay[number].owner:
                assert (share.owner, epochs[number]) == (owners[number], after[number])
        assert generations == deployment.generations()
        assert {} == deployment.mishaps()
    with capsys.disabled():
        print(f" (all taken over {taken_s:.2f} s after the kill, all right after {right_s:.2f} s)")


@pytest.mark.slow
def test_one_replica_after_the_other_dies(tmp_path: Path) -> None:
    """Down to one, and up to three again: with a standby each time, nothing is missing."""
    with deployed(tmp_path) as deployment:
        generations = deployment.begin()
        cluster = deployment.cluster
        for _ in range(2):
            victim = cluster.owners()[0]
            cluster.kill(victim)
            deployment.publish(2)
            cluster.wait_taken_from(victim)
            deployment.publish(1)
            cluster.wait_settled()
            deployment.wait_heard()
            deployment.wait_right()
        cluster.join("fourth", "fifth")
        deployment.publish(2)
        cluster.wait_settled()
        deployment.publish(1)
        deployment.wait_right()
        assert generations == deployment.generations()
        assert {} == deployment.mishaps()


def test_sources_of_one_replica_only(tmp_path: Path) -> None:
    """The others are started without `--source`: they share what it is configured with, also when it is dead."""
    with deployed(tmp_path, names=("first",)) as deployment:
        cluster = deployment.cluster
        cluster.join("second", "third", flags=())
        generations = deployment.begin()
        cluster.kill("first")
        deployment.publish(2)
        cluster.wait_taken_from("first")
        cluster.wait_settled()
        deployment.wait_right()
        cluster.join("first")
        deployment.publish(2)
        cluster.wait_settled()
        deployment.wait_right()
        assert generations == deployment.generations()
        assert {} == deployment.mishaps()


def test_an_owner_that_wakes_up(tmp_path: Path) -> None:
    """From its first answer on it is not certain of what it owned, and does not own it; it follows, and is right."""
    with deployed(tmp_path) as deployment:
        generations = deployment.begin()
        cluster = deployment.cluster
        sleeper = cluster.replicas[cluster.owners()[0]]
        owned = deployment.owned_by(sleeper.name)
        cluster.pause(sleeper.name)
        deployment.publish(3)
        cluster.wait_taken_from(sleeper.name)
        deployment.publish(2)
        deployment.wait_right()
        epochs, published = deployment.epochs(), deployment.sequences()

        first = ask_and_wake(deployment, sleeper)
        assert not [entry for entry in first.pods if entry.pod in owned and entry.state == "live"]
        deployment.publish(1)
        cluster.wait_for(lambda: is_yesterday_gone(deployment, sleeper, owned, published, epochs), "it to follow")
        deployment.wait_right()
        cluster.wait_settled()
        deployment.publish(1)
        deployment.wait_right()
        assert generations == deployment.generations()
        assert {} == deployment.mishaps()


def ask_and_wake(deployment: Deployment, sleeper: Member) -> Answer:
    """The question lies in the sleeper's socket when it wakes up: nothing comes before it but what lies there, too."""
    where = urlsplit(sleeper.url)
    asking = http.client.HTTPConnection(where.hostname or "", where.port, timeout=DEADLINE_S)
    with contextlib.closing(asking):
        body = msgspec.json.encode({"token_ids": tokens_of(0)})
        asking.request("POST", "/v1/lookup", body, {"content-type": "application/json"})
        deployment.cluster.resume(sleeper.name)
        return msgspec.json.decode(asking.getresponse().read(), type=Answer)


def is_yesterday_gone(
    deployment: Deployment, sleeper: Member, owned: list[str], published: dict[str, int], epochs: list[list[int]]
) -> bool:
    """Whether it is right. Until then it is certain neither of an old epoch of its own nor of old things."""
    for view in sleeper.partitions().values():
        if (view["role"], view["state"]) == ("owner", "live"):
            assert view["epoch"] > epochs[view["partition"]][-1], view
    for entries in deployment.ask_all(sleeper):
        for pod in owned:
            entry = entries.get(pod)
            if entry is not None and entry.state == "live":
                assert entry.sequence is not None, entry
                assert entry.sequence >= published[pod], entry
    return deployment.all_right(sleeper)
