"""The recorded streams with their engines' answers, and where they are asked. Reads files, nothing else."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from api.demo.trace import Trace, TraceHeader, TraceMessage, read_truth
from loadtest.machine import ROOT
from loadtest.trust.caches import Caches

if TYPE_CHECKING:
    from collections.abc import Sequence

TRACES: Final = ROOT / "tests" / "golden" / "traces"
PLACES: Final = 50
"""At which questions are asked, evenly spread, beside those where the recorded engines were asked."""
PROMPTS: Final = 4
"""Asked at each of these."""
SEED: Final = 7


class Place(NamedTuple):
    """Prompts that are asked after the first `n` messages."""

    n: int
    prompts: tuple[int, ...]


class Recorded(NamedTuple):
    """One recording."""

    name: str
    header: TraceHeader
    messages: Sequence[TraceMessage]
    prompts: Sequence[Sequence[int]]
    caches: Caches
    places: Sequence[Place]

    def births(self) -> list[int]:
        """Places of the messages with which an engine lives again as another process."""
        return [number for number, each in enumerate(self.messages) if each.life and not each.sequence]

    def clears(self, pod: int) -> list[int]:
        """Places of the messages in which that engine says that it has emptied its cache."""
        return [number for number, each in enumerate(self.messages) if each.pod == pod and _CLEARED in each.payload]


_CLEARED: Final = b"AllBlocksCleared"


@lru_cache(maxsize=1)
def recorded(name: str) -> Recorded:
    """The one of that name; what is told of its engines' caches is checked against their own answers."""
    trace, truth = Trace(TRACES / f"{name}.kvt.gz"), read_truth(TRACES / f"{name}.truth.gz")
    messages = tuple(trace.messages())
    prompts = tuple(prompt.tokens for prompt in truth.prompts)
    asked: dict[int, list[int]] = {}
    for probe in truth.probes:
        asked.setdefault(probe.n, []).append(probe.prompt)
    draw = random.Random(SEED)
    for number in range(1, PLACES + 1):
        chosen = draw.choices(range(len(prompts)), k=PROMPTS)
        asked.setdefault(number * len(messages) // PLACES, []).extend(chosen)
    places = [Place(n, tuple(chosen)) for n, chosen in sorted(asked.items())]
    return Recorded(name, trace.header, messages, prompts, Caches(messages).checked(truth.probes, prompts), places)
