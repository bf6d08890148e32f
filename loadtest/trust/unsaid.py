"""What engines did that nobody could hear of, and for how long answers rested on what was before. Pure: told the time.

Of three things only is it true that what an engine published could not tell: its last messages are lost, or it began
anew or emptied its cache and has not spoken since. What its words leave out (`words`) is the fourth.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadtest.trust.caches import Caches, Moment


class Unsaid:
    """By engine, what it did since it was heard last, and when."""

    def __init__(self) -> None:
        self._unheard: defaultdict[int, list[tuple[Moment, float]]] = defaultdict(list)
        self._emptied: dict[int, float] = {}

    def does(self, pod: int, moment: Moment, now: float) -> None:
        """A message that is lost, or the start of another process."""
        self._unheard[pod].append((moment, now))

    def empties(self, pod: int, now: float) -> None:
        """Its cache."""
        self._emptied[pod] = now

    def is_empty(self, pod: int) -> bool:
        """Whether it has emptied its cache and not said so."""
        return pod in self._emptied

    def speaks(self, pod: int) -> None:
        """A message of it is on its way to whoever listens: now all of it can be known."""
        self._unheard[pod].clear()
        self._emptied.pop(pod, None)

    def publishes(self, pod: int) -> None:
        """A message, whether lost or not: that the cache was emptied is published with it."""
        self._emptied.pop(pod, None)

    def lost_since(self, pod: int, named: Moment, heard: Moment) -> float | None:
        """Since when who knows the engine up to `named` could not know better; None where more was `heard` of it."""
        if heard.sequence >= 0 and named < heard:
            return None
        return next((when for moment, when in self._unheard[pod] if moment > named), None)

    def emptied_since(self, pod: int, named: Moment, published: Moment) -> float | None:
        """The same of a cache emptied after `named`."""
        return self._emptied.get(pod) if named == published else None


class Words:
    """Of engines that lie: what their words come to, and from which message on these show that they are not true.

    `shows`: whether they do by that message.
    """

    def __init__(self, heard: Caches, shows: Callable[[int, Moment], bool]) -> None:
        self.heard, self._shows = heard, shows

    def unknown(self, pod: int, moment: Moment, tokens: Sequence[int]) -> int | None:
        """What nobody could know better; None where anybody could."""
        return None if self._shows(pod, moment) else self.heard.held(pod, moment, tokens)


class Rest(NamedTuple):
    """Answers that rest on what was before."""

    since: float
    named: Moment | None
    """What they name; None for as long as they are certain, whatever they name."""
    sequence: int


class Rests:
    """By engine, those that have not ended."""

    def __init__(self) -> None:
        self._open: dict[int, Rest] = {}
        self.lasted: list[tuple[float, int]] = []
        """Of those that have: seconds, and messages of the engine whose words are not true."""

    def goes_on(self, pod: int, rest: Rest) -> None:
        """An answer that could not know better."""
        self._open.setdefault(pod, rest)

    def hears(self, pod: int, named: Moment, published: Moment, *, certain: bool, now: float) -> None:
        """Another answer."""
        rest = self._open.get(pod)
        if rest is not None and (not certain or (rest.named is not None and named > rest.named)):
            del self._open[pod]
            self.lasted.append((now - rest.since, 0 if rest.named else published.sequence - rest.sequence))

    @property
    def unending(self) -> int:
        """How many go on."""
        return len(self._open)
