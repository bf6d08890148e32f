"""What an operator reads in the log of sources: who came, restarted, changed and went. Logs, and does no other I/O.

Promise: bounded. However large the fleet, `LINES_A_SECOND` of each level are written in a second, and then how many
were left out; a warning that many sources have is one line. Names are shown cut short and without control characters.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.log_lines import OF_COLLECTORS, about
from indexer.source_words import reason_in_words, warnings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from indexer.index.registry import Registry
    from indexer.index.source import SourceIndex
    from indexer.log_lines import Extra
    from indexer.lookup_view import FleetView, Prepared
    from indexer.model import SourceId
    from indexer.ports import Clock

log = logging.getLogger("kvindexer.sources")
telemetry_log = logging.getLogger("kvindexer.telemetry")
"""Of what the collector of traces and metrics does."""

SILENT: Final = ("new", "lower")
"""How every source begins: no news."""
LOUD: Final = frozenset({"suspect", "down"})
LINES_A_SECOND: Final = 20
REPEATED_AFTER_S: Final = 60.0
"""A warning that comes and goes is told again after this time."""
A_CALLER: Final = "a caller"
"""Who gave a command, where nobody has to show a token."""
NAMED_MAX: Final = 3
SHOWN_MAX: Final = 100


class Told(NamedTuple):
    """A warning as it was last logged."""

    text: str
    at: float
    present: bool


class SourceLog:
    """One per process. `look` is called about once a second.

    `follows`: whether another replica owns a source; `remarks`: what else should be looked at, by a key.
    """

    def __init__(
        self,
        registry: Registry,
        view: FleetView,
        clock: Clock,
        *,
        follows: Callable[[SourceId], bool],
        remarks: Callable[[SourceIndex], Mapping[str, str]],
    ) -> None:
        self._registry = registry
        self._view = view
        self._clock = clock
        self._follows = follows
        self._remarks = remarks
        self._second = clock.now()
        self._written: Counter[int] = Counter()
        self._left_out: Counter[int] = Counter()
        self._shown: dict[SourceId, tuple[str, str]] = {}
        self._told: dict[SourceId, dict[str, Told]] = {}

    def say(self, extra: Extra, text: str, *arguments: object, level: int = logging.INFO) -> None:
        """One line, unless there were too many in this second: then it is counted."""
        self._turn()
        if self._written[level] >= LINES_A_SECOND:
            self._left_out[level] += 1
            return
        self._written[level] += 1
        logger = telemetry_log if extra["line"].event in OF_COLLECTORS else log
        logger.log(level, text, *arguments, extra=extra)

    def restarted(self, source: SourceIndex, reason: str, before: int) -> None:
        """A new life of an engine, with the generation it had before."""
        key, now = named(source.descriptor.id), source.facts.generation
        extra = about("source_restarted", source=source.descriptor.id, model=source.descriptor.model)
        self.say(extra, "source %s: the engine restarted (%s), generation %x after %x", key, reason, now, before)

    def look(self) -> Generator[None, None, None]:
        """Log what is another than at the last look: states, bounds, and warnings that are new."""
        self._turn()
        fresh: dict[tuple[str, str], list[SourceId]] = {}
        for key, source in list(self._registry.sources.items()):
            yield
            if self._registry.sources.get(key) is source:
                self._look_at(key, source)
                for warning in self._new_warnings(key, source):
                    fresh.setdefault(warning, []).append(key)
        for key in self._shown.keys() - self._registry.sources.keys():
            yield
            del self._shown[key]
            self._told.pop(key, None)
        for (_, text), keys in fresh.items():
            yield
            extra = about("source_warning", source=keys[0]) if len(keys) == 1 else about("source_warning")
            self.say(extra, "source %s: %s", names(keys), text, level=logging.WARNING)

    def _look_at(self, key: SourceId, source: SourceIndex) -> None:
        view: Prepared = self._view.prepared(source, self._clock.now())
        before, shown = self._shown.get(key, SILENT), (view.state, view.bound)
        self._shown[key] = shown
        if shown != before:
            why = reason_in_words(source.facts, view, followed=self._follows(key))
            level = logging.WARNING if view.state in LOUD and view.state != before[0] else logging.INFO
            tail = f" ({why})" if why else ""
            extra = about("source_state", source=key, model=source.descriptor.model)
            self.say(extra, "source %s: %s, bound %s%s", named(key), view.state, view.bound, tail, level=level)

    def _new_warnings(self, key: SourceId, source: SourceIndex) -> list[tuple[str, str]]:
        """Those that were not there at the last look, or say something else. Of a number alone it is not told."""
        now, told, fresh = self._clock.now(), self._told.setdefault(key, {}), []
        present = {**warnings_of(source, self._registry), **self._remarks(source)}
        for name, text in present.items():
            before = told.get(name)
            repeated = before is not None and (before.present or now - before.at < REPEATED_AFTER_S)
            if before is not None and repeated and _same(before.text, text):
                told[name] = before._replace(present=True)
            else:
                told[name] = Told(text, now, present=True)
                fresh.append((name, text))
        for name in told.keys() - present.keys():
            told[name] = told[name]._replace(present=False)
        return fresh

    def _turn(self) -> None:
        """A second is over: what was left out in it is told, as a number."""
        now = self._clock.now()
        if now - self._second < 1.0:
            return
        for level, lines in self._left_out.items():
            log.log(
                level,
                "%d more such lines were left out: at most %d a second",
                lines,
                LINES_A_SECOND,
                extra=about("lines_left_out"),
            )
        self._second = now
        self._written.clear()
        self._left_out.clear()


def named(key: object) -> str:
    """A name that somebody else chose, fit for a line of the log."""
    text = str(key)
    shown = text if text.isprintable() else ascii(text)[1:-1]
    return shown if len(shown) <= SHOWN_MAX else f"{shown[: SHOWN_MAX - 1]}…"


def names(keys: Iterable[object]) -> str:
    """The first of them, and how many more."""
    all_keys = list(keys)
    more = len(all_keys) - NAMED_MAX
    return ", ".join(map(named, all_keys[:NAMED_MAX])) + (f" and {more} more" if more > 0 else "")


_DIGITS: Final = {ord(digit): None for digit in "0123456789"}


def _same(before: str, text: str) -> bool:
    return before == text or before.translate(_DIGITS) == text.translate(_DIGITS)
