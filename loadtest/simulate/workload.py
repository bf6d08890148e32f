"""Requests in the order in which they arrive, whatever they were read from. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from loadtest.simulate.segments import Segments

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from loadtest.simulate.segments import Ids, Path

BUSY: Final = (0.1, 0.9)
"""Between which shares of all tokens the rate of a trace is taken: its begin and its end are thin."""
STEPS: Final = 60
"""Of a search by halves for a stretch."""
STRETCH_MAX: Final = 2.0**60


class Asked(NamedTuple):
    """One request as it was read. It arrives at `begins_s * stretch + after_s`.

    `ids`: one for each block of its prompt. `scope`: prompts of different scopes share nothing.
    """

    begins_s: float
    after_s: float
    tokens: int
    output: int
    session: Hashable
    ids: Ids
    scope: Hashable = None


class Request(NamedTuple):
    """One to be routed. `session`: a number; `path`: its prompt, of so many blocks."""

    at_s: float
    tokens: int
    output: int
    session: int
    blocks: int
    path: Path


@dataclass(frozen=True, slots=True)
class Workload:
    """A trace as it is played, with the factor by which its times were stretched."""

    name: str
    block_size: int
    requests: Sequence[Request]
    stretch: float


class Trace:
    """What was read, to be played faster or slower.

    Prompts that share blocks must come in the order of their times, and keep it whatever the stretch: all times stand
    in `begins_s`, or what shares blocks begins at the same one.
    """

    def __init__(self, name: str, block_size: int, asked: Iterable[Asked]) -> None:
        self.name, self.block_size = name, block_size
        segments, sessions = Segments(), dict[object, int]()
        times, rest = [], []
        for each in asked:
            times.append((each.begins_s, each.after_s, each.tokens))
            session = sessions.setdefault(each.session, len(sessions))
            rest.append((each.tokens, each.output, session, segments.add(each.ids, each.scope)))
        self._begins_s, self._after_s, self._tokens = np.array(times, dtype=float).reshape(-1, 3).T
        self._rest = [
            (tokens, output, session, prompt.blocks, segments.path(prompt)) for tokens, output, session, prompt in rest
        ]

    def __len__(self) -> int:
        return len(self._rest)

    def stretched(self, stretch: float = 1.0) -> Workload:
        """As it is played so many times slower."""
        times = self._begins_s * stretch + self._after_s
        order = np.argsort(times, kind="stable")
        requests = [Request(float(times[place]), *self._rest[place]) for place in order.tolist()]
        return Workload(self.name, self.block_size, requests, stretch)

    def at_rate(self, tokens_s: float) -> Workload:
        """With prompts of so many tokens a second, while it is busy; or as near to that as stretching comes."""
        low, high = 0.0, 1.0
        while high < STRETCH_MAX and self.tokens_s(high) > tokens_s:
            high *= 2.0
        for _ in range(STEPS):
            middle = (low + high) / 2.0
            low, high = (middle, high) if self.tokens_s(middle) > tokens_s else (low, middle)
        return self.stretched(high)

    def tokens_s(self, stretch: float = 1.0) -> float:
        """Of prompts that arrive in a second, while it is busy."""
        times = self._begins_s * stretch + self._after_s
        order = np.argsort(times, kind="stable")
        summed = np.cumsum(self._tokens[order])
        first, last = (times[order][np.searchsorted(summed, share * summed[-1])] for share in BUSY)
        return float((BUSY[1] - BUSY[0]) * summed[-1] / max(last - first, 1e-9))
