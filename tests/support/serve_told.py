"""`kvindexer serve` with a discoverer that reads a file: run as a module, with the service's own arguments.

`KVINDEXER_TOLD_FOLDER` has a file for each replica, called as it is: what it is told, until somebody writes it anew.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import indexer.discovery.chosen
from indexer.__main__ import main
from indexer.discovery.found import Found, Picture

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from indexer.discovery.found import Discoverer
    from indexer.ports import Clock
    from indexer.settings import Settings

LOOK_S: Final = 0.02


class Reader:
    """A discoverer."""

    name = "file"

    def __init__(self, path: Path, clock: Clock) -> None:
        self.heard_at: float | None = None
        self.trouble = ""
        self.failures: Counter[str] = Counter()
        self._path = path
        self._clock = clock

    async def run(self, told: Callable[[Picture], None]) -> None:
        """Whenever the file is another."""
        before = b""
        while True:
            text = self._path.read_bytes() if self._path.exists() else b""
            if text not in {before, b""}:
                before = text
                found = msgspec.json.decode(text, type=list[Found])
                told(Picture({each.descriptor.id: each for each in found}))
            self.heard_at = self._clock.now()
            await asyncio.sleep(LOOK_S)


def tell(folder: Path, replica: str, those: Sequence[Found]) -> None:
    """From now on it is so, as that replica is told."""
    fresh = folder / f"{replica}.new"
    fresh.write_bytes(msgspec.json.encode(those))
    fresh.replace(folder / replica)


def _discoverers(_: Settings, clock: Clock) -> tuple[Discoverer, ...]:
    return (Reader(Path(os.environ["KVINDEXER_TOLD_FOLDER"]) / os.environ["KVINDEXER_REDIS__REPLICA"], clock),)


if __name__ == "__main__":
    indexer.discovery.chosen.discoverers = _discoverers
    main()
