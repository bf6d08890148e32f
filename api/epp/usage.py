"""What an engine says at the end of its response: how long the prompt was, and how much of it was reused. Pure.

Whole responses and streamed ones alike tell it in a member `usage`, streamed ones in one of the last events. So only
the end is kept, of a response of any length, and looked at once it is over.
"""

from __future__ import annotations

import json
import re
from typing import Final, NamedTuple

import msgspec

from schemas.rest import Position

KEPT_BYTES: Final = 16 * 1024
_USAGE: Final = re.compile(rb'"usage"\s*:\s*(?=\{)')
"""Inside a string quotation marks are escaped: no text of an answer looks like this."""


class Usage(NamedTuple):
    """In tokens."""

    prompt_tokens: int
    cached_tokens: int


class _Details(msgspec.Struct):
    cached_tokens: Position | None = None


class _Told(msgspec.Struct):
    prompt_tokens: Position
    prompt_tokens_details: _Details | None = None


class UsageTail:
    """One response."""

    def __init__(self) -> None:
        self._end = b""

    def add(self, part: bytes) -> None:
        """The next of its bytes."""
        self._end = (self._end + part)[-KEPT_BYTES:]

    def usage(self) -> Usage | None:
        """The last that was told; None where nothing was of what is reused."""
        begins = [found.end() for found in _USAGE.finditer(self._end)]
        if not begins:
            return None
        try:
            document, _ = json.JSONDecoder().raw_decode(self._end[begins[-1] :].decode("utf-8", "replace"))
            told = msgspec.convert(document, _Told)
        except (ValueError, RecursionError, msgspec.ValidationError):
            return None
        details = told.prompt_tokens_details
        if details is None or details.cached_tokens is None:
            return None
        if not 0 <= details.cached_tokens <= told.prompt_tokens:
            return None
        return Usage(told.prompt_tokens, details.cached_tokens)
