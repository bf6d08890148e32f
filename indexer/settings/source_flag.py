r"""The grammar of one source, as flags and short configuration entries write it.

    NAME=ENDPOINT[,replay=ENDPOINT][,model=M][,rank=N|ranks=A-B][,address=IP:PORT][,alias=X]…[,role=R][,tenant=T]
                 [,blocks=N]

NAME is the pod as the router calls it and may contain `:` `.` `/` `[` `]`: the first `=tcp://` or `=ipc://` ends it.
`ranks=0-7` adds one source a rank, at port + rank for both endpoints. `blocks` is the engine's capacity
(`blocks_total`), of each rank. Accepted:

    10.0.0.1:8000=tcp://10.0.0.1:5557,model=llama
    [fd00::1]:8000=tcp://[fd00::1]:5557,replay=tcp://[fd00::1]:6557,ranks=0-7
    http://pod-a:8000/=ipc:///run/kv,alias=pod-a,alias=ray-replica-7,role=prefill

Rejected: no NAME, no endpoint, an unknown or repeated option, `tcp://*:5557` (that is --source-bind), ranks over ipc.
"""

from __future__ import annotations

import difflib
import re
from typing import Final, get_args

from indexer.errors import SettingsError
from indexer.model import DEFAULT_TENANT, Descriptor, Origin, Role

NAME_MAX: Final = 512
RANK_MAX: Final = 65_535
PORT_MAX: Final = 65_535
BLOCKS_MAX: Final = 2**32 - 1

_OPTIONS: Final = ("replay", "model", "rank", "ranks", "address", "alias", "role", "tenant", "blocks")
_NAME_END: Final = re.compile(r"=(?=(?:tcp|ipc)://)")
_TCP: Final = re.compile(r"^tcp://(?P<host>\[[0-9A-Fa-f:.%a-z]+\]|[^\s:/\[\]*]+):(?P<port>[0-9]{1,5})$")
_BIND: Final = re.compile(
    r"^(?:tcp://(?:\*|\[[0-9A-Fa-f:.%a-z*]+\]|[^\s:/\[\]*]+):(?P<port>\*|[0-9]{1,5})|ipc://[^\s]+)$"
)
_ADDRESS: Final = re.compile(r"^(?P<host>\[[0-9A-Fa-f:.%a-z]+\]|[^\s:/\[\]]+):(?P<port>[0-9]{1,5})$")
_RANKS: Final = re.compile(r"^(?P<first>[0-9]{1,5})-(?P<last>[0-9]{1,5})$")


def parse_source_flag(text: str, *, key: str = "--source", origin: Origin = "flag") -> tuple[Descriptor, ...]:
    """One descriptor, or one a rank. Raises `SettingsError` under `key` with the rule that is broken."""
    name, *rest = _NAME_END.split(text, maxsplit=1)
    if not rest:
        raise SettingsError(key, f"NAME=tcp://HOST:PORT or NAME=ipc://PATH wanted, got {text!r}")
    endpoint, *pairs = rest[0].split(",")
    options, aliases = _options(pairs, key)
    check_name(name, key)
    first, last = _rank_range(options, key)
    role = _role(options.get("role", "both"), key)
    blocks_total = _blocks(options["blocks"], key) if "blocks" in options else None
    address = options.get("address")
    if address is not None:
        check_address(address, f"{key}: address")
    return tuple(
        Descriptor(
            pod=name,
            dp_rank=rank,
            endpoint=endpoint_of_rank(endpoint, rank if "ranks" in options else 0, key),
            replay_endpoint=(
                endpoint_of_rank(options["replay"], rank if "ranks" in options else 0, f"{key}: replay")
                if "replay" in options
                else None
            ),
            model=options.get("model"),
            tenant=options.get("tenant", DEFAULT_TENANT),
            role=role,
            address=address,
            aliases=aliases,
            blocks_total=blocks_total,
            origin=origin,
        )
        for rank in range(first, last + 1)
    )


