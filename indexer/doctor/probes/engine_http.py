"""[I/O] What an engine says of itself over HTTP: /metrics, /version, /v1/models, /kv_event_sources.

GET only, to the address that its source names, without tokens; no redirect is followed and no proxy of the environment
is used. Each exchange has a deadline as a whole, however its bytes come, and ends when everything is to stop.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import httpx
import msgspec

from indexer.doctor.cache_config import cache_config
from indexer.doctor.facts import EngineHttp, EventsConfig
from indexer.http_clients import TooLong, body_of, client
from indexer.loads.engine_metrics import read_loads

if TYPE_CHECKING:
    from collections.abc import Mapping
    from threading import Event

PATIENCE_S: Final = 4.0
"""For one answer, whatever it does."""
ANSWER_BYTES_MAX: Final = 8 * 1024**2
AT_ONCE: Final = 32
"""Engines."""
LOOK_S: Final = 0.05
"""How often it is looked whether to stop."""
MODELS_MAX: Final = 1_024
BUFFER_MAX: Final = 2**32


class _NoAnswer(Exception):
    """Why."""


class Asked(NamedTuple):
    """Where an engine takes requests (`IP:PORT`), and which rank of it is meant."""

    address: str
    dp_rank: int


def ask_engines(asked: Mapping[str, Asked], stop: Event) -> dict[str, EngineHttp]:
    """All that each says, by name; who had not answered when `stop` was set is left out."""
    return asyncio.run(_ask_all(asked, stop))


async def _ask_all(asked: Mapping[str, Asked], stop: Event) -> dict[str, EngineHttp]:
    told: dict[str, EngineHttp] = {}
    places = asyncio.Semaphore(AT_ONCE)

    async def one(name: str, whom: Asked) -> None:
        async with places:
            told[name] = await _ask(http, whom)

    async def all_of_them() -> None:
        async with asyncio.TaskGroup() as tasks:
            for name, whom in asked.items():
                tasks.create_task(one(name, whom), name=f"asking {name}")

    async with client(PATIENCE_S) as http, asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(all_of_them(), name="asking engines")
        while not asking.done():
            if stop.is_set():
                asking.cancel()
            await asyncio.wait([asking], timeout=LOOK_S)
    return told


async def _ask(http: httpx.AsyncClient, whom: Asked) -> EngineHttp:
    asking = _Asking(http, f"http://{whom.address}")
    try:
        metrics = await asking.get("/metrics")
    except _NoAnswer as why:
        return EngineHttp(trouble=str(why))
    said = cache_config("" if metrics is None else metrics.decode("utf-8", "replace"), whom.dp_rank)
    return EngineHttp(
        trouble="/metrics is not there" if metrics is None else None,
        version=_version(await asking.json("/version")),
        block_size=said.block_size,
        num_gpu_blocks=said.num_gpu_blocks,
        prefix_caching=said.prefix_caching,
        load=await _load(asking, metrics, whom.dp_rank),
        models=_models(await asking.json("/v1/models")),
        events=_events(await asking.json("/kv_event_sources"), whom.dp_rank),
    )


async def _load(asking: _Asking, metrics: bytes | None, dp_rank: int) -> tuple[float, float] | None:
    """Of its metrics, wherever it has them."""
    load = read_loads(metrics or b"").of(dp_rank)
    if load is None:  # TensorRT-LLM's are there
        load = read_loads(await asking.text("/prometheus/metrics") or b"").of(dp_rank)
    return None if load is None else (load.running, load.waiting)


class _Asking:
    def __init__(self, http: httpx.AsyncClient, url: str) -> None:
        self._http = http
        self._url = url

    async def json(self, path: str) -> Any:  # noqa: ANN401  whatever it says
        """None where it says nothing of use."""
        try:
            content = await self.get(path)
            return None if content is None else msgspec.json.decode(content)
        except (_NoAnswer, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    async def text(self, path: str) -> bytes | None:
        """The same as it was sent."""
        try:
            return await self.get(path)
        except _NoAnswer:
            return None

    async def get(self, path: str) -> bytes | None:
        """The body of a 200, else None. Raises `_NoAnswer`."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._content(path)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise _NoAnswer(f"no whole answer in {PATIENCE_S:g} s") from error
        except TooLong as error:
            raise _NoAnswer(f"an answer of {error}") from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise _NoAnswer("no HTTP server answers there") from error

    async def _content(self, path: str) -> bytes | None:
        async with self._http.stream("GET", self._url + path) as response:
            content = await body_of(response, ANSWER_BYTES_MAX)
        return content if response.status_code == HTTPStatus.OK else None


def _version(said: object) -> str | None:
    version = said.get("version") if isinstance(said, dict) else None
    return version[:64] if isinstance(version, str) else None


def _models(said: object) -> tuple[str, ...] | None:
    listed = said.get("data") if isinstance(said, dict) else None
    if not isinstance(listed, list):
        return None
    names = [item.get(key) for key in ("id", "root") for item in listed[:MODELS_MAX] if isinstance(item, dict)]
    return tuple(dict.fromkeys(name[:512] for name in names if isinstance(name, str))) or None


def _events(said: object, dp_rank: int) -> EventsConfig | None:
    """A map of rank → configuration, as vLLM's `--kv-events-config` has it."""
    of_rank = said.get(str(dp_rank)) if isinstance(said, dict) else None
    if not isinstance(of_rank, dict):
        return None
    enabled, replay, steps = (of_rank.get(key) for key in ("enable_kv_cache_events", "replay_endpoint", "buffer_steps"))
    return EventsConfig(
        enabled=enabled if isinstance(enabled, bool) else None,
        replay_endpoint=replay[:256] if isinstance(replay, str) else None,
        buffer_steps=steps if isinstance(steps, int) and 0 <= steps < BUFFER_MAX else None,
    )
