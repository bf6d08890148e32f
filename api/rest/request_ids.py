"""Request ids: the caller's own, where it sent a usable one, else a new one that costs a counter."""

from __future__ import annotations

import itertools
import re
import secrets
from typing import Final

_USABLE: Final = re.compile(rb"[A-Za-z0-9._:/+=@~-]{1,128}")


class RequestIds:
    """Ids unique among the processes of a deployment: a random prefix of this process, and a count."""

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(6)
        self._count = itertools.count(1)

    def of(self, header: bytes | None) -> str:
        """The id in `x-request-id`; a new one where the header is missing or too odd to be repeated."""
        if header is not None and _USABLE.fullmatch(header):
            return header.decode("ascii")
        return f"{self._prefix}-{next(self._count):x}"
