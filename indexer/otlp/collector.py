"""[I/O] The collector: where it is, what it wants to be shown, one request to it, and what is told of its troubles."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

import httpx

from indexer.http_clients import TooLong, body_of, client, why_not_reached
from indexer.log_lines import about

if TYPE_CHECKING:
    from collections.abc import Mapping

    from indexer.log_lines import Event, Say

TRACES: Final = "/v1/traces"
METRICS: Final = "/v1/metrics"
ANSWER_BYTES_MAX: Final = 65_536
PATIENCE_S: Final = 5.0
"""With a collector that has a request, until its answer has ended."""
AGAIN: Final = frozenset({429, 502, 503, 504})
"""What it answers that may take the same later; to anything else the same would be answered again."""


class Answer(NamedTuple):
    """`trouble` says what went wrong, if anything; `again` whether the same may be taken later."""

    trouble: str | None
    again: bool
    content: bytes


class Collector:
    """`headers` go with each request and are never shown."""

    def __init__(
        self, endpoint: str, headers: Mapping[str, str] | None = None, *, patience_s: float = PATIENCE_S
    ) -> None:
        self._base = endpoint.rstrip("/").removesuffix(TRACES).removesuffix(METRICS)
        self._headers = dict(headers or {})
        self._patience_s = patience_s

    def client(self) -> httpx.AsyncClient:
        """Connections to it, to be closed."""
        return client(self._patience_s)

    def url(self, path: str) -> str:
        """Where that goes, as other clients of a collector have it: under the endpoint, which may end in such a one."""
        return self._base + path

    @property
    def shown(self) -> str:
        """Host and port for the log: a path may be what lets somebody in."""
        there = urlsplit(self._base)
        return f"{there.scheme}://{there.netloc.rpartition('@')[2]}"

    async def post(self, http: httpx.AsyncClient, path: str, content: bytes) -> Answer:
        """One request, and what came of it."""
        try:
            async with asyncio.timeout(self._patience_s):
                status, told = await self._exchange(http, path, content)
        except Exception as error:  # noqa: BLE001  no collector is worth the service, whatever it is at
            return Answer(why_not_reached(error), again=True, content=b"")
        if httpx.codes.is_success(status):
            return Answer(None, again=False, content=told)
        return Answer(f"it answers {status}", again=status in AGAIN, content=b"")

    async def _exchange(self, http: httpx.AsyncClient, path: str, content: bytes) -> tuple[int, bytes]:
        headers = {**self._headers, "content-type": "application/x-protobuf"}
        async with http.stream("POST", self.url(path), content=content, headers=headers) as response:
            try:
                told = await body_of(response, ANSWER_BYTES_MAX)
            except TooLong:
                told = b""  # of no use
        return response.status_code, told


class Troubles:
    """What is in the way of one kind of what is sent; told once a change. `failing`, `taken`: the events of the log."""

    def __init__(self, what: str, failing: Event, taken: Event, *, shown: str, say: Say) -> None:
        self._what = what
        self._failing: Event = failing
        self._taken: Event = taken
        self._shown = shown
        self._say = say
        self._now: str | None = None

    def tell(self, trouble: str | None) -> None:
        """What went wrong this time, if anything."""
        if trouble == self._now:
            return
        self._now = trouble
        if trouble is None:
            self._say(about(self._taken), "%s: the collector takes them again", self._what)
        else:
            text = "%s: the collector at %s (telemetry.otlp_endpoint): %s"
            self._say(about(self._failing), text, self._what, self._shown, trouble, level=logging.WARNING)
