"""Callers known by bearer tokens, as a file names them. [I/O] The file is looked at once a second, in a thread.

Comparing takes constant time where it matters: what is looked up is the SHA-256 of what was shown, not the token. How
far a digest agrees with a known one tells nothing of use, for nobody can choose a token by its digest; and the table's
own hash is keyed anew in each process. So an ordinary dict will do, however many tokens there are.
"""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Callable
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import Final

from api.access.caller import Caller
from api.access.entries import callers_by_digest
from api.access.files import FileUnusable, content, marks
from api.problems import RequestRefused
from indexer.errors import SettingsError
from indexer.log_lines import about

LOOK_EVERY_S: Final = 1.0
_BEARER: Final = b"bearer "
_CHALLENGE: Final = (b"www-authenticate", b'Bearer realm="kvindexer"')
_INVALID: Final = (b"www-authenticate", b'Bearer realm="kvindexer", error="invalid_token"')

_log = logging.getLogger(__name__)


class TokenAccess:
    """Who shows no known token is refused."""

    controlled = True

    def __init__(self, path: Path) -> None:
        """Raises `SettingsError` where the file cannot be used."""
        self._path = path
        self._marks = marks([path])
        try:
            self._callers = callers_by_digest(content(path))
        except FileUnusable as error:
            raise SettingsError("auth.tokens_file", _of_file(path, error)) from error
        self._read: Callable[[bool], None] = _ignore

    def count(self, read: Callable[[bool], None]) -> None:
        """Have it called with whether a changed file could be used."""
        self._read = read

    def caller(self, authorization: bytes | None) -> Caller:
        """The caller who shows that `Authorization` header. Raises `RequestRefused` 401."""
        if authorization is None:
            detail = "this service asks who calls: send Authorization: Bearer with your token"
            raise RequestRefused(HTTPStatus.UNAUTHORIZED, "token.missing", detail, headers=[_CHALLENGE])
        if authorization[:7].lower() == _BEARER:
            caller = self._callers.get(sha256(authorization[7:].strip()).digest())
            if caller is not None:
                return caller
            detail = "this bearer token is not known here, or no longer"
        else:
            detail = "this is no bearer token: send Authorization: Bearer with your token behind it, one blank between"
        raise RequestRefused(HTTPStatus.UNAUTHORIZED, "token.unknown", detail, headers=[_INVALID])

    async def watch(self) -> None:
        """Read the file anew whenever it changes; until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await asyncio.to_thread(self.look)

    def look(self) -> None:
        """Once. A file that cannot be used leaves the tokens of before in force, and is said once."""
        found = marks([self._path])
        if found == self._marks:
            return
        self._marks = found  # before reading: what is written meanwhile differs from this
        try:
            self._callers = callers_by_digest(content(self._path))
        except FileUnusable as error:
            _log.error(
                "auth.tokens_file: the tokens of before stay in force: %s",
                _of_file(self._path, error),
                extra=about("tokens_unusable"),
            )
            self._read(False)  # noqa: FBT003 - as it is called
        else:
            _log.info("auth.tokens_file: read anew, %d tokens", len(self._callers), extra=about("tokens_read"))
            self._read(True)  # noqa: FBT003


def is_readable_by_all(path: Path) -> bool:
    """Whether anybody on this machine may read the file."""
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False


def _of_file(path: Path, error: FileUnusable) -> str:
    told = str(error)
    return told if told.startswith(str(path)) else f"{path}: {told}"


def _ignore(_usable: bool) -> None:  # noqa: FBT001 - as it is called
    """Nobody counts."""
