"""Holds answers of replicas against what engines held, whichever replica gives them, and whenever."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from tests.support.in_trouble import standing_of
from tests.support.speaking_engine import Batch, said
from tests.support.told_at import told_at

if TYPE_CHECKING:
    from schemas.lookup import PodEntry
    from tests.support.core import Answer
    from tests.support.core_model import Expected
    from tests.support.speakers import Speaker


class Judge:
    """Holds every answer against what the engines held.

    An answer names a generation and a batch of it. Which life of the engine a generation is, answers have to agree on:
    of the lives that there were when it was first heard of, those go in which something exact was not so.
    """

    def __init__(self, speakers: dict[str, Speaker]) -> None:
        self._speakers = speakers
        self._lives: dict[tuple[str, int], set[int]] = {}
        self._lock = threading.Lock()
        self.narrowed: list[object] = []
        """What told lives apart."""
        self.exact: Counter[str] = Counter()
        """Entries that were `live` and `exact` and right, by replica."""

    def check(self, name: str, number: int, answer: Answer) -> None:
        """What is called exact is so at the batch that it names; nothing is told that no engine announced."""
        assert answer.state != "no_signal", (name, number, answer)
        for entry in answer.pods:
            assert entry.reason != "deadline", (name, number, entry)
            with self._lock:
                self._check(name, number, entry)
        counted = [entry for entry in answer.pods if entry.state != "down"]
        assert answer.state != "exact" or all(standing_of(entry) == ("live", "exact") for entry in counted), answer

    def _check(self, name: str, number: int, entry: PodEntry) -> None:
        engine = self._speakers[entry.pod].engine
        lives = self.lives(entry)
        why = (name, number, entry, set(lives))
        if entry.state == "new" or entry.sequence is None:  # an engine that replays may be known to have said nothing
            assert not entry.matched_tokens, why
        elif entry.state == "live" and entry.bound in {"exact", "lower"}:
            held = {life: engine.held.get(Batch(life, entry.sequence)) for life in lives}
            fits = {life for life, told in held.items() if told is not None and _fits(entry, told[number])}
            assert fits, (why, {life: told and told[number] for life, told in held.items()}, engine.life)
            if lives != fits:
                self.narrowed.append((told_at(), *why, fits))
            lives &= fits
            self.exact[name] += entry.bound == "exact"
        else:
            ever = range(engine.life + 1) if entry.state == "suspect" else sorted(lives)
            assert entry.matched_tokens <= engine.ever_matched(number, ever), why

    def lives(self, entry: PodEntry) -> set[int]:
        """Which the entry's generation can be; it is no earlier one than generations before it.

        One in which nothing was heard yet can be a later one's, too: the engine may start anew before it says a word.
        """
        generation = int(entry.generation or "0", 16)
        found = set(range(self._speakers[entry.pod].engine.life + 1))
        if entry.sequence is not None:
            found = self._lives.setdefault((entry.pod, generation), found)
        before = [lives for (pod, other), lives in self._lives.items() if pod == entry.pod and other < generation]
        first = max((min(lives) for lives in before), default=0)
        found -= set(range(first))
        return found


def _fits(entry: PodEntry, held: Expected) -> bool:
    if entry.bound == "exact":
        return said(entry) == held
    return entry.matched_tokens <= held.matched
