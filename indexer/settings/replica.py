"""What a replica is called in the store. Pure."""

from __future__ import annotations

import re
import zlib
from typing import Final

from indexer.settings.sections import Settings

NAME_MAX: Final = 64

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]+")


def replica_name(settings: Settings, host: str, process: int) -> str:
    """`redis.replica`, else host name and port.

    On a port that the system chooses it is the process's number instead; without one, what tells the path of its socket
    from others. Never a colon in it, and at most 64 characters. Who starts under the name of one that owned partitions
    takes its place at once instead of waiting for the lease to end: so the same replica started again should have the
    same name, and two that run must not.
    """
    if settings.redis.replica is not None:
        return settings.redis.replica
    place = _place(settings, process)
    name = _UNSAFE.sub("-", host).strip("-")[: NAME_MAX - len(place)]
    return f"{name or 'replica'}{place}"


def _place(settings: Settings, process: int) -> str:
    server = settings.server
    if server.port is None:
        return f"-u{zlib.crc32((server.uds or '').encode()):08x}"
    return f"-{server.port}" if server.port else f"-p{process}"
