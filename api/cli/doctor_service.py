"""What a running service tells `kvindexer doctor`: read path by path, so that one that is refused hides no other."""

from __future__ import annotations

import math
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

import kvindexer_client
from api.cli.client import UNREADABLE
from indexer.doctor.facts import DiscoverySeen, Engine, Partitions, ServiceSeen
from indexer.exposition import samples
from indexer.settings.sections import Settings

if TYPE_CHECKING:
    from api.cli.client import ServiceClient
    from indexer.ports import Clock

LIMIT_REACHED: Final = "kvindexer_limit_reached_total"
WATCHING: Final = "kvindexer_discovery_watching"
HEARD_AGE: Final = "kvindexer_discovery_heard_age_seconds"
WAITING: Final = "kvindexer_discovery_removals_waiting"
SOURCES: Final = "/v1/sources"
"""Who may not read them cannot be told of any engine."""
_Shape = TypeVar("_Shape")
_SECOND_US: Final = 1_000_000
_BY_THE_SERVICE: Final = frozenset(
    {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
)
"""Refusals that it gives itself; its path is there."""


class Told(NamedTuple):
    """None: not allowed to read, or not to be understood."""

    seen: ServiceSeen
    engines: list[Engine] | None
    settings: Settings | None


class _Sources(msgspec.Struct):
    sources: list[Engine]
    models_followed: tuple[str, ...] | None = None


class _Version(msgspec.Struct):
    version: str


class _Readiness(msgspec.Struct):
    ready: bool
    detail: dict[str, Any] = {}


class _Row(msgspec.Struct):
    pod: str
    dp_rank: int = 0
    gaps: dict[str, int] = {}


class _Report(msgspec.Struct):
    sources: list[_Row]


def ask_service(client: ServiceClient, clock: Clock) -> Told:
    """All that it tells. Never raises for what the service does."""
    seen = ServiceSeen(url=client.url)
    reading = _Reading(client, seen)
    version = reading.version(clock)
    if seen.trouble is not None:
        return Told(seen, None, None)
    seen.version = None if version is None else version.version
    ready = reading.decoded("/readyz", _Readiness)
    if ready is not None:
        seen.ready = ready.ready
        seen.ready_detail = "" if ready.ready else msgspec.json.encode(ready.detail).decode()[:500]
    sources = reading.decoded(SOURCES, _Sources)
    seen.models_followed = None if sources is None else sources.models_followed
    seen.partitions = reading.decoded("/v1/partitions", Partitions)
    report = reading.decoded("/v1/reports/staleness", _Report)
    for row in () if report is None else report.sources:
        seen.unhealed[Engine(pod=row.pod, dp_rank=row.dp_rank).name] = row.gaps.get("unhealed", 0)
    metrics = reading.content("/metrics")
    if metrics is not None:
        text = metrics.decode("utf-8", "replace")
        seen.discovery = _discovery(text)
        seen.limits_reached = {
            each.labels.get("limit", "?"): int(each.value)
            for each in samples(text, (LIMIT_REACHED,))
            if math.isfinite(each.value)
        }
    return Told(seen, None if sources is None else sources.sources, reading.settings())


def _discovery(metrics: str) -> DiscoverySeen | None:
    """Of one that is set up to look for engines."""
    watching = [each.value for each in samples(metrics, (WATCHING,))]
    if not watching:
        return None
    ages = {each.labels.get("discoverer", "?"): each.value for each in samples(metrics, (HEARD_AGE,))}
    waiting = sum(each.value for each in samples(metrics, (WAITING,)) if math.isfinite(each.value))
    return DiscoverySeen(watching=bool(watching[0]), heard_age_s=ages, waiting=int(waiting))


class _Reading:
    def __init__(self, client: ServiceClient, seen: ServiceSeen) -> None:
        self._client = client
        self._seen = seen

    def version(self, clock: Clock) -> _Version | None:
        """The first question: whether anybody is there, and what time it is there."""
        path = "/v1/version"
        before = clock.wall_us()
        try:
            reply = self._client.reply(path)
        except kvindexer_client.Refused as refused:
            if refused.status in _BY_THE_SERVICE:
                self._refused(path, refused)
            else:
                self._seen.trouble = f"{self._client.url} answers {refused.status} at {path}: is this kvindexer?"
            return None
        except kvindexer_client.KvindexerError as error:
            self._seen.trouble = str(error)
            return None
        self._seen.clock_skew_s = _skew_s(reply.headers.get("date"), before, clock.wall_us())
        version = self._as(path, reply.content, _Version)
        if version is None:
            self._seen.trouble = f"{self._client.url} answers, and otherwise than kvindexer does"
        return version

    def content(self, path: str) -> bytes | None:
        try:
            return self._client.reply(path).content
        except kvindexer_client.Refused as refused:
            if path == "/readyz":
                return refused.body  # 503 says why
            self._refused(path, refused)
        except kvindexer_client.KvindexerError as error:
            self._seen.refused[path] = str(error)
        return None

    def decoded(self, path: str, shape: type[_Shape]) -> _Shape | None:
        content = self.content(path)
        return None if content is None else self._as(path, content, shape)

    def settings(self) -> Settings | None:
        """In force there, secrets masked; sources are told by the list of sources."""
        content = self.content("/v1/config")
        if content is None:
            return None
        try:
            told = msgspec.json.decode(content, type=dict[str, Any])
            return msgspec.convert({**told, "sources": []}, Settings)
        except UNREADABLE:
            self._seen.refused["/v1/config"] = "settings of another version"
            return None

    def _as(self, path: str, content: bytes, shape: type[_Shape]) -> _Shape | None:
        try:
            return msgspec.json.decode(content, type=shape)
        except UNREADABLE:
            self._seen.refused[path] = "an answer of another form: is this the service, and of this version?"
            return None

    def _refused(self, path: str, refused: kvindexer_client.Refused) -> None:
        self._seen.refused[path] = f"{refused.status} {refused.code}"
        if refused.status == HTTPStatus.UNAUTHORIZED or (path, refused.status) == (SOURCES, HTTPStatus.FORBIDDEN):
            self._seen.shut |= {path}


def _skew_s(date: str | None, before_us: int, after_us: int) -> float | None:
    """Its clock minus ours, beyond what the way and whole seconds explain."""
    try:
        told_us = int(parsedate_to_datetime(date or "").timestamp() * _SECOND_US)
    except (ValueError, OverflowError, TypeError):
        return None
    if told_us + _SECOND_US >= before_us and told_us <= after_us:
        return 0.0
    return (told_us - after_us if told_us > after_us else told_us + _SECOND_US - before_us) / _SECOND_US
