"""[I/O] What engines' own metrics say of their caches, asked now and then where `events.engine_metrics_s` is set.

Only `GET /metrics` at the addresses of sources whose events are applied here; no redirect is followed, no proxy of the
environment used, no token shown. An answer fills in a capacity that nobody gave; what it contradicts is a remark, and
changes nothing.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import httpx

from indexer.doctor.cache_config import CacheConfig, cache_config
from indexer.http_clients import TooLong, body_of, client, why_not_reached

if TYPE_CHECKING:
    from collections.abc import Callable

    from indexer.index.registry import Registry
    from indexer.index.source import SourceIndex
    from indexer.model import SourceId
    from indexer.ports import Clock

AT_ONCE: Final = 8
"""Engines asked together, and in each turn."""
TURN_S: Final = 0.5
PATIENCE_S: Final = 4.0
ANSWER_BYTES_MAX: Final = 8 * 1024**2
LIMIT: Final = "engine_metrics.bytes"
"""How that is counted."""
REMARKS: Final = ("engine_metrics", "engine_caching", "engine_blocks", "engine_block_size")
"""Keys of a source's warnings that are this part's."""


class _Unusable(Exception):
    """Why an answer tells nothing."""


class EngineWatch:
    """Asks, and remarks on sources. `every_s` None: nobody is asked."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        *,
        every_s: float | None,
        follows: Callable[[SourceId], bool],
        limit_reached: Callable[[str], None],
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._every_s = every_s
        self._follows = follows
        self._limit_reached = limit_reached
        self._asked: dict[SourceId, tuple[SourceIndex, float]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set."""
        if self._every_s is None:
            return
        limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=0)
        async with (
            client(PATIENCE_S, limits) as http,
            asyncio.TaskGroup() as tasks,
        ):
            asking = tasks.create_task(self._go_on(http, self._every_s), name="asking engines")
            await stop.wait()
            asking.cancel()

    async def _go_on(self, http: httpx.AsyncClient, every_s: float) -> None:
        """Some in each turn, together."""
        while True:
            async with asyncio.TaskGroup() as tasks:
                for source in self._due(every_s):
                    tasks.create_task(self._ask(http, source), name=f"metrics of {source.descriptor.id}")
            await asyncio.sleep(TURN_S)

    def _due(self, every_s: float) -> list[SourceIndex]:
        """Those never asked, and those asked longest ago; who is there no more is forgotten."""
        now = self._clock.now()
        for key in [key for key, (source, _) in self._asked.items() if self._registry.sources.get(key) is not source]:
            del self._asked[key]
        due = [
            (self._asked[key][1] if key in self._asked else -1.0, source)
            for key, source in self._registry.sources.items()
            if source.descriptor.address is not None and not self._follows(key)
        ]
        due = sorted((each for each in due if now - each[0] >= every_s or each[0] < 0), key=lambda each: each[0])
        return [source for _, source in due[:AT_ONCE]]

    async def _ask(self, http: httpx.AsyncClient, source: SourceIndex) -> None:
        key, address = source.descriptor.id, source.descriptor.address
        self._asked[key] = source, self._clock.now()
        try:
            async with asyncio.timeout(PATIENCE_S):
                content = await _content(http, f"http://{address}/metrics")
            said = await asyncio.to_thread(_read, content, key.dp_rank)  # megabytes of them hold the loop for too long
        except Exception as error:  # noqa: BLE001  of whatever an engine is at, the asking of others must go on
            if isinstance(error, TooLong):
                self._limit_reached(LIMIT)
            why = str(error) if isinstance(error, _Unusable | TooLong) else why_not_reached(error)
            found = {"engine_metrics": f"its metrics at {address} could not be read: {why}"}
        else:
            source.engine_blocks = said.num_gpu_blocks
            found = contradictions(source, said)
        for name in REMARKS:
            source.warnings.pop(name, None)
        source.warnings.update(found)


def contradictions(source: SourceIndex, said: CacheConfig) -> dict[str, str]:
    """What an engine says otherwise than its registration and its events."""
    told, blocks, size = source.descriptor.blocks_total, said.num_gpu_blocks, said.block_size
    out = {}
    if said.prefix_caching is False:
        out["engine_caching"] = "its metrics say that prefix caching is off: it holds nothing, and announces nothing"
    if None not in {told, blocks} and told != blocks:
        out["engine_blocks"] = f"its blocks_total is {told}, and its metrics say {blocks}"
    plain = len(source.groups) <= 1  # else the metric is that of the smallest of them
    if plain and None not in {size, source.block_size} and size != source.block_size:
        out["engine_block_size"] = (
            f"its events have blocks of {source.block_size} tokens, its metrics say {size}: another engine's address?"
        )
    return out


async def _content(http: httpx.AsyncClient, url: str) -> bytes:
    async with http.stream("GET", url) as response:
        if response.status_code != HTTPStatus.OK:
            raise _Unusable(f"status {response.status_code}")
        return await body_of(response, ANSWER_BYTES_MAX)


def _read(content: bytes, dp_rank: int) -> CacheConfig:
    return cache_config(content.decode("utf-8", "replace"), dp_rank)