def endpoint_of_rank(endpoint: str, rank: int, key: str) -> str:
    """The engine's convention: TCP port + rank. Raises `SettingsError` for what is no endpoint to connect to."""
    if endpoint.startswith("ipc://") and len(endpoint) > len("ipc://"):
        if rank:
            raise SettingsError(key, f"an ipc endpoint has no port to add a rank to, got {endpoint!r} for rank {rank}")
        return endpoint
    match = _TCP.match(endpoint)
    if match is None:
        hint = "; to bind, use --source-bind" if endpoint.startswith(("tcp://*", "tcp://:")) else ""
        raise SettingsError(key, f"tcp://HOST:PORT or ipc://PATH wanted, got {endpoint!r}{hint}")
    port = int(match["port"]) + rank
    if not 1 <= port <= PORT_MAX:
        raise SettingsError(key, f"a port is 1..{PORT_MAX}, got {port} in {endpoint!r} for rank {rank}")
    return f"tcp://{match['host']}:{port}"


def check_bind(endpoint: str, key: str) -> None:
    """Raises `SettingsError` for what is no endpoint to bind."""
    match = _BIND.match(endpoint)
    if match is None:
        raise SettingsError(key, f"tcp://*:PORT, tcp://ADDRESS:PORT or ipc://PATH wanted, got {endpoint!r}")
    if match["port"] not in {None, "*"} and int(match["port"]) > PORT_MAX:
        raise SettingsError(key, f"a port is 0..{PORT_MAX}, got {endpoint!r}")


def check_name(name: str, key: str) -> None:
    """Raises `SettingsError` for a pod name that nobody could ask for."""
    if not name or len(name) > NAME_MAX or not name.isprintable() or name != name.strip():
        raise SettingsError(key, f"a name has 1..{NAME_MAX} printable characters, got {name[:NAME_MAX]!r}")


def check_address(address: str, key: str) -> None:
    """Raises `SettingsError` for what is not `ip:port`, IPv6 in brackets."""
    match = _ADDRESS.match(address)
    if match is None or not 1 <= int(match["port"]) <= PORT_MAX:
        raise SettingsError(key, f"IP:PORT wanted, IPv6 in brackets, got {address!r}")


def nearest(name: str, known: tuple[str, ...]) -> str:
    """` (did you mean …?)` for the known name most like `name`, or the list where none is."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"


def _options(pairs: list[str], key: str) -> tuple[dict[str, str], tuple[str, ...]]:
    options: dict[str, str] = {}
    aliases: list[str] = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if name not in _OPTIONS:
            raise SettingsError(key, f"unknown option {name!r} ({nearest(name, _OPTIONS)})")
        if not equals or not value:
            raise SettingsError(key, f"option {name} needs a value")
        if name == "alias":
            check_name(value, f"{key}: alias")
            aliases.append(value)
        elif name in options:
            raise SettingsError(key, f"option {name} is given twice")
        else:
            options[name] = value
    return options, tuple(aliases)


def _rank_range(options: dict[str, str], key: str) -> tuple[int, int]:
    if "rank" in options and "ranks" in options:
        raise SettingsError(key, "rank and ranks exclude each other")
    if "ranks" in options:
        match = _RANKS.match(options["ranks"])
        first, last = (int(match["first"]), int(match["last"])) if match else (1, 0)
        if first > last or last > RANK_MAX:
            raise SettingsError(key, f"ranks=A-B with A <= B <= {RANK_MAX} wanted, got {options['ranks']!r}")
        return first, last
    rank = options.get("rank", "0")
    if not (rank.isascii() and rank.isdigit()) or int(rank) > RANK_MAX:
        raise SettingsError(key, f"rank is 0..{RANK_MAX}, got {rank!r}")
    return int(rank), int(rank)


def _blocks(text: str, key: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(BLOCKS_MAX)) and 1 <= int(text) <= BLOCKS_MAX):
        raise SettingsError(key, f"blocks is 1..{BLOCKS_MAX}, got {text!r}")
    return int(text)


def _role(text: str, key: str) -> Role:
    for role in get_args(Role):
        if text == role:
            return role  # type: ignore[no-any-return]  # get_args is untyped; it is a Role
    raise SettingsError(key, f"role is one of {', '.join(get_args(Role))}, got {text!r}")
