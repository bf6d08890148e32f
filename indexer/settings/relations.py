"""What must hold between settings that are well-formed alone. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from indexer.settings.dns_rules import contradictions_of_dns
from indexer.settings.kubernetes_rules import rules_of_kubernetes
from indexer.settings.sections import Settings

TRIES: Final = 4
"""Of a call to the store within a lease, at least."""
HEADERS_MAX: Final = 16

_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_HEADER_VALUE: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_OWN_HEADERS: Final = frozenset(
    {"accept-encoding", "connection", "content-encoding", "content-length", "content-type", "host", "transfer-encoding"}
)
"""Those say how a request is written."""

Relation = tuple[bool, str, str]
"""Whether it holds, the key to change, and the rule with the values."""


def contradictions(settings: Settings) -> list[tuple[str, str]]:
    """What is wrong together, as (key, rule with the values)."""
    relations = (
        *_of_times(settings),
        *_of_events(settings),
        *_of_silent_sources(settings),
        *_of_tls(settings),
        *_of_ports(settings),
        *_of_roles(settings),
        *_of_followed(settings),
        *_of_traces(settings),
        *_of_headers(settings),
        *contradictions_of_dns(settings.discovery.dns),
        *rules_of_kubernetes(settings.discovery.kubernetes, collects="collect" in settings.server.roles),
    )
    return [(key, rule) for holds, key, rule in relations if not holds]


def _of_times(settings: Settings) -> Iterator[Relation]:
    stale, redis = settings.staleness, settings.redis
    yield (
        stale.score_ttl_s > stale.stale_after_s,
        "staleness.score_ttl_s",
        f"must be greater than staleness.stale_after_s ({stale.stale_after_s:g}), got {stale.score_ttl_s:g}",
    )
    yield (
        stale.retain_s > stale.score_ttl_s,
        "staleness.retain_s",
        f"must be greater than staleness.score_ttl_s ({stale.score_ttl_s:g}), got {stale.retain_s:g}",
    )
    if redis.url is not None:
        outlive = "what is stored must outlive the lease of its owner"
        yield (
            stale.retain_s > redis.lease_s,
            "staleness.retain_s",
            f"must be greater than redis.lease_s ({redis.lease_s:g}), got {stale.retain_s:g}: {outlive}",
        )
        again = f"a renewal is tried up to {TRIES} times"
        yield (
            redis.lease_s * 1000 >= TRIES * redis.timeout_ms,
            "redis.lease_s",
            f"must be at least {TRIES} times redis.timeout_ms ({redis.timeout_ms}), got {redis.lease_s:g}: {again}",
        )
        missed = "one heartbeat may be missed"
        yield (
            redis.lease_s >= 2 * redis.heartbeat_s,
            "redis.heartbeat_s",
            f"must be at most half of redis.lease_s ({redis.lease_s:g}), got {redis.heartbeat_s:g}: {missed}",
        )


def _of_events(settings: Settings) -> Iterator[Relation]:
    events = settings.events
    yield (
        events.lanes_total_bytes >= events.lane_bytes,
        "events.lanes_total_bytes",
        f"must be at least events.lane_bytes ({events.lane_bytes}), got {events.lanes_total_bytes}",
    )
    yield (
        events.lanes_total_bytes >= events.max_message_bytes,
        "events.lanes_total_bytes",
        f"must be at least events.max_message_bytes ({events.max_message_bytes})",
    )
    yield (
        events.reconnect_max_ms >= events.reconnect_ms,
        "events.reconnect_max_ms",
        f"must be at least events.reconnect_ms ({events.reconnect_ms}), got {events.reconnect_max_ms}",
    )
    yield (
        len(settings.sources) <= settings.limits.sources,
        "sources",
        f"at most limits.sources ({settings.limits.sources}), got {len(settings.sources)}",
    )


def _of_silent_sources(settings: Settings) -> Iterator[Relation]:
    for source in settings.sources:
        yield (
            source.endpoint is not None or source.model in settings.models.approximate,
            "sources",
            f"a source needs an endpoint unless models.approximate has its model, got none for {source.pod!r}",
        )
        yield (
            source.endpoint is not None or source.replay_endpoint is None,
            "sources",
            f"a source without endpoint has no replay_endpoint, got one for {source.pod!r}",
        )


def _of_tls(settings: Settings) -> Iterator[Relation]:
    tls = settings.auth.tls
    yield (
        (tls.certificate is None) == (tls.key is None),
        "auth.tls.key" if tls.key is None else "auth.tls.certificate",
        "auth.tls.certificate and auth.tls.key come together",
    )
    yield (
        tls.client_ca is None or tls.certificate is not None,
        "auth.tls.client_ca",
        "needs auth.tls.certificate and auth.tls.key",
    )


def _of_ports(settings: Settings) -> Iterator[Relation]:
    server = settings.server
    yield (
        not server.port or server.port != server.grpc_port,
        "server.grpc_port",
        f"must differ from server.port ({server.port}): one port cannot speak both",
    )
    if "epp" in server.roles:
        taken = {"server.port": server.port, "server.grpc_port": server.grpc_port}
        same = next((key for key, port in taken.items() if port and port == server.epp_port), None)
        yield (
            same is None,
            "server.epp_port",
            f"must differ from {same} ({server.epp_port}): one port cannot speak both",
        )
    yield server.port is not None or server.uds is not None, "server.port", "can be off only beside server.uds (--uds)"
    anonymous = settings.auth.uds == "anonymous"
    yield not anonymous or server.uds is not None, "auth.uds", "anonymous needs server.uds (--uds)"


def _of_roles(settings: Settings) -> Iterator[Relation]:
    roles = settings.server.roles
    yield len(set(roles)) == len(roles), "server.roles", f"each once, got {', '.join(roles)}"
    if "collect" in roles:
        return
    empty = "without collect a replica knows only what is in the store: set redis.url (--redis-url)"
    yield settings.redis.url is not None, "server.roles", empty
    alone = "only a replica with the role collect subscribes to engines; this one follows the store: leave them out"
    yield not settings.sources, "sources", alone
    yield not settings.events.source_bind, "events.source_bind", alone


def _of_followed(settings: Settings) -> Iterator[Relation]:
    follow = settings.models.follow
    whole = "whoever collects applies all sources of its partitions: set server.roles without collect (--roles lookup)"
    yield not follow or "collect" not in settings.server.roles, "models.follow", whole
    yield len(set(follow)) == len(follow), "models.follow", f"each once, got {', '.join(follow)}"


def _of_traces(settings: Settings) -> Iterator[Relation]:
    told = settings.telemetry
    endpoint = told.otlp_endpoint
    if endpoint is not None:
        yield _is_plain_url(endpoint), "telemetry.otlp_endpoint", "http:// or https://, a host, and no user or query"
    needs = "needs telemetry.otlp_endpoint"
    yield endpoint is not None or told.otlp_metrics_s is None, "telemetry.otlp_metrics_s", needs
    yield endpoint is not None or not told.otlp_headers, "telemetry.otlp_headers", needs


def _of_headers(settings: Settings) -> Iterator[Relation]:
    """Told without names and values: either may be a key in the wrong place."""
    key, headers = "telemetry.otlp_headers", settings.telemetry.otlp_headers
    yield len(headers) <= HEADERS_MAX, key, f"at most {HEADERS_MAX}, got {len(headers)}"
    names = f"names of headers wanted, and none of {', '.join(sorted(_OWN_HEADERS))}"
    yield all(_HEADER.fullmatch(name) and name.lower() not in _OWN_HEADERS for name in headers), key, names
    values = "values in printable ASCII wanted, without blanks around them"
    yield all(_HEADER_VALUE.fullmatch(value) for value in headers.values()), key, values


def _is_plain_url(text: str) -> bool:
    """Whether it leads to a server and holds nothing that should not be shown."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    told_more = "@" in parts.netloc or parts.query or parts.fragment
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and port != 0 and not told_more
