"""Where the store is, parsed once. Pure.

    redis://[user:password@]host[:port][/database]      rediss:// for TLS
    unix://[user:password@]/path/of/socket[?db=0]
    redis+cluster://host[:port],host[:port]…            rediss+cluster:// for TLS
    redis+sentinel://host[:port],…/service[/database]   rediss+sentinel:// for TLS

Options after `?`: `ca` names a file of certificates to trust (TLS), `db` a database. User and password may be
percent-encoded.
"""

from __future__ import annotations

from typing import Final, Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

Kind = Literal["standalone", "unix", "cluster", "sentinel"]
REDIS_PORT: Final = 6379
SENTINEL_PORT: Final = 26379
_KINDS: Final[dict[str, Kind]] = {"": "standalone", "cluster": "cluster", "sentinel": "sentinel"}


class BadAddress(ValueError):
    """The address breaks a rule; the text names the rule and never the address, which may hold a password."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A store's address. `hosts` are nodes to begin with (cluster), sentinels, or the one server."""

    kind: Kind
    hosts: tuple[tuple[str, int], ...] = ()
    path: str | None = None
    service: str | None = None
    user: str | None = None
    password: str | None = None
    database: int = 0
    tls: bool = False
    ca: str | None = None

    @property
    def place(self) -> str:
        """Kind and where, without user and password: for people."""
        where = self.path or ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts
        )
        return f"{self.kind} {where}"

    def __repr__(self) -> str:
        """Without user and password: for logs and tracebacks."""
        return f"Address({self.place})"

    __str__ = __repr__


def parse(url: str) -> Address:
    """The address in a URL. Raises BadAddress."""
    try:
        split = urlsplit(url)
    except ValueError:
        raise BadAddress("is a URL") from None  # theirs repeats the address
    options = _options(split)
    if split.scheme == "unix":
        return _unix(split, options)
    scheme, _, form = split.scheme.partition("+")
    if scheme not in {"redis", "rediss"} or form not in _KINDS:
        raise BadAddress("begins with redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://")
    if "ca" in options and scheme != "rediss":
        raise BadAddress("names certificates (ca) only with TLS, which begins with rediss")
    kind = _KINDS[form]
    user, password, places = _credentials(split)
    service, database = _path(kind, split.path, options)
    return Address(
        kind=kind,
        hosts=_hosts(kind, places),
        service=service,
        user=user,
        password=password,
        database=database,
        tls=scheme == "rediss",
        ca=options.get("ca"),
    )


def _hosts(kind: Kind, places: str) -> tuple[tuple[str, int], ...]:
    hosts = tuple(_host(place, SENTINEL_PORT if kind == "sentinel" else REDIS_PORT) for place in places.split(","))
    if kind == "standalone" and len(hosts) != 1:
        raise BadAddress("names one host, or begins with redis+cluster:// or redis+sentinel://")
    return hosts


def _path(kind: Kind, path: str, options: dict[str, str]) -> tuple[str | None, int]:
    """Service and database."""
    parts = [part for part in path.split("/") if part]
    service = unquote(parts.pop(0)) if kind == "sentinel" and parts else None
    if kind == "sentinel" and service is None:
        raise BadAddress("names the service that the sentinels watch, after the hosts: /service")
    if len(parts) > 1 or (parts and "db" in options):
        raise BadAddress("has one database at most")
    database = _database(parts[0] if parts else options.get("db", "0"))
    if kind == "cluster" and database:
        raise BadAddress("has no database in a cluster")
    return service, database


def _unix(split: SplitResult, options: dict[str, str]) -> Address:
    user, password, places = _credentials(split)
    if places or not split.path.strip("/"):
        raise BadAddress("has a path and no host: unix:///path/of/socket")
    if "ca" in options:
        raise BadAddress("has no TLS on a socket file")
    database = _database(options.get("db", "0"))
    return Address(kind="unix", path=unquote(split.path), user=user, password=password, database=database)


def _options(split: SplitResult) -> dict[str, str]:
    pairs = parse_qsl(split.query, keep_blank_values=True)
    options = dict(pairs)
    if split.fragment or len(options) != len(pairs) or not options.keys() <= {"ca", "db"}:
        raise BadAddress("has no options but ca and db, each once")
    return options


def _credentials(split: SplitResult) -> tuple[str | None, str | None, str]:
    credentials, at, places = split.netloc.rpartition("@")
    if not at:
        return None, None, places
    user, _, password = credentials.partition(":")
    return unquote(user) or None, unquote(password) or None, places


def _host(place: str, default_port: int) -> tuple[str, int]:
    host, colon, port = place.rpartition(":")
    if not colon or (port.endswith("]") and place.startswith("[")):  # no port, or the colons of an IPv6 address
        host, port = place, str(default_port)
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:  # noqa: PLR2004  TCP's ports
        raise BadAddress("names hosts as host or host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _database(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise BadAddress("has a number as its database")
    return int(text)
