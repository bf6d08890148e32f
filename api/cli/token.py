"""`kvindexer token`: a new bearer token, and the entry by which a service knows it. Nothing is asked, nothing is kept.

The entry goes to stdout, so that it can be appended to the file; the token to stderr, so that it does not come to stand
there. It is shown this once.
"""

from __future__ import annotations

import hashlib
import secrets
import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec

from api.access.entries import callers_by_digest
from api.access.files import FileUnusable
from api.cli.client import CommandFailed

if TYPE_CHECKING:
    import argparse

TOKEN_BYTES: Final = 32
"""Of chance: nobody finds the token by its hash, which therefore needs no salt and no slow function."""
PREFIX: Final = "kvi_"
"""By which scanners, and people, see what it is."""


def run(arguments: argparse.Namespace) -> int:
    """Print both. Raises `CommandFailed` for what cannot stand in an entry."""
    token = PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    entry = _entry(arguments, token)
    if arguments.json:
        print(msgspec.json.encode({"token": token, "entry": entry}).decode())
        return 0
    lines = [f"  {key}: {msgspec.json.encode(value).decode()}" for key, value in entry.items()]
    print("- " + "\n".join(lines).lstrip(), flush=True)  # JSON within YAML: a name of digits stays a name
    print(f"token, shown this once: {token}", file=sys.stderr)
    return 0


def _entry(arguments: argparse.Namespace, token: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": arguments.name,
        "sha256": hashlib.sha256(token.encode()).hexdigest(),
        "scopes": list(dict.fromkeys(arguments.scope or ["lookup"])),
    }
    if arguments.tenant is not None:
        entry["tenant"] = arguments.tenant
    try:
        callers_by_digest(msgspec.json.encode([entry]))
    except FileUnusable as error:
        _, _, rule = str(error).partition(": ")
        raise CommandFailed(f"--{rule}", 2) from error
    return entry
