"""The service is killed on the way and started again: what was known before, what was missed, what was there again.

Decides nothing of when; keeps the facts and says them in plain words.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.demo.facts import SourceFacts


class Killable(Protocol):
    """A service that can be killed and started again, without waiting for it."""

    def kill(self) -> None:
        """At once, without a chance to write anything."""
        ...

    def start(self) -> None:
        """Begin again."""
        ...

    def listens(self) -> bool:
        """Whether it accepts connections by now."""
        ...


@dataclass(slots=True)
class Outage:
    """One of them. `kept`: whether every source went on in the generation it was in; None as long as it is not known.

    Only what came out of the store can do that: a service that begins anew gives its sources new generations.
    """

    blocks: int
    generations: dict[str, str]
    killed_at: float
    missed: int = 0
    away_s: float | None = None
    kept: bool | None = None
    begun_anew: list[str] = field(default_factory=list)

    @classmethod
    def begin(cls, sources: Mapping[str, SourceFacts], now: float) -> Outage:
        """Of what the service said last before it is killed."""
        return cls(blocks_of(sources), {pod: facts.generation for pod, facts in sources.items()}, now)

    def judge(self, sources: Mapping[str, SourceFacts]) -> None:
        """Now that all is indexed again."""
        self.begun_anew = begun_anew(self.generations, sources)
        self.kept = not self.begun_anew

    def said_killed(self) -> str:
        """For a person, when it happens."""
        return f"the service is killed (SIGKILL) while it knows {self.blocks:,} blocks; the engines go on"

    def said_back(self) -> str:
        """When it listens again."""
        return f"it listens again after {self.away_s or 0:.1f} s, {self.missed} batches behind the engines"

    def said_judged(self, sources: Mapping[str, SourceFacts]) -> str:
        """When all is indexed again."""
        if self.kept:
            blocks = f"{blocks_of(sources):,} blocks"
            return f"nothing was lost: the same generations, {blocks}; {self.missed} batches came by replay"
        return f"begun anew after the restart: {', '.join(self.begun_anew)}"


def begun_anew(generations: Mapping[str, str], sources: Mapping[str, SourceFacts]) -> list[str]:
    """Pods that are not in the generation any more that they were in."""
    now = {pod: facts.generation for pod, facts in sources.items()}
    return [pod for pod, generation in generations.items() if now.get(pod) != generation]


def blocks_of(sources: Mapping[str, SourceFacts]) -> int:
    """Over all engines and tiers."""
    return sum(sum(facts.blocks.values()) for facts in sources.values())
