"""Discoverers that tell what a test says."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from indexer.discovery.found import Found, Picture
from indexer.model import Descriptor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from indexer.model import SourceId


def found(pod: str, *, ready: bool = True, life: str = "", why: str = "", **described: Any) -> Found:  # noqa: ANN401  of a descriptor
    """One source, of origin `discovery`."""
    described.setdefault("endpoint", "tcp://127.0.0.1:1")
    return Found(descriptor=Descriptor(pod=pod, origin="discovery", **described), ready=ready, life=life, why=why)


def picture(*those: Found, remarks: Mapping[str, str] | None = None) -> Picture:
    """Of these."""
    return Picture({each.descriptor.id: each for each in those}, remarks or {})


class Teller:
    """A discoverer that tells each picture that it is given, from the latest on whenever it is run."""

    def __init__(self, name: str = "teller") -> None:
        self.name = name
        self.heard_at: float | None = None
        self.trouble = ""
        self.failures: Counter[str] = Counter()
        self.runs = 0
        """How often somebody began to watch."""
        self.running = False
        self._latest: Picture | None = None
        self._changed = asyncio.Event()

    def tell(self, *those: Found, remarks: Mapping[str, str] | None = None) -> dict[SourceId, Found]:
        """From now on it is so."""
        self._latest = picture(*those, remarks=remarks)
        self._changed.set()
        return dict(self._latest.found)

    async def run(self, told: Callable[[Picture], None]) -> None:
        self.runs += 1
        self.running = True
        try:
            while True:
                self._changed.clear()
                if self._latest is not None:
                    told(self._latest)
                await self._changed.wait()
        finally:
            self.running = False
