"""A small deployment in the test's process: a store, engines, seats for replicas, and a witness of the store."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from indexer.model import Descriptor, SourceId
from indexer.settings import Events, Redis, Server, Settings, Staleness
from indexer.sharding.rendezvous import share_out
from indexer.store.layout import partition_of
from tests.support.core_streams import Contents
from tests.support.redis_servers import Server as StoreServer
from tests.support.redis_servers import binaries
from tests.support.seats import Seat
from tests.support.speaking_engine import SpeakingEngine
from tests.support.store_witness import StoreWitness

if TYPE_CHECKING:
    from collections.abc import Iterable

PODS: Final = {"pod-0": "one group", "pod-1": "windows", "pod-2": "two full groups"}
"""All in different partitions."""
GUEST: Final = "pod-4"
"""Comes and goes by command; in the partition that is left."""
ALL_PODS: Final = {**PODS, GUEST: "one group, no kind told"}
NAMES: Final = ("r0", "r1", "r2", "r3")
PARTITIONS: Final = 4
LEASE_S: Final = 1.2
EVENTS: Final = Events(probe_interval_s=0.3, heartbeat_ms=200, reconnect_max_ms=100)
STALENESS: Final = Staleness(stale_after_s=3.0)


def partition(pod: str) -> int:
    """Where it belongs."""
    return partition_of(SourceId(pod, 0), PARTITIONS)


class Fleet:
    """`replays`: whether engines say again what was missed."""

    def __init__(self, *, replays: bool) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.store = StoreServer(binaries()["valkey"], self.folder / "store")
        self.look = self.store.client()
        self.witness = StoreWitness(self.look, PARTITIONS, [(partition(pod), SourceId(pod, 0)) for pod in ALL_PODS])
        contents = Contents()
        self.engines = {pod: SpeakingEngine(layout, contents, replays=replays) for pod, layout in ALL_PODS.items()}
        self.seats = [Seat(name, self.store.port, self._settings) for name in NAMES]

    def descriptor(self, pod: str) -> Descriptor:
        """How an engine is registered."""
        simulator = self.engines[pod].simulator
        return Descriptor(
            pod=pod,
            endpoint=simulator.endpoint,
            replay_endpoint=simulator.replay_endpoint,
            origin="api" if pod == GUEST else "flag",
        )

    def _settings(self, url: str, name: str) -> Settings:
        redis = Redis(
            url=url,
            partitions=PARTITIONS,
            lease_s=LEASE_S,
            timeout_ms=300,
            replica=name,
            heartbeat_s=0.1,
            min_hold_s=0.2,
        )
        return Settings(
            server=Server(roles=("collect", "lookup")),
            sources=tuple(self.descriptor(pod) for pod in PODS),
            redis=redis,
            events=EVENTS,
            staleness=STALENESS,
        )

    @property
    def running(self) -> list[Seat]:
        """With a replica, be it held or not."""
        return [seat for seat in self.seats if seat.runs]

    def misplaced(self, drained: Iterable[str]) -> list[object]:
        """Partitions that are not where the plan of all that run wants them, loaded: who owns them, and who should.

        Where all are drained nobody should, and they stay where they are.
        """
        plan = share_out(PARTITIONS, {seat.name for seat in self.running} - set(drained))
        if plan[0].owner is None:
            return []
        loaded = {seat.name: seat.owned() for seat in self.running}
        return [
            (number, owner, share)
            for number, (owner, share) in enumerate(zip(self.witness.owners(), plan, strict=True))
            if owner != share.owner or number not in loaded[owner]
        ]

    def untold(self) -> list[object]:
        """Replicas that have not told all registries yet what they are configured with, as they do when they start."""
        return [seat.name for seat in self.running if not seat.has_told]

    def uncovered(self, pods: Iterable[str]) -> list[object]:
        """Pods that would lose something with their owner, though others run: nobody listens along without a break."""
        listeners = {pod: {seat.name: seat.listener(pod) for seat in self.running} for pod in pods}
        return [
            (pod, views) for pod, views in listeners.items() if not any(view and view.joins for view in views.values())
        ]

    def close(self) -> None:
        """Nothing of it goes on."""
        for seat in self.seats:
            seat.close()
        for engine in self.engines.values():
            engine.close()
        self.look.close()
        self.store.stop()
        shutil.rmtree(self.folder)
