"""A file that a flag names, or standard input, read within a bound."""

from __future__ import annotations

import sys

from api.cli.client import CommandFailed


def read_bounded(name: str, flag: str, bytes_max: int) -> bytes:
    """What the file holds, `-` for standard input. Raises `CommandFailed` for one that cannot be read, or is larger."""
    try:
        if name == "-":
            raw = sys.stdin.buffer.read(bytes_max + 1)
        else:
            with open(name, "rb") as file:  # noqa: PTH123  as short as Path and bounded
                raw = file.read(bytes_max + 1)
    except OSError as error:
        raise CommandFailed(f"{flag}: {name}: {(error.strerror or str(error)).lower()}", 2) from error
    if len(raw) > bytes_max:
        raise CommandFailed(f"{flag}: at most {bytes_max} bytes", 2)
    return raw
