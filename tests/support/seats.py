"""Replicas in the test's process: each with a name, a link of its own to the store, and now and then a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from indexer.clock import SystemClock
from indexer.model import SourceId
from schemas.lookup import LookupQuery, PodEntry
from tests.support.core import Answer
from tests.support.core_events import u32
from tests.support.node_threads import NodeThread
from tests.support.proxy import ProxyThread
from tests.support.speaking_engine import QUESTIONS, TAIL, Batch, batch_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from indexer.node import Node
    from indexer.ports import ListenerView
    from indexer.settings import Settings
    from tests.support.proxy import Way


class Told(NamedTuple):
    """An entry of an answer, and the batch up to which it speaks, where that is known."""

    entry: PodEntry
    batch: Batch | None


class Waking(NamedTuple):
    """What a replica says first after it stood still for so long."""

    still_s: float
    owned: frozenset[str]
    """Pods whose events it applied when it was stopped."""
    told: list[dict[str, Told]]


def read(node: Node) -> list[dict[str, Told]]:
    """By question, then pod: what it answers at one moment. On the node's loop."""
    sources = {name.pod: source.facts for name, source in node.registry.sources.items()}
    found = []
    for question in QUESTIONS:
        query = question.query(TAIL)
        answer = node.lookup(LookupQuery(tokens=u32(query.pop("token_ids")), **query))
        told = {}
        for entry in msgspec.json.decode(msgspec.json.encode(answer), type=Answer).pods:
            stamp = sources[entry.pod].stamp
            batch = None if stamp is None else batch_of(stamp)
            told[entry.pod] = Told(entry, batch if batch is not None and batch.sequence == entry.sequence else None)
        found.append(told)
    return found


def owned_partitions(node: Node) -> frozenset[int]:
    """Which are loaded and written here. On the node's loop."""
    assert node.replica is not None
    return frozenset(number for number, owner in node.replica.owners.items() if owner.role == "owner")


def has_told(node: Node) -> bool:
    """Whether all registries were told what is configured here. On the node's loop."""
    assert node.replica is not None
    parts = node.replica._parts
    return parts.told_configured.issuperset(map(parts.partition_of, parts.configured))


def owned_pods(node: Node) -> frozenset[str]:
    """Whose events are applied here. On the node's loop."""
    assert node.replica is not None
    own = owned_partitions(node)
    return frozenset(name.pod for name in node.registry.sources if node.replica._parts.partition_of(name) in own)


class Seat:
    """`settings` of the replica that sits here, by the address of its link."""

    def __init__(self, name: str, store_port: int, settings: Callable[[str, str], Settings]) -> None:
        self.name = name
        self.link: Way = "pass"
        self._settings = settings
        self._proxy = ProxyThread(store_port)
        self._proxy.__enter__()
        self._thread: NodeThread | None = None
        self._clock = SystemClock()
        self._waking: Waking | None = None

    @property
    def runs(self) -> bool:
        """Whether a replica is here, be it held or not."""
        return self._thread is not None

    @property
    def is_held(self) -> bool:
        """Whether it stands still."""
        return self._thread is not None and self._thread.is_held

    @property
    def answers(self) -> bool:
        """Whether a replica is here and goes on."""
        return self.runs and not self.is_held

    @property
    def thread(self) -> NodeThread:
        """Of the replica that is here."""
        assert self._thread is not None
        assert self._thread.is_running, f"{self.name} ended by itself"
        return self._thread

    @property
    def node(self) -> Node:
        """The replica that is here."""
        return self.thread.node

    def read(self) -> list[dict[str, Told]]:
        """See `read`."""
        return self.thread.call(lambda: read(self.node))

    def owned(self) -> frozenset[int]:
        """See `owned_partitions`."""
        return self.thread.call(lambda: owned_partitions(self.node))

    @property
    def has_told(self) -> bool:
        """See `has_told`."""
        return self.thread.call(lambda: has_told(self.node))

    @property
    def heard_at(self) -> float:
        """When the store answered its last beat."""
        replica = self.node.replica
        assert replica is not None, "each has a store"
        return self.thread.call(lambda: replica.sharing.membership._heard_at)

    def listener(self, pod: str) -> ListenerView | None:
        """Where it only listens to a pod's engine: how that goes."""
        return self.thread.call(self.node.fleet.listeners).get(SourceId(pod, 0))

    # -- what happens to it --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """A replica begins."""
        assert self._thread is None
        self._thread = NodeThread(self._settings(self._proxy.url, self.name))

    def kill(self) -> None:
        """Its link is cut first, so that it says no last word."""
        link = self.link
        self.set_link("reset")
        self.thread.kill()
        self._thread = None
        self.set_link(link)

    def end(self) -> None:
        """As on SIGTERM."""
        self.thread.end()
        self._thread = None

    def hold(self) -> None:
        """It stands still from now on."""
        node = self.node
        owned = self.thread.call(lambda: owned_pods(node))
        since = self._clock.now()

        def at_waking() -> None:
            self._waking = Waking(self._clock.now() - since, owned, read(node))

        self._waking = None
        self.thread.hold(at_waking)

    def wake(self) -> Waking:
        """It goes on; what it said first."""
        self.thread.wake()
        self.thread.call(lambda: None)
        assert self._waking is not None
        return self._waking

    def set_link(self, way: Way) -> None:
        """From now on."""
        self.link = way
        self._proxy.set(way)

    def close(self) -> None:
        """Nothing of it goes on."""
        if self.runs:
            self.kill()
        self._proxy.__exit__()
