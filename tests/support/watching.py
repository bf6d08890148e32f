"""The Kubernetes discoverer beside an API server, for as long as a block lasts."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Final

from indexer.clock import SystemClock
from indexer.discovery.event_endpoints import Endpoints, NotTold
from indexer.discovery.kubernetes import KubernetesDiscoverer
from indexer.discovery.kubernetes.watch import PODS_MAX, Pace
from indexer.settings.discovery import Kubernetes
from indexer.settings.in_cluster import Access
from tests.support.collecting import until
from tests.support.pod_pictures import rules

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from indexer.discovery.found import Picture
    from indexer.discovery.kubernetes.asking import Ask

QUICK: Final = Pace(watch_s=(60, 60), rest_s=0.01, rest_max_s=0.05)
SETTINGS: Final = Kubernetes(selector="app=vllm", namespaces=("serving",))


class Seen:
    """What a discoverer told."""

    def __init__(self, discoverer: KubernetesDiscoverer) -> None:
        self.discoverer = discoverer
        self.pictures: list[Picture] = []

    @property
    def now(self) -> Picture:
        """The latest."""
        return self.pictures[-1]

    def lives(self) -> dict[str, str]:
        """By the pod's name, its process."""
        return {found.descriptor.aliases[0]: found.life for found in self.now.found.values()}

    async def until(self, holds: Callable[[Picture], bool], what: str) -> Picture:
        """Wait for such a picture to be the latest."""
        await until(lambda: bool(self.pictures) and holds(self.now), what)
        return self.now

    async def until_names(self, *names: str) -> None:
        """Wait until these pods, and no others, are sources."""
        wanted = {f"serving/{name}" for name in names}
        await self.until(lambda _: self.lives().keys() == wanted, f"sources {sorted(wanted)}")


async def unasked(address: str) -> Mapping[int, Endpoints]:
    """An engine that does not answer."""
    raise NotTold(address)


@contextlib.asynccontextmanager
async def watching(
    url: str,
    token_file: Path | None,
    *,
    ca_file: Path | None = None,
    settings: Kubernetes = SETTINGS,
    ask: Ask = unasked,
    pace: Pace = QUICK,
    pods_max: int = PODS_MAX,
) -> AsyncIterator[Seen]:
    """It runs until the block ends."""
    access = Access(
        url, None if token_file is None else str(token_file), None if ca_file is None else str(ca_file), None
    )
    discoverer = KubernetesDiscoverer(
        rules(settings), access, clock=SystemClock(), chance=random.Random(7), ask=ask, pace=pace, pods_max=pods_max
    )
    seen = Seen(discoverer)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(discoverer.run(seen.pictures.append), name="discoverer")
        yield seen
        assert not running.done()
        running.cancel()
