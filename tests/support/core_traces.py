"""Recorded streams with their engines' own answers, for tests that feed them to the core."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from api.demo.trace import Trace, TraceHeader, TraceMessage, Truth, read_truth
from tests.support.core_events import u32

if TYPE_CHECKING:
    from api.demo.trace import Probe

TRACES: Final = Path(__file__).parents[1] / "golden" / "traces"
NAMES: Final = ("basic", "basic-sameseed", "eviction", "clear")


class Recording(NamedTuple):
    """One trace in memory: its messages in recorded order, and prompts as little-endian u32."""

    header: TraceHeader
    messages: tuple[TraceMessage, ...]
    truth: Truth
    prompts: tuple[bytes, ...]

    @property
    def probes(self) -> tuple[Probe, ...]:
        return self.truth.probes


@lru_cache(maxsize=2)
def recording(name: str) -> Recording:
    """The trace of that name from the golden folder."""
    trace = Trace(TRACES / f"{name}.kvt.gz")
    truth = read_truth(TRACES / f"{name}.truth.gz")
    prompts = tuple(u32(prompt.tokens) for prompt in truth.prompts)
    return Recording(trace.header, tuple(trace.messages()), truth, prompts)
