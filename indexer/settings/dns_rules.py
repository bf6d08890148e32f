"""What the settings of `discovery.dns` must keep beyond their types. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from indexer.settings.discovery import Dns, DnsName

PORT_MAX: Final = 65_535
_DNS_PORT: Final = 53
_EVENTS_PORT: Final = 5_557
NAMES_MAX: Final = 64

_NAME: Final = re.compile(r"(?=.{1,253}\.?\Z)(?:[A-Za-z0-9_-]{1,63}\.)*[A-Za-z0-9_-]{1,63}\.?")

Server = tuple[str, int]


def read_server(text: str) -> Server:
    """`IP` or `IP:PORT`, IPv6 with a port in brackets. Raises ValueError with the rule."""
    host, _, port = text.rpartition(":") if text.count(":") == 1 or "]:" in text else (text, "", str(_DNS_PORT))
    host = host.removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(host)
        is_one = port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= PORT_MAX
    except ValueError:
        is_one = False
    if not is_one:
        raise ValueError(f"IP or IP:PORT wanted, IPv6 in brackets where a port follows, got {text!r}")
    return host, int(port)


def contradictions_of_dns(dns: Dns) -> Iterator[tuple[bool, str, str]]:
    """Whether it holds, the key to change, and the rule with the values."""
    key = "discovery.dns"
    yield (
        dns.refresh_max_s >= dns.refresh_min_s,
        f"{key}.refresh_max_s",
        f"must be at least {key}.refresh_min_s ({dns.refresh_min_s:g}), got {dns.refresh_max_s:g}",
    )
    yield len(dns.names) <= NAMES_MAX, f"{key}.names", f"at most {NAMES_MAX}, got {len(dns.names)}"
    for server in dns.servers:
        try:
            read_server(server)
        except ValueError as error:
            yield False, f"{key}.servers", str(error)
    plain: dict[str, str] = {}
    for name, entry in dns.names.items():
        at = f"{key}.names.{name}"
        yield _NAME.fullmatch(name) is not None, f"{key}.names", f"a name as name servers know it wanted, got {name!r}"
        yield not _is_address(name), f"{key}.names", f"{name} is an address and no name: give it as a source (sources)"
        twin = plain.setdefault(name.lower().rstrip("."), name)
        yield twin == name, f"{key}.names", f"{name} and {twin} are the same name"
        for wrong, rule in _wrong(entry):
            yield not wrong, at, rule


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _wrong(entry: DnsName) -> Iterator[tuple[bool, str]]:
    """Of one name: what may be wrong, and the rule."""
    last = entry.ranks - 1
    events = entry.events_port
    yield (
        entry.kind == "srv" and events is not None,
        "events_port is the port of each record where kind is srv: leave it out",
    )
    asks = entry.asks_engines
    yield (
        asks and entry.replay_port is not None,
        "with events_port 0 the engine tells its replay port, too: leave it out",
    )
    yield asks and entry.ranks > 1, "with events_port 0 the engine tells its ranks, too: leave ranks out"
    for field, port in (("events_port", entry.events_port), ("replay_port", entry.replay_port)):
        beyond = port is not None and port + last > PORT_MAX
        yield beyond, f"{field} {port} and {entry.ranks} ranks: the last port would be beyond {PORT_MAX}"
    first = _EVENTS_PORT if events is None else events
    near = entry.kind == "a" and entry.replay_port is not None and abs(first - entry.replay_port) <= last
    apart = f"at least as far apart as there are ranks ({entry.ranks})" if last else "two ports"
    yield near, f"events_port ({first}) and replay_port ({entry.replay_port}) must be {apart}"
