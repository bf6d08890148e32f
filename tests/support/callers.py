"""Tokens for tests, and the file that knows them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final

from api.access.caller import Scope
from api.access.gates import Gates, gates_of
from indexer.settings import Auth, Compat, Settings

Known = tuple[str, tuple[Scope, ...], str | None]
"""Name, scopes and tenant of a token, which is `NAME-token`."""

EVERY: Final[tuple[Scope, ...]] = ("lookup", "report", "admin")


def token_of(name: str) -> str:
    """What it shows."""
    return f"{name}-token-3f0c"


def bearer(name: str) -> str:
    """In its header."""
    return f"Bearer {token_of(name)}"


def write_tokens(path: Path, *known: Known) -> Path:
    """Also over a file that is there: a running service reads it anew."""
    entries = [
        {"name": name, "sha256": hashlib.sha256(token_of(name).encode()).hexdigest(), "scopes": list(scopes)}
        | ({} if tenant is None else {"tenant": tenant})
        for name, scopes, tenant in known
    ]
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(entries))
    fresh.chmod(0o600)
    fresh.replace(path)
    return path


def gates(folder: Path, *known: Known, endpoints: tuple[str, ...] | None = None, anonymous: bool = False) -> Gates:
    """As of a service with such a file. Without `known`: one without access control."""
    file = str(write_tokens(folder / "tokens.json", *known)) if known else None
    auth = Auth(tokens_file=file, endpoints=endpoints)
    return gates_of(Settings(auth=auth, compat=Compat(anonymous=anonymous)))
