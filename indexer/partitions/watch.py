"""[I/O] Whether the store serves: at the start, where all replicas have to agree on what it is, and from then on."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from indexer.errors import SettingsError
from indexer.log_lines import about
from indexer.store.deployment import agree
from indexer.store.failures import FailureKind, StoreFailure
from indexer.store.fitness import judge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from indexer.partitions.parts import Parts

log = logging.getLogger("kvindexer.store")

RETRY_S: Final = 0.2
RETRY_MAX_S: Final = 2.0
FIRST_TRY_S: Final = 5.0
"""At the start, so long an answer of the store is waited for; then the service begins without."""
LOOK_S: Final = 1.0
LOOKS: Final = 5
"""For so many looks a refusal counts: what is refused is tried again sooner."""
REFUSALS_MIN: Final = 2
"""Refused so often meanwhile it is not a call that came at a bad moment."""
REFUSALS: Final[tuple[FailureKind, ...]] = ("denied", "out_of_memory", "read_only", "refused")


class Watch:
    """`facts`: what all replicas of the namespace must agree on."""

    def __init__(self, parts: Parts, namespace: str, facts: Mapping[str, str]) -> None:
        self._parts = parts
        self._namespace = namespace
        self._facts = dict(facts)
        self.agreed = asyncio.Event()
        self._unfit: StoreFailure | None = None
        self._fitness_due_at = float("-inf")
        self._refused: deque[Counter[str]] = deque([Counter()], maxlen=LOOKS)
        """Calls that failed up to each of the latest looks."""
        self.trouble = ""
        """Why the store cannot be used now; empty where it can."""

    @property
    def is_up(self) -> bool:
        """Whether the store answers, and serves."""
        return self.agreed.is_set() and not self.trouble

    async def check(self) -> None:
        """At the start: whether the store serves, and others agree. Raises SettingsError where it says no.

        Where it says nothing, the service starts without and asks on.
        """
        try:
            async with asyncio.timeout(FIRST_TRY_S):
                await self._agree()
        except StoreFailure as failure:
            if failure.kind == "unfit":
                raise SettingsError("redis.url", str(failure)) from None
            self._say(failure)
        except TimeoutError:
            self._say(StoreFailure("timeout"))

    async def run(self) -> None:
        """Ask until it serves, and then whether it still does, for whoever asks how it is; until cancelled."""
        rest = RETRY_S
        while not self.agreed.is_set():
            try:
                await self._agree()
            except StoreFailure as failure:
                self._say(failure)
                await self._parts.rest(rest)
                rest = min(2 * rest, RETRY_MAX_S)
        while True:
            try:
                await agree(self._parts.client, self._namespace, self._facts)  # anew where the store was emptied
                self._look_at_refusals()
                await self._look_at_fitness()
            except StoreFailure as failure:
                self._say(failure)
            else:
                if self.trouble:
                    log.info("the store: it answers again", extra=about("store_answers"))
                self.trouble = ""
            await asyncio.sleep(LOOK_S)

    async def _agree(self) -> None:
        client = self._parts.client
        fitness = judge(await client.reports(), as_cluster=client.is_cluster)
        await agree(client, self._namespace, self._facts)
        self.agreed.set()
        found = about("store_ready")
        log.info("the store: %s %s, %d partitions", fitness.kind, fitness.version, self._parts.partitions, extra=found)
        self.trouble = ""

    def _look_at_refusals(self) -> None:
        """Raises StoreFailure where it goes on refusing calls, though these looks are answered: rights may differ."""
        before, now = self._refused[0], self._parts.client.failures.copy()
        self._refused.append(now)
        for kind in REFUSALS:
            if now[kind] - before[kind] >= REFUSALS_MIN:
                raise StoreFailure(kind)

    async def _look_at_fitness(self) -> None:
        """A setting may be changed while it runs. Raises StoreFailure."""
        now = self._parts.clock.now()
        if self._unfit is not None or now >= self._fitness_due_at:
            self._fitness_due_at = now + self._parts.options.fitness_look_s
            self._unfit = None
            try:
                judge(await self._parts.client.reports(), as_cluster=self._parts.client.is_cluster)
            except StoreFailure as failure:
                if failure.kind == "unfit":
                    self._unfit = failure
                raise

    def _say(self, failure: StoreFailure) -> None:
        text = str(failure)
        if failure.kind == "circuit_open" and self.trouble:
            return  # why it is not asked is known already
        if text != self.trouble:
            log.warning("%s", text, extra=about("store_failing"))
            self.trouble = text
