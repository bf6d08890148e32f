"""What is allowed and very likely a mistake: told at the start, and by `config --check`. Pure."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec

from indexer.settings.discovery import Dns, Kubernetes
from indexer.settings.forms import Section
from indexer.settings.sections import Server, Settings

PREFIX: Final = "KVINDEXER_"
_OTHERS: Final = frozenset({"KVINDEXER_SOURCES", "KVINDEXER_ROLES", "KVINDEXER_URL", "KVINDEXER_TOKEN"})
"""Read, and not of the form of settings: what is written as in a flag, and what client commands take."""
_INVENTED: Final = re.compile(
    r"KVINDEXER_(?:.+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_.+)?|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)"
)
_INVENTED_PORT: Final = re.compile(r"(?:tcp|udp|sctp)://.+")
"""Kubernetes sets these in every pod beside a service called kvindexer or kvindexer-x, and `..._PORT` to such a URL."""


def remarks(settings: Settings) -> list[str]:
    """One sentence each; empty when there is nothing to say."""
    said = _open_doors(settings) + _closed_doors(settings) + _unasked(settings)
    endpoint = settings.telemetry.otlp_endpoint
    if settings.telemetry.otlp_headers and endpoint is not None and not _stays_here(endpoint):
        said.append(f"telemetry.otlp_headers cross the network as they are: {endpoint} is not https")
    used: dict[str, str] = {}
    for source in settings.sources:
        for purpose, endpoint in (("events", source.endpoint), ("replay", source.replay_endpoint)):
            if endpoint is None:
                continue
            who = f"{purpose} of {source.pod} rank {source.dp_rank}"
            if endpoint in used:
                said.append(
                    f"{endpoint} is given for {used[endpoint]} and for {who}: no engine can bind one port twice; "
                    "with ranks, keep the two base ports further apart than there are ranks"
                )
            used.setdefault(endpoint, who)
    return said


def _open_doors(settings: Settings) -> list[str]:
    """Addresses that other machines reach, while nobody is asked who he is."""
    if settings.auth.tokens_file is not None:
        return _open_beside_tokens(settings)
    said = []
    if settings.compat.anonymous:
        said.append("compat.anonymous does nothing while there is no auth.tokens_file: everybody may ask anyway")
    if settings.auth.uds == "anonymous":
        said.append("auth.uds does nothing while there is no auth.tokens_file: who may open the socket may call anyway")
    if _is_reached(settings) and settings.auth.tls.client_ca is None:
        said.append(
            f"server.host {settings.server.host} is reached from other machines and there is no access control: "
            "whoever reaches it may ask; only callers on this machine may change sources"
        )
    return said + _open_sockets(settings)


def _unasked(settings: Settings) -> list[str]:
    """Who would be asked for engines, but for one word."""
    discovery = settings.discovery
    said = []
    if discovery.kubernetes.selector is None and discovery.kubernetes != Kubernetes():
        said.append("discovery.kubernetes does nothing while discovery.kubernetes.selector is null")
    if not discovery.dns.names and discovery.dns != Dns():
        said.append("discovery.dns does nothing while discovery.dns.names is empty")
    return said


def _is_reached(settings: Settings) -> bool:
    """Whether other machines reach REST, gRPC or the endpoint picker."""
    server = settings.server
    ports = server.port, server.grpc_port, server.epp_port if "epp" in server.roles else None
    return any(port is not None for port in ports) and not _is_loopback(server.host)


def _closed_doors(settings: Settings) -> list[str]:
    """What is wanted and not served."""
    if "epp" not in settings.server.roles:
        if settings.server.epp_port == Server().epp_port:
            return []
        return ["server.epp_port: nobody listens there without the role epp (--roles collect,lookup,epp)"]
    if settings.auth.tokens_file is None or settings.compat.anonymous:
        return []
    why = "gateways show it no token: set compat.anonymous, or leave epp out"
    return [f"server.roles: there is no endpoint picker beside auth.tokens_file, since {why}"]


def _open_sockets(settings: Settings) -> list[str]:
    """Where engines connect, nobody shows a token."""
    return [
        f"events.source_bind {endpoint} is reached from other machines, and engines show no token: whoever reaches "
        "it may claim to hold blocks"
        for endpoint in settings.events.source_bind
        if endpoint.startswith("tcp://") and not _is_loopback(endpoint.removeprefix("tcp://").rpartition(":")[0])
    ]


def _open_beside_tokens(settings: Settings) -> list[str]:
    """Where callers are asked who they are, and something is open all the same."""
    said = _open_sockets(settings)
    if not _is_reached(settings):
        return said
    if settings.auth.tls.certificate is None:
        said.append(
            f"server.host {settings.server.host} is reached from other machines and auth.tls.certificate is not set: "
            "tokens and prompts cross the network as they are"
        )
    if settings.compat.anonymous:
        said.append(
            "compat.anonymous: the paths of other services' APIs answer whoever reaches them, without a token, about "
            "the tenant default"
        )
    return said


def _stays_here(endpoint: str) -> bool:
    """Whether nobody on the way can read what is sent there."""
    parts = urlsplit(endpoint)
    return parts.scheme == "https" or _is_loopback(parts.hostname or "")


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:  # a name, or a star: it may be anything
        return False


def unread_variables(environment: Mapping[str, str]) -> list[str]:
    """One sentence for each variable that looks like ours and is read by nobody, with the nearest that would be."""
    said = []
    for name in sorted(environment):
        if name.startswith(PREFIX) and "__" not in name and name not in _OTHERS and not _invented(name, environment):
            close = _nearest(name)
            hint = "settings are KVINDEXER_SECTION__KEY" if close is None else f"did you mean {close}?"
            said.append(f"{name} in the environment is read by nobody: {hint}")
    return said


def _invented(name: str, environment: Mapping[str, str]) -> bool:
    """By its name, and where that may as well be a person's, by what it holds."""
    if name.endswith("_PORT") and _INVENTED_PORT.fullmatch(environment[name]):
        return True
    return _INVENTED.fullmatch(name) is not None


def _nearest(name: str) -> str | None:
    """A setting's key without its section is that setting; else what is written most like it."""
    known = _names(Settings, PREFIX)
    of_that_key = [each for each in known if each.endswith(f"__{name.removeprefix(PREFIX)}")]
    close = of_that_key or difflib.get_close_matches(name, [*known, *_OTHERS], n=1, cutoff=0.5)
    return close[0] if close else None


def _names(section: type[Section], above: str) -> list[str]:
    names = []
    for field in msgspec.structs.fields(section):
        name = f"{above}{field.name.upper()}"
        inner = isinstance(field.type, type) and issubclass(field.type, Section)
        names += _names(field.type, f"{name}__") if inner else [name]
    return names
