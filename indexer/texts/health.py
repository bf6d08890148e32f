"""How engines' tokenizers do: a line in the log when one begins to fail or works again, a cause for remarks meanwhile.

Promise: bounded. An engine that comes and goes is told once a minute; no cause quotes a question or an answer.
"""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import httpx

from indexer.log_lines import about

if TYPE_CHECKING:
    from indexer.log_lines import Say
    from indexer.ports import Clock

AGAIN_AFTER_S: Final = 60.0
"""An engine that failed, worked and fails again is told again after this time."""
SHOWN_MAX: Final = 100
ENGINES_MAX: Final = 4_096
"""That are remembered; beyond, those that failed first are forgotten."""


@dataclass(slots=True)
class _Engine:
    """`cause`: why it failed when it was asked last; None: it worked. `told`: the log says that it fails."""

    cause: str | None = None
    told: bool = False
    told_at: float | None = None


class Health:
    """Of all engines that failed lately, by URL."""

    def __init__(self, clock: Clock, say: Say) -> None:
        self._clock = clock
        self._say = say
        self._engines: dict[str, _Engine] = {}

    def cause(self, url: str) -> str | None:
        """Why it failed when it was asked last; None where it did not."""
        engine = self._engines.get(url)
        return None if engine is None else engine.cause

    def failed(self, url: str, cause: str) -> None:
        """It was asked and gave no tokens."""
        if url not in self._engines and len(self._engines) >= ENGINES_MAX:
            del self._engines[next(iter(self._engines))]
        engine = self._engines.setdefault(url, _Engine())
        engine.cause = cause
        if engine.told or (engine.told_at is not None and self._clock.now() - engine.told_at < AGAIN_AFTER_S):
            return
        engine.told, engine.told_at = True, self._clock.now()
        self._say(
            about("tokenizer_failing"),
            "engine %s: POST /tokenize fails: %s",
            url[:SHOWN_MAX],
            cause,
            level=logging.WARNING,
        )

    def worked(self, url: str) -> None:
        """It was asked and answered."""
        engine = self._engines.get(url)
        if engine is None:
            return
        engine.cause = None
        if engine.told:
            engine.told = False
            self._say(about("tokenizer_works"), "engine %s: POST /tokenize works again", url[:SHOWN_MAX])
        if engine.told_at is None or self._clock.now() - engine.told_at >= AGAIN_AFTER_S:
            del self._engines[url]


def why_not_reached(error: Exception) -> str:
    """What went wrong between here and an engine, in words of ours."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, httpx.ConnectError):
        return _why_not_connected(error)
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol | UnicodeError):
        return "its address is none"
    return "the connection ended, or it speaks no HTTP"


def _why_not_connected(error: BaseException) -> str:
    """By the system's own error, which lies below those of three libraries."""
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, BaseExceptionGroup):
            below = below.exceptions[0]
            continue
        if isinstance(below, socket.gaierror):
            return "its name cannot be resolved"
        if isinstance(below, OSError) and below.errno:
            return os.strerror(below.errno).lower()
        below = below.__cause__ or below.__context__
    return "it cannot be connected to"
