"""How engines' tokenizers do: a line in the log when one begins to fail or works again, a cause for remarks meanwhile.

Promise: bounded. An engine that comes and goes is told once a minute; no cause quotes a question or an answer.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

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
