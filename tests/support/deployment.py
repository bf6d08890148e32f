"""Three replicas that share engines, and the truth about those: every answer of every replica can be judged."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from indexer.model import SourceId
from indexer.store.layout import PartitionKeys, partition_of, tags
from tests.support.core_service import standing
from tests.support.in_trouble import Truth, assert_clean
from tests.support.many import NAMES, Cluster
from tests.support.redis_servers import own_server, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.support.in_trouble import Engine, Replica
    from tests.support.redis_servers import Server

PARTITIONS: Final = 3
"""One for each of three replicas, and one pod in each."""


def one_pod_each(partitions: int) -> list[str]:
    """A pod for every partition, in their order."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < partitions:
        found.setdefault(partition_of(SourceId(f"pod-{number}", 0), partitions), f"pod-{number}")
        number += 1
    return [found[partition] for partition in range(partitions)]


class Deployment(Truth):
    """A pod in each partition. A context manager: replicas that are not killed end in order."""

    def __init__(
        self,
        server: Server,
        *,
        replay: bool = False,
        names: Sequence[str] = NAMES,
        partitions: int = PARTITIONS,
        **settings: str,
    ) -> None:
        super().__init__(one_pod_each(partitions), replay=replay)
        self.server = server
        self.pods = list(self.engines)
        try:
            self.cluster = self._stack.enter_context(
                Cluster(server.port, self.flags, partitions=partitions, names=names, **settings)
            )
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        """End all."""
        self._stack.close()

    def begin(self, batches: int = 4) -> dict[str, str]:
        """Shared as planned, some batches known to all. Returns every source's generation."""
        self.cluster.wait_settled()
        self.wait_heard()
        self.publish(batches)
        self.wait_right()
        return self.generations()

    def wait_heard(self, count: int = 0) -> None:
        """Until every engine has so many subscribers: an owner and a standby, if there can be one."""
        wanted = count or min(2, len(self.cluster.running))
        for engine in self.engines.values():
            wait_for(lambda engine=engine: engine.subscribers >= wanted, f"{engine.pod} to have {wanted} subscribers")

    def wait_right(self, *names: str) -> None:
        """Until these (all that run) answer every prompt as the engines hold it, `live` and `exact`."""
        for name in names or self.cluster.running:
            replica = self.cluster.replicas[name]
            self.cluster.wait_for(
                partial(self.all_right, replica),
                f"{name} to be right",
                lambda replica=replica: str(self.doubts(replica)),  # type: ignore[misc]
            )

    def doubts(self, replica: Replica) -> list[str]:
        """What it says of the newest prompt otherwise than the engines."""
        entries = replica.judge(self.sample()[0], self.engines)
        return [
            f"{pod}: {standing(entries[pod]) if pod in entries else None}, the engine is at {engine.sequence}"
            for pod, engine in self.engines.items()
            if pod not in entries or standing(entries[pod]) != ("live", "exact", engine.sequence)
        ]

    def ask_everybody(self) -> None:
        """All that run, judged."""
        for name in self.cluster.running:
            self.ask_all(self.cluster.replicas[name])

    def sequences(self) -> dict[str, int]:
        """By pod, of its last batch."""
        return {pod: engine.sequence for pod, engine in self.engines.items()}

    def generations(self) -> dict[str, str]:
        """By pod; those that run must agree."""
        told = [
            {pod: source["generation"] for pod, source in self.cluster.replicas[name].sources().items()}
            for name in self.cluster.running
        ]
        assert all(each == told[0] for each in told), told
        return told[0]

    def mishaps(self) -> dict[str, dict[str, int]]:
        """By pod, gaps and restarts that anybody who runs has counted."""
        found: dict[str, dict[str, int]] = {}
        for name in self.cluster.running:
            for pod, source in self.cluster.replicas[name].sources().items():
                counted = {what: count for what in ("gaps", "restarts") if (count := source["counters"].get(what, 0))}
                if counted:
                    found[pod] = counted
        return found

    def epochs(self) -> list[list[int]]:
        """By partition, those in its journal, in their order: one for each time that somebody became its owner."""
        with self.server.client() as look:
            journals: list[Any] = [look.xrange(keys.log) for keys in self.keys]
        return [sorted({int(entry.partition(b"-")[0]) for entry, _ in journal}) for journal in journals]

    @property
    def keys(self) -> list[PartitionKeys]:
        """By partition."""
        return [PartitionKeys("kvi", tag) for tag in tags(self.cluster.partitions)]

    def engine_in(self, partition: int) -> Engine:
        """The one of that partition."""
        return self.engines[self.pods[partition]]

    def owned_by(self, name: str) -> list[str]:
        """Pods of the partitions that a replica says to own."""
        return [pod for partition, pod in enumerate(self.pods) if self.cluster.owners().get(partition) == name]


@contextlib.contextmanager
def deployed(
    folder: Path, *, replay: bool = False, names: Sequence[str] = NAMES, partitions: int = PARTITIONS, **settings: str
) -> Iterator[Deployment]:
    """Three replicas on a server of the test's own, which is looked at when all have ended."""
    with own_server(folder) as server:
        with contextlib.closing(
            Deployment(server, replay=replay, names=names, partitions=partitions, **settings)
        ) as deployment:
            yield deployment
        assert_clean(server)
