"""`kvindexer drain` and `partitions --watch` as processes, asking a service whose replicas do what a test says."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from api.server import ServerSettings
from schemas.rest import PartitionList, PartitionView, ReplicaState, ReplicaView
from tests.support.fake_node import FakeNode
from tests.support.serving import served_in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE_S = 60.0
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("KVINDEXER_")}
ENVIRONMENT["KVINDEXER_SERVER__GRPC_PORT"] = "0"
COMMAND = [sys.executable, "-m", "indexer"]


class Scripted(FakeNode):
    """Each look at its replicas shows the next of `looks`, the last one for ever."""

    def __init__(self, *looks: list[ReplicaView]) -> None:
        super().__init__()
        self.looks = list(looks)
        self.others = self.looks[0]
        self.stored = [PartitionView(partition=0, role="follower", state="live", owner="a", standby="b")]

    async def partitions(self) -> PartitionList:
        if len(self.looks) > 1:
            del self.looks[0]
        self.others = self.looks[0]
        return await super().partitions()


def replica(owned: int, state: ReplicaState = "draining") -> ReplicaView:
    """The one that is drained."""
    return ReplicaView(name="a", address="", state=state, owned=owned, standby=0, age_ms=3, me=False)


@contextlib.contextmanager
def started(node: FakeNode, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command that asks this node's service."""
    with served_in_thread(node, ServerSettings(port=0)) as (host, port):
        words = [*COMMAND, *arguments, "--url", f"http://{host}:{port}"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def drain(node: FakeNode, *arguments: str) -> tuple[int, str, str]:
    """To its end: exit code and what it said."""
    with started(node, "drain", "a", *arguments) as process:
        out, err = process.communicate(timeout=DEADLINE_S)
        return process.returncode, out, err


def test_it_waits_until_nothing_is_left() -> None:
    """With a line for each step; the last word is for a person or a program."""
    for flags, said in (([], "a owns nothing any more: it can be stopped\n"), (["--json"], None)):
        code, out, err = drain(Scripted([replica(2)], [replica(2)], [replica(1)], [replica(0)]), *flags)
        assert (0, "a is draining: 2 partitions left\na is draining: 1 partition left\n") == (code, err)
        if said is None:
            assert {"name": "a", "draining": True, "owned": 0, "effect": "done"} == json.loads(out)
        else:
            assert said == out


def test_it_need_not_wait() -> None:
    """Told what is left."""
    assert (0, "a is draining: 2 partitions left\n", "") == drain(Scripted([replica(2)]), "--no-wait")


def test_who_stops_and_is_forgotten_is_done() -> None:
    """Nobody of that name is there any more."""
    assert 0 == drain(Scripted([replica(2)], [replica(2, "leaving")], []))[0]


def test_who_owns_nothing_is_done_at_once() -> None:
    """Nothing is waited for."""
    assert (0, "a owns nothing any more: it can be stopped\n", "") == drain(Scripted([replica(0)]))


def test_it_is_taken_back() -> None:
    """At once."""
    node = Scripted([replica(2)])
    node.drained = {"a"}

    assert (0, "a may own partitions again\n", "") == drain(node, "--undo")
    assert set() == node.drained


@pytest.mark.parametrize(
    ("looks", "why"),
    [
        ([replica(2, "silent")], "a is silent: it hands nothing over, others take over what it owned"),
        ([replica(2, "live")], "a is not draining any more: taken back, or its process was started anew"),
    ],
)
def test_a_drain_that_comes_to_nothing(looks: list[ReplicaView], why: str) -> None:
    """It died, or somebody else took the drain back: exit code 1."""
    code, out, err = drain(Scripted([replica(2)], looks))

    assert (1, "") == (code, out)
    assert f"kvindexer: {why}" == err.splitlines()[-1]


def test_it_waits_no_longer_than_told() -> None:
    """The drain goes on; exit code 1."""
    code, _, err = drain(Scripted([replica(2)]), "--timeout", "0.1")

    assert 1 == code
    assert (
        "kvindexer: not done after 0.1 s: the drain of a goes on, 2 partitions left "
        "(kvindexer drain a --undo takes it back)"
    ) == err.splitlines()[-1]


def test_ctrl_c_ends_the_waiting_and_not_the_drain() -> None:
    """It says so; exit code 130."""
    node = Scripted([replica(2)])
    with started(node, "drain", "a") as process:
        assert process.stderr is not None
        assert "a is draining: 2 partitions left\n" == process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE_S)

    assert 130 == process.returncode
    assert err.startswith("kvindexer: not waited for: the drain of a goes on, 2 partitions left")
    assert {"a"} == node.drained


def test_partitions_are_watched_until_ctrl_c() -> None:
    """Again and again; with --json an answer a line."""
    with started(Scripted([replica(2)], [replica(2)], [replica(1)]), "partitions", "--watch", "--json") as process:
        assert process.stdout is not None
        owned = [json.loads(process.stdout.readline())["replicas"][0]["owned"] for _ in range(2)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)

    assert ([2, 1], 0) == (owned, process.returncode)
