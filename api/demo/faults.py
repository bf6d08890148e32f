"""What happens to the demo's replicas: one is killed and started again, one is paused and goes on, in turns.

Decides when; the replicas themselves are in `cluster`. Never two at a time, and the next only when every partition has
an owner and a standby again: of two at once, without replay, something would be lost, and rightly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

from api.demo.outage import begun_anew

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from api.demo.facts import SourceFacts

CALM_S: Final = 2.0
"""Between two of them: longer than it takes to see that all is well."""
BEYOND_LEASE: Final = 2.0
"""So many lease times nobody starts it again, or lets it go on."""

Kind = Literal["killed", "paused"]


class Cluster(Protocol):
    """What can be done to replicas, and what they say."""

    lease_s: float

    def busiest(self, *, other_than: str) -> str:
        """The replica whose fall matters most, of all but that one: of most engines it is the owner."""
        ...

    def take(self, replica: str, kind: Kind) -> int:
        """Kill or pause it. Returns how many partitions it owned."""
        ...

    def bring_back(self, replica: str) -> None:
        """Start it again, or let it go on."""
        ...

    def is_back(self, replica: str) -> bool:
        """Whether it can be asked again."""
        ...

    def others_own_all(self, replica: str) -> bool:
        """Whether every partition has another owner than this one, as another one says."""
        ...

    def is_even(self) -> bool:
        """Whether each replica owns its share and every partition is stood by."""
        ...

    def first_words(self, replica: str, engines: Sequence[str]) -> str:
        """What it says of these engines when it is asked now."""
        ...


@dataclass(slots=True)
class Fault:
    """One of them. `kept`: every engine went on in the generation it was in, and as exact; None until it is known."""

    kind: Kind
    replica: str
    sources: dict[str, SourceFacts]
    began_at: float
    taken_s: float | None = None
    kept: bool | None = None

    @property
    def engines(self) -> list[str]:
        """Those whose events it applied."""
        return [pod for pod, facts in self.sources.items() if facts.owner == self.replica]

    def judge(self, sources: Mapping[str, SourceFacts]) -> str:
        """Now that all is well again. Returns a sentence."""
        anew = begun_anew({pod: facts.generation for pod, facts in self.sources.items()}, sources)
        unsure = [pod for pod, facts in self.sources.items() if pod not in anew and facts.bound != sources[pod].bound]
        self.kept = not anew and not unsure
        if self.kept:
            return f"{self.replica} has its share again; nothing was lost: every engine in the same generation"
        return f"lost on the way: begun anew {', '.join(anew) or 'none'}, in doubt {', '.join(unsure) or 'none'}"


class Faults:
    """Their course. `sources`: what the service says of the engines now; `now` is a monotonic clock in seconds."""

    def __init__(
        self, cluster: Cluster, sources: Callable[[], Mapping[str, SourceFacts]], now: Callable[[], float]
    ) -> None:
        self.done: list[Fault] = []
        self.said: list[str] = []
        """What happened, a sentence each."""
        self._cluster, self._sources, self._now = cluster, sources, now
        self._fault: Fault | None = None
        self._is_coming = False
        self._calm_since: float | None = None

    @property
    def under_way(self) -> bool:
        """Whether a replica is away, or has not got its share again."""
        return self._fault is not None

    def step(self, *, all_live: bool, may_begin: bool) -> None:
        """Do what is due now.

        `all_live`: whether every replica that can be asked says so of every engine; `may_begin`: whether it is a
        moment for another one.
        """
        if self._fault is None:
            if self._is_calm(all_live=all_live) and may_begin:
                self._begin()
        elif self._is_coming:
            self._come(self._fault, all_live=all_live)
        else:
            self._wait(self._fault)

    def _is_calm(self, *, all_live: bool) -> bool:
        """For `CALM_S` without a break."""
        if not all_live or not self._cluster.is_even():
            self._calm_since = None
            return False
        if self._calm_since is None:
            self._calm_since = self._now()
        return self._now() - self._calm_since >= CALM_S

    def _begin(self) -> None:
        kind: Kind = "paused" if len(self.done) % 2 else "killed"
        replica = self._cluster.busiest(other_than=self.done[-1].replica if self.done else "")
        fault = Fault(kind, replica, dict(self._sources()), self._now())
        self._fault, self._is_coming, self._calm_since = fault, False, None
        partitions = self._cluster.take(replica, kind)
        how = "killed (SIGKILL)" if kind == "killed" else "paused (SIGSTOP), for longer than its lease"
        share = f"{partitions} partitions, with {len(fault.engines)} of {len(fault.sources)} engines"
        self.said.append(f"{replica} is {how}; it owned {share}")

    def _wait(self, fault: Fault) -> None:
        """Until others have taken over, and it would have had to notice."""
        away_s = self._now() - fault.began_at
        if fault.taken_s is None:
            if not self._cluster.others_own_all(fault.replica):
                return
            fault.taken_s = away_s
            self.said.append(f"all it owned has another owner after {away_s:.1f} s (the lease is {self._lease} s)")
        if away_s < BEYOND_LEASE * self._cluster.lease_s:
            return
        self._cluster.bring_back(fault.replica)
        self._is_coming = True
        if fault.kind == "killed":
            self.said.append(f"{fault.replica} is started again")
        else:
            words = self._cluster.first_words(fault.replica, fault.engines)
            self.said.append(f"{fault.replica} goes on (SIGCONT), asked at once it says: {words}")

    def _come(self, fault: Fault, *, all_live: bool) -> None:
        if not (self._cluster.is_back(fault.replica) and all_live and self._cluster.is_even()):
            return
        self.said.append(fault.judge(self._sources()))
        self.done.append(fault)
        self._fault = None

    @property
    def _lease(self) -> str:
        return f"{self._cluster.lease_s:g}"
