"""Which endpoints callers may have this service connect to: `auth.endpoints`. Pure.

An entry is an IP address or network (`10.0.0.0/8`), a host name (`engine-0.example`), a suffix (`*.pods.example`), or
an `ipc:` path (`ipc:///run/kv/` with a `/` at its end means everything below).

Addresses are judged as they are written, and names by their name alone: a name is resolved when it is connected to, as
often as it is, so what it resolved to earlier would prove nothing. Hence a network admits addresses and never a name,
and whoever lists a name trusts who answers for it. Some addresses (`_SPECIAL`) are admitted only by an entry that lies
within the same network of them: `0.0.0.0/0` is no leave to ask a cloud's metadata service.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from api.problems import RequestRefused
from indexer.errors import FieldIssue, SettingsError

if TYPE_CHECKING:
    from indexer.model import Descriptor

_KEY: Final = "auth.endpoints"
_TCP: Final = "tcp://"
_IPC: Final = "ipc://"
_NAME: Final = re.compile(r"(?:\*\.)?(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_NUMERIC: Final = re.compile(r"(?:\*\.)?(?:0[xX][0-9A-Fa-f]*|[0-9]+)(?:\.(?:0[xX][0-9A-Fa-f]*|[0-9]+))*\.?")
"""What resolvers take for an address though it is not written as one: 127.1, 0x7f000001."""

_SPECIAL: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            *("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "100.100.100.200/32"),
            *("0.0.0.0/8", "::/96", "224.0.0.0/4", "ff00::/8", "240.0.0.0/4"),
            *("64:ff9b::/96", "2002::/16"),
        ),
    )
)
"""This link and the metadata services of clouds; everybody and nobody; IPv4 in the clothes of IPv6."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class EndpointRules:
    """The list, read once."""

    def __init__(self, entries: Sequence[str]) -> None:
        """Raises `SettingsError` for what is no entry."""
        self._networks: list[Network] = []
        self._names: set[str] = set()
        self._suffixes: list[str] = []
        self._paths: list[str] = []
        for entry in entries:
            self._enter(entry)

    def _enter(self, entry: str) -> None:
        if entry.startswith(_IPC):
            if ".." in entry.split("/"):
                raise SettingsError(_KEY, f"{entry}: a path without ..")
            self._paths.append(entry)
            return
        try:
            self._networks.append(ipaddress.ip_network(entry.strip("[]")))
        except ValueError:
            if "/" in entry or not _NAME.fullmatch(entry) or _NUMERIC.fullmatch(entry):
                rule = "an address, a network without host bits, a host name, *.SUFFIX or ipc://PATH wanted"
                raise SettingsError(_KEY, f"{entry}: {rule}") from None
            name = entry.lower().rstrip(".")
            if name.startswith("*."):
                self._suffixes.append(name[1:])
            else:
                self._names.add(name)

    def admits(self, endpoint: str) -> bool:
        """Whether that endpoint, or `HOST:PORT`, is within the list."""
        if endpoint.startswith(_IPC):
            return ".." not in endpoint.split("/") and any(_below(endpoint, path) for path in self._paths)
        host = endpoint.removeprefix(_TCP).rpartition(":")[0].strip("[]").lower().rstrip(".")
        address = _address(host)
        if address is not None:
            return any(_within(address, network) for network in self._networks)
        return host in self._names or any(host.endswith(suffix) for suffix in self._suffixes)

    def check(self, descriptor: Descriptor, path: str = "") -> None:
        """Raise `RequestRefused` 403 for the first endpoint outside. `path` prefixes the names of fields."""
        for field in ("endpoint", "replay_endpoint", "address"):
            value = getattr(descriptor, field)
            if value is not None and not self.admits(value):
                issue = FieldIssue(f"{path}{field}", f"within {_KEY}", value[:40])
                detail = f"{path}{field}: the service connects callers' sources only where {_KEY} says"
                raise RequestRefused(HTTPStatus.FORBIDDEN, "endpoint.not_allowed", detail, [issue])


def _address(host: str) -> Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _within(address: Address, network: Network) -> bool:
    if address not in network:
        return False
    special = [each for each in _SPECIAL if address in each]
    return all(network.version == each.version and network.subnet_of(each) for each in special)  # type: ignore[arg-type]


def _below(endpoint: str, path: str) -> bool:
    return endpoint == path or (path.endswith("/") and endpoint.startswith(path))
