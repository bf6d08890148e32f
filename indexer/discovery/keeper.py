"""[I/O] Brings the registry to what discoverers tell, wherever this process is the one that watches.

Relies on: a ledger that says who watches (`Ledger.watches`), and refuses a change of what does not stand any more.
Promises: level-triggered and idempotent. Whatever went wrong, the latest picture is planned anew; a registry that was
changed under it is looked at again; without a first picture nothing is touched. What is gone is not scored at once, and
removed as fast as `limits.max_clears_per_minute` allows.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Final, Literal, Protocol

from indexer.discovery.plan import Plan, plan, together
from indexer.discovery.troubles import Troubles
from indexer.log_lines import about
from indexer.slices import Slices
from indexer.source_log import named
from indexer.telemetry import DiscoveryHealth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from indexer.discovery.found import Discoverer, Picture
    from indexer.discovery.plan import Step
    from indexer.log_lines import Event
    from indexer.model import SourceId
    from indexer.ports import Clock
    from indexer.source_log import SourceLog
    from indexer.store.registered import Registered

WATCH_LOOK_S: Final = 0.1
"""Between two looks whether it is for this process to watch: a look is two comparisons."""
GATHER_S: Final = 0.05
"""From a change to the plan: what changes together is planned together."""
LOOK_S: Final = 5.0
"""Between two looks at a registry that others may have changed, and at what could not be removed yet."""
STEPS_A_TURN: Final = 8
"""Some half a millisecond, where no store is waited for."""
RETRY_S: Final = 0.5
RETRY_MAX_S: Final = 10.0

Outcome = Literal["done", "changed", "failed", "lost"]
"""`changed`: something else stands by now; `failed`: the store does not answer; `lost`: it is not for us any more."""

_SAID: Final[Mapping[str, Event]] = {
    "put": "source_discovered",
    "edit": "source_rediscovered",
    "remove": "source_undiscovered",
}


class Ledger(Protocol):
    """Where sources are registered: this process alone, or a store that replicas share."""

    @property
    def watches(self) -> bool:
        """Whether this process is the one that watches now; with a store nobody else may be."""
        ...

    async def read(self) -> Mapping[SourceId, Registered] | None:
        """What stands; None where that cannot be had now."""
        ...

    async def take(self, step: Step, *, counts: bool) -> Outcome:
        """One change. `counts`: against `limits.max_clears_per_minute`, at every replica."""
        ...

    def holds_blocks(self, source: SourceId) -> bool:
        """Whether any of it are known: what never spoke can go unnoticed."""
        ...


class Clears(Protocol):
    """`limits.max_clears_per_minute`."""

    def take(self, pods: int) -> int:
        """So many pods are to be forgotten: how many of them may be now. Those count."""
        ...


class Keeper:
    """One a process that collects. `discoverers`, in the order in which they win."""

    def __init__(
        self,
        discoverers: Sequence[Discoverer],
        ledger: Ledger,
        clock: Clock,
        *,
        clears: Clears,
        log: SourceLog,
        sources_max: int,
    ) -> None:
        self._discoverers = tuple(discoverers)
        self._ledger = ledger
        self._clock = clock
        self._clears = clears
        self._log = log
        self._sources_max = sources_max
        self._pictures: dict[str, Picture] = {}
        self._vouched_at: dict[str, float] = {}
        """By discoverer, as of when the processes that it told of were last said to live."""
        self._news = asyncio.Event()
        self._began_at = clock.now()
        self._watching = self._is_settled = self._is_whole = False
        self._plan = Plan([], {})
        self._block_sizes: dict[SourceId, int] = {}
        self._waiting = 0
        self._told: dict[str, str] = {}
        """Remarks that were logged."""
        self._troubles = Troubles(log)
        self.vouched: Callable[[SourceId, str, float], None] = _ignore
        """Called with a source whose life is known, that life, and when its orchestrator was heard last."""

    async def run(self) -> None:
        """Watch whenever it is for this process to do so; until cancelled."""
        while True:
            while not self._ledger.watches:  # noqa: ASYNC110  nobody tells: it follows from a lease and the time
                await asyncio.sleep(WATCH_LOOK_S)
            self._began_at, self._watching = self._clock.now(), True
            self._log.say(about("discovery_watching"), "discovery: this process watches from here on")
            try:
                await self._watch()
                self._log.say(about("discovery_handed_over"), "discovery: another process watches from here on")
            finally:
                self._watching = self._is_settled = False
                self._pictures.clear()
                self._block_sizes.clear()
                self._troubles.forget()

    # -- what others see ----------------------------------------------------------------------------------------------

    @property
    def health(self) -> DiscoveryHealth:
        """How it is going."""
        now = self._clock.now()
        failures: Counter[tuple[str, str]] = Counter()
        for each in self._discoverers:
            failures.update({(each.name, reason): times for reason, times in each.failures.items()})
        return DiscoveryHealth(
            self._watching,
            {name: len(picture.found) for name, picture in self._pictures.items()},
            {each.name: now - max(self._began_at, each.heard_at or 0.0) for each in self._discoverers}
            if self._watching
            else {},
            failures,
            self._waiting,
            self._plan.remarks,
        )

    def block_size_of(self, source: SourceId) -> int | None:
        """Tokens of a block of its cache, as whoever told of it says; None where nobody does."""
        return self._block_sizes.get(source)

    @property
    def remarks(self) -> Mapping[str, str]:
        """By pod, or source, what was found and could not be registered, or not as it was told."""
        return self._plan.remarks

    @property
    def is_learning(self) -> bool:
        """Whether this process watches, and the sources that there are do not all stand in the registry yet."""
        return self._watching and not self._is_settled

    # -- watching -----------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """As long as it is for this process to do so."""
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._look(each), name=f"discovery: {each.name}") for each in self._discoverers
            ]
            running.append(tasks.create_task(self._keep(), name="discovery: keep"))
            await self._until_lost()
            for task in running:
                task.cancel()

    async def _look(self, discoverer: Discoverer) -> None:
        def told(picture: Picture) -> None:
            self._pictures[discoverer.name] = picture
            self._news.set()

        await discoverer.run(told)

    async def _until_lost(self) -> None:
        while self._ledger.watches:
            self._vouch()
            self._troubles.look(self._discoverers, self._clock.now())
            await asyncio.sleep(WATCH_LOOK_S)

    def _vouch(self) -> None:
        """Whose orchestrator said something: the processes that it told of still live."""
        for each in self._discoverers:
            picture = self._pictures.get(each.name)
            if picture is not None and each.heard_at is not None and each.heard_at != self._vouched_at.get(each.name):
                self._vouched_at[each.name] = each.heard_at
                for source, found in picture.found.items():
                    if found.life:
                        self.vouched(source, found.life, each.heard_at)

    async def _keep(self) -> None:
        rest = RETRY_S
        while True:
            self._news.clear()
            outcome = await self._bring_about() if self._pictures else "done"
            if outcome == "done":
                self._is_settled = self._is_whole
                rest = RETRY_S
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._news.wait()
                await asyncio.sleep(GATHER_S)
            else:
                await asyncio.sleep(GATHER_S if outcome == "changed" else rest)
                rest = min(2 * rest, RETRY_MAX_S) if outcome == "failed" else rest

    async def _bring_about(self) -> Outcome:
        """One plan, as far as it can be carried out."""
        standing = await self._ledger.read()
        if standing is None:
            return "failed"
        wanted = together([(each.name, self._pictures.get(each.name)) for each in self._discoverers])
        planning = plan(standing, wanted, sources_max=self._sources_max)
        self._plan = await Slices(self._clock).run(planning)
        self._is_whole = wanted.whole
        self._block_sizes = {key: each.block_size for key, each in wanted.found.items() if each.block_size is not None}
        self._tell_remarks()
        steps = self._allowed(self._plan.steps)
        for nth, (step, counts) in enumerate(steps):
            if nth % STEPS_A_TURN == STEPS_A_TURN - 1:
                await asyncio.sleep(0)
            outcome = await self._ledger.take(step, counts=counts) if self._ledger.watches else "lost"
            if outcome != "done":
                return outcome
            self._say(step)
        return "done"

    def _allowed(self, steps: Sequence[Step]) -> list[tuple[Step, bool]]:
        """Those that may be taken now, and whether each counts; what is forgotten goes pod by pod."""
        pods = {
            step.source.pod: step.source for step in steps if step.forgets and self._ledger.holds_blocks(step.source)
        }
        may_go = set(list(pods)[: self._clears.take(len(pods))]) if pods else set()
        out: list[tuple[Step, bool]] = []
        waiting: set[SourceId] = set()
        for step in steps:
            if step.forgets and step.source.pod in pods and step.source.pod not in may_go:
                waiting.add(step.source)
            elif step.source not in waiting:
                out.append((step, step.forgets and pods.get(step.source.pod) == step.source))
        self._waiting = len(waiting)
        return out

    # -- for people ---------------------------------------------------------------------------------------------------

    def _say(self, step: Step) -> None:
        extra = about(_SAID[step.how], source=step.source)
        self._log.say(extra, "source %s: %s", named(step.source), _in_words(step))

    def _tell_remarks(self) -> None:
        for pod, remark in self._plan.remarks.items():
            if self._told.get(pod) != remark:
                self._log.say(about("discovery_remark"), "discovery: %s: %s", named(pod), remark)
        self._told = dict(self._plan.remarks)


def _in_words(step: Step) -> str:
    wanted, stands = step.wanted, step.stands
    if wanted is None:
        return "removed, as nobody tells of it any more"
    if stands is None:
        return "discovered" if wanted.ready else f"discovered, not ready: {wanted.why}"
    if step.how == "put":
        return "discovered otherwise: begun anew"
    changes: Iterable[str] = (
        *(("ready",) if wanted.ready and not stands.ready else ()),
        *((f"not ready: {wanted.why}",) if not wanted.ready and wanted.why != stands.why else ()),
        *(("another process of its engine lives",) if wanted.life != stands.life and stands.life else ()),
        *(("described otherwise",) if wanted.descriptor != stands.descriptor else ()),
    )
    return ", ".join(changes) or "told of anew"


def _ignore(_source: SourceId, _life: str, _heard_at: float) -> None:
    """Nobody asks."""
