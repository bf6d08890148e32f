"""Where an engine publishes its events, as it says itself, and what of that is taken. Pure.

Promise: nothing that an engine answers leads to another host than its own, unless `allows` says so: a wildcard stands
for the host that was asked, and a rank at another host is left out, as a rank of another node is that node's own to
tell.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

PATH: Final = "/kv_event_sources"
RANKS_MAX: Final = 256
"""Of one engine."""
RANK_MAX: Final = 65_535

_ENDPOINT: Final = re.compile(r"tcp://(?P<host>\*|\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):(?P<port>[0-9]{1,5})")
_PORT_MAX: Final = 65_535


class NotTold(Exception):
    """Why an engine's answer gives no source, in words of ours."""


class Endpoints(NamedTuple):
    """Of one rank, `tcp://HOST:PORT` to connect to. `replay_endpoint` None: it replays nothing."""

    endpoint: str
    replay_endpoint: str | None


def by_rank(host: str, events: int, replay: int | None, ranks: Iterable[int]) -> dict[int, Endpoints]:
    """The engine's convention: rank 0 publishes and replays at these ports, each other at that plus its number."""
    return {
        rank: Endpoints(f"tcp://{host}:{events + rank}", None if replay is None else f"tcp://{host}:{replay + rank}")
        for rank in ranks
    }


class Told(NamedTuple):
    """What an answer comes to. `left_out`: of ranks that are not usable, why, for people."""

    of_rank: Mapping[int, Endpoints]
    left_out: tuple[str, ...]


def read_event_sources(content: bytes, host: str, allows: Callable[[str], bool] | None = None) -> Told:
    """What an answer of the engine at `host` says. Raises `NotTold` for what is no such answer.

    A map of rank → configuration as `--kv-events-config` has it, or a list of those with their rank in each.
    """
    try:
        said = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotTold(f"{PATH} answers no JSON") from error
    if not isinstance(said, dict | list):
        raise NotTold(f"{PATH} answers neither a map nor a list")
    if len(said) > RANKS_MAX:
        raise NotTold(f"{PATH} names more than {RANKS_MAX} ranks")
    of_rank: dict[int, Endpoints] = {}
    left_out: list[str] = []
    for rank, config in _by_rank(said):
        if rank is None or not isinstance(config, dict) or rank in of_rank:
            left_out.append("a rank that is none, or is named twice")
            continue
        try:
            of_rank[rank] = _endpoints(config, host, allows)
        except NotTold as why:
            left_out.append(f"rank {rank}: {why}")
    return Told(dict(sorted(of_rank.items())), tuple(left_out))


def _by_rank(said: dict[Any, Any] | list[Any]) -> Iterator[tuple[int | None, Any]]:
    if isinstance(said, dict):
        for key, config in said.items():
            yield (
                _rank(int(key) if key.isascii() and key.isdigit() and len(key) <= len(str(RANK_MAX)) else None),
                config,
            )
        return
    for config in said:
        yield _rank(config.get("data_parallel_rank", 0) if isinstance(config, dict) else None), config


def _rank(value: object) -> int | None:
    is_one = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= RANK_MAX
    return value if is_one else None  # type: ignore[return-value]  # it is an int


def _endpoints(config: dict[Any, Any], host: str, allows: Callable[[str], bool] | None) -> Endpoints:
    publisher = config.get("publisher")
    if config.get("enable_kv_cache_events") is False or (publisher is not None and publisher != "zmq"):
        raise NotTold("its events are off, or not published over ZMQ")
    replay = config.get("replay_endpoint")
    return Endpoints(
        _reached_at(config.get("endpoint"), host, allows),
        None if replay is None or replay == "" else _reached_at(replay, host, allows),
    )


def _reached_at(endpoint: object, host: str, allows: Callable[[str], bool] | None) -> str:
    """Where to connect to for what an engine at `host` binds."""
    found = _ENDPOINT.fullmatch(endpoint) if isinstance(endpoint, str) else None
    if found is None or not 1 <= int(found["port"]) <= _PORT_MAX:
        raise NotTold("its endpoint is no tcp://HOST:PORT that could be connected to")
    there = f"tcp://{host}:{int(found['port'])}"
    if _is_everywhere(found["host"]) or _same_host(found["host"], host):
        return there
    other = f"tcp://{found['host']}:{int(found['port'])}"
    if allows is not None and allows(other):
        return other
    raise NotTold("its endpoint is at another host than its own")


def _is_everywhere(host: str) -> bool:
    if host == "*":
        return True
    address = _address(host)
    return address is not None and address.is_unspecified


def _same_host(one: str, other: str) -> bool:
    first, second = _address(one), _address(other)
    return one.lower() == other.lower() if first is None or second is None else first == second


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None
