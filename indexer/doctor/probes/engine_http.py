"""[I/O] What an engine says of itself over HTTP: /metrics, /version, /v1/models, /kv_event_sources.

GET only, to the address that its source names, without tokens; no redirect is followed and no proxy of the environment
is used.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import httpx
import msgspec

from indexer.doctor.cache_config import cache_config
from indexer.doctor.facts import EngineHttp, EventsConfig
from indexer.http_clients import blocking_client

if TYPE_CHECKING:
    from threading import Event

    from indexer.ports import Clock

PATIENCE_S: Final = 4.0
"""For one answer, whatever it does."""
ANSWER_BYTES_MAX: Final = 8 * 1024**2
MODELS_MAX: Final = 1_024
BUFFER_MAX: Final = 2**32


class _NoAnswer(Exception):
    """Why."""


def engine_client() -> httpx.Client:
    """One for all engines: it takes time to make, and threads may share it."""
    return blocking_client(PATIENCE_S)


def ask_engine(client: httpx.Client, address: str, dp_rank: int, clock: Clock, stop: Event) -> EngineHttp:
    """All that it says. `address`: IP:PORT."""
    asking = _Asking(client, f"http://{address}", clock, stop)
    try:
        metrics = asking.get("/metrics")
    except _NoAnswer as why:
        return EngineHttp(trouble=str(why))
    said = cache_config("" if metrics is None else metrics.decode("utf-8", "replace"), dp_rank)
    return EngineHttp(
        trouble="/metrics is not there" if metrics is None else None,
        version=_version(asking.json("/version")),
        block_size=said.block_size,
        num_gpu_blocks=said.num_gpu_blocks,
        prefix_caching=said.prefix_caching,
        models=_models(asking.json("/v1/models")),
        events=_events(asking.json("/kv_event_sources"), dp_rank),
    )


class _Asking:
    def __init__(self, client: httpx.Client, url: str, clock: Clock, stop: Event) -> None:
        self._client = client
        self._url = url
        self._clock = clock
        self._stop = stop

    def json(self, path: str) -> Any:  # noqa: ANN401  whatever it says
        """None where it says nothing of use."""
        try:
            content = self.get(path)
            return None if content is None else msgspec.json.decode(content)
        except (_NoAnswer, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def get(self, path: str) -> bytes | None:
        """The body of a 200, else None. Raises `_NoAnswer`."""
        ends_at = self._clock.now() + PATIENCE_S
        parts, size = [], 0
        try:
            # Uncompressed: what is read is what was sent, and cannot grow.
            with self._client.stream("GET", self._url + path, headers={"accept-encoding": "identity"}) as response:
                for part in response.iter_raw():
                    size += len(part)
                    if size > ANSWER_BYTES_MAX:
                        raise _NoAnswer(f"an answer of more than {ANSWER_BYTES_MAX} bytes")
                    if self._clock.now() > ends_at or self._stop.is_set():
                        raise _NoAnswer(f"no whole answer in {PATIENCE_S:g} s")
                    parts.append(part)
                return b"".join(parts) if response.status_code == HTTPStatus.OK else None
        except httpx.TimeoutException as error:
            raise _NoAnswer(f"no answer in {PATIENCE_S:g} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise _NoAnswer("no HTTP server answers there") from error


def _version(said: object) -> str | None:
    version = said.get("version") if isinstance(said, dict) else None
    return version[:64] if isinstance(version, str) else None


def _models(said: object) -> tuple[str, ...] | None:
    listed = said.get("data") if isinstance(said, dict) else None
    if not isinstance(listed, list):
        return None
    names = [item.get("id") for item in listed[:MODELS_MAX] if isinstance(item, dict)]
    return tuple(name[:512] for name in names if isinstance(name, str)) or None


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
