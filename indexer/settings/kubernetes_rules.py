"""What must hold of `discovery.kubernetes` beyond the types of its keys. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from indexer.settings.label_selector import check_selector, is_label_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from indexer.settings.discovery import Kubernetes

EVERYWHERE: Final = "*"

_NAMESPACE: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_KEY: Final = "discovery.kubernetes"
_PORT_MAX: Final = 65_535


def rules_of_kubernetes(settings: Kubernetes, *, collects: bool) -> Iterator[tuple[bool, str, str]]:
    """Whether each holds, the key to change, and the rule. `collects`: whether this replica subscribes to engines."""
    if settings.selector is not None:
        wrong = check_selector(settings.selector)
        yield wrong is None, f"{_KEY}.selector", wrong or ""
        alone = "only a replica with the role collect looks for engines; this one follows the store: leave it out"
        yield collects, f"{_KEY}.selector", alone
    yield from _of_places(settings)
    last = settings.ranks - 1
    for key, port in (("events_port", settings.events_port), ("replay_port", settings.replay_port)):
        beyond = f"that of the last rank ({last}) would be beyond {_PORT_MAX}, got {port}"
        yield port is None or port + last <= _PORT_MAX, f"{_KEY}.{key}", beyond
    needs = "needs discovery.kubernetes.events_port"
    yield settings.replay_port is None or settings.events_port is not None, f"{_KEY}.replay_port", needs
    apart = "must be further from events_port than there are ranks: no engine binds one port twice"
    both = settings.events_port is not None and settings.replay_port is not None
    yield (
        not (both and abs((settings.events_port or 0) - (settings.replay_port or 0)) <= last),
        f"{_KEY}.replay_port",
        apart,
    )
    for name in settings.labels:
        yield is_label_name(name), f"{_KEY}.labels", f"names of labels wanted, got {name!r}"
    yield len(set(settings.labels)) == len(settings.labels), f"{_KEY}.labels", "each once"


def _of_places(settings: Kubernetes) -> Iterator[tuple[bool, str, str]]:
    names = settings.namespaces
    yield len(set(names)) == len(names), f"{_KEY}.namespaces", "each once"
    alone = EVERYWHERE not in names or len(names) == 1
    yield alone, f"{_KEY}.namespaces", f"{EVERYWHERE} stands for all of them: leave the others out"
    for name in names:
        formed = name == EVERYWHERE or _NAMESPACE.fullmatch(name) is not None
        yield formed, f"{_KEY}.namespaces", f"names of namespaces wanted, got {name!r}"
    url = settings.url
    yield url is None or _is_server(url), f"{_KEY}.url", "https://HOST:PORT, or http:// to this machine, and no more"
    outside = "is not this machine's cluster: say where its engines are, or * for everywhere"
    yield url is None or settings.selector is None or bool(names), f"{_KEY}.namespaces", f"the server of url {outside}"


def _is_server(url: str) -> bool:
    """Whether it leads to a server, and a token that is shown there stays with it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    if "@" in parts.netloc or parts.query or parts.fragment or not parts.hostname or port == 0:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_here(parts.hostname))


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
