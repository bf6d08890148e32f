"""[I/O] Engines by name: asks name servers again and again, and tells what the names come to.

Each name has its own turns: after the least time to live of its answers, within `refresh_min_s` and `refresh_max_s`;
sooner after a failure, and then less and less often. The first picture is told once every question was answered: until
then nobody can say what is not there.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from indexer.discovery.dns_messages import Kind
from indexer.discovery.engine_sources import event_sources
from indexer.discovery.event_endpoints import NotTold
from indexer.discovery.name_servers import NameServers, NothingKnown, system_rules
from indexer.discovery.names import NameMemory, picture, pod_of
from indexer.settings.dns_rules import read_server

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from indexer.discovery.dns_messages import Answered
    from indexer.discovery.event_endpoints import Endpoints
    from indexer.discovery.found import Picture
    from indexer.ports import Clock
    from indexer.settings.discovery import Dns

QUESTIONS_AT_ONCE: Final = 16
"""Of one name."""
ENGINES_AT_ONCE: Final = 64
"""That are asked where they publish."""
ASKED_AGAIN_S: Final = 30.0
"""Where an engine publishes may change with each life of it, and DNS tells of none."""
FIRST_REST_S: Final = 1.0
"""After a failure; it doubles up to `refresh_max_s`."""
JITTER: Final = 0.1
"""Of each rest: replicas, and names, do not ask in step."""


class DnsDiscoverer:
    """One a process."""

    name = "dns"

    def __init__(self, settings: Dns, clock: Clock, chance: random.Random) -> None:
        self._settings = settings
        self._clock = clock
        self._chance = chance
        self._servers = tuple(map(read_server, settings.servers))
        self._memories: list[NameMemory] = []
        self._engines: dict[str, dict[int, Endpoints] | str] = {}
        self._asked_at: dict[str, float] = {}
        self._last: Picture | None = None
        self.heard_at: float | None = None
        """When a name server said something last; None: never."""
        self.trouble = ""  # a name that cannot be asked for is a remark
        self.failures: Counter[str] = Counter()
        """Questions that came to nothing, by why: the closed list of `NothingKnown`, and `engine` for engines."""

    async def run(self, told: Callable[[Picture], None]) -> None:
        """Tell, until cancelled. Begun again, it begins anew: what was known may be long past."""
        settings = self._settings
        self._memories = [
            NameMemory(name, entry, forget_s=settings.forget_s) for name, entry in sorted(settings.names.items())
        ]
        self._engines, self._asked_at, self._last = {}, {}, None
        async with asyncio.TaskGroup() as tasks:
            for memory in self._memories:
                tasks.create_task(self._go_on(memory, told), name=f"dns {memory.name}")

    async def _go_on(self, memory: NameMemory, told: Callable[[Picture], None]) -> None:
        failures = 0
        while True:
            rest_s = await self._round(memory)
            if (
                self._last is not None
            ):  # who is missing is not to be scored at once, however long engines are waited for
                self._tell(told)
            await self._ask_engines(memory)
            self._tell(told)
            if rest_s is None:
                most_s = max(FIRST_REST_S, self._settings.refresh_max_s)
                rest_s = min(FIRST_REST_S * 2.0 ** min(failures, 16), most_s)
                failures += 1
            else:
                failures = 0
            await asyncio.sleep(rest_s * (1 + JITTER * self._chance.random()))

    def _tell(self, told: Callable[[Picture], None]) -> None:
        """What changed, once all was known: from then on what is new and not answered yet holds up nothing."""
        if self._last is None and not all(memory.is_whole for memory in self._memories):
            return
        now = picture(self._memories, self._engines)
        if now != self._last:
            self._last = now
            told(now)

    # -- one name -----------------------------------------------------------------------------------------------------

    async def _round(self, memory: NameMemory) -> float | None:
        """All questions of one name; how long what was answered may be believed, None where something was not."""
        asking = _Round(memory, NameServers(system_rules(self._servers), self._chance), self._clock)
        await asking.go()
        self.failures.update(asking.failed)
        self.heard_at = asking.heard_at or self.heard_at
        memory.failed = ", ".join(sorted(reason.replace("_", " ") for reason in asking.failed))
        if asking.failed:
            return None
        least_s, most_s = self._settings.refresh_min_s, self._settings.refresh_max_s
        return min(max(min(asking.lives_s, default=least_s), least_s), most_s)

    # -- where engines publish ----------------------------------------------------------------------------------------

    async def _ask_engines(self, memory: NameMemory) -> None:
        """Those of this name, where nobody else tells."""
        if not memory.entry.asks_engines:
            return
        now, places = self._clock.now(), asyncio.Semaphore(ENGINES_AT_ONCE)
        here = {pod_of(seen.address, memory.entry.port) for seen in memory.seen() if seen.missing_since is None}
        due = [pod for pod in sorted(here) if now - self._asked_at.get(pod, float("-inf")) >= ASKED_AGAIN_S]
        async with asyncio.TaskGroup() as tasks:
            for pod in due:
                tasks.create_task(self._ask_engine(pod, places), name=f"asking {pod}")
        all_here = {pod_of(seen.address, each.entry.port) for each in self._memories for seen in each.seen()}
        for gone in self._engines.keys() - all_here:
            del self._engines[gone]
            self._asked_at.pop(gone, None)

    async def _ask_engine(self, pod: str, places: asyncio.Semaphore) -> None:
        async with places:
            try:
                self._engines[pod] = dict(await event_sources(pod))
            except NotTold as why:
                self.failures["engine"] += 1
                if not isinstance(self._engines.get(pod), dict):  # else what it told stands
                    self._engines[pod] = str(why)
            else:
                self._asked_at[pod] = self._clock.now()


class _Round:
    """The questions of one name, once."""

    def __init__(self, memory: NameMemory, servers: NameServers, clock: Clock) -> None:
        self._memory = memory
        self._servers = servers
        self._clock = clock
        self._places = asyncio.Semaphore(QUESTIONS_AT_ONCE)
        self.failed: Counter[str] = Counter()
        self.lives_s: list[float] = []
        """Times to live of what was answered."""
        self.heard_at: float | None = None

    async def go(self) -> None:
        """Ask, and have the memory know."""
        memory = self._memory
        beside: Mapping[str, frozenset[str]] = {}
        if memory.entry.kind == "srv":
            answered = await self._answer(memory.name, Kind.SRV)
            if answered is None:
                return  # nobody knows whose addresses to ask for
            memory.take_targets(answered.targets, self._clock.now())
            beside = answered.beside
        async with asyncio.TaskGroup() as tasks:
            for host in memory.hosts:
                for kind in memory.families:
                    if host in beside:
                        mine = frozenset(each for each in beside[host] if (":" in each) is (kind is Kind.AAAA))
                        memory.take_addresses(host, kind, mine, self._clock.now())
                    else:
                        tasks.create_task(self._addresses(host, kind), name=f"dns {host}")

    async def _addresses(self, host: str, kind: Kind) -> None:
        asked_as = host if self._memory.entry.kind == "a" else f"{host}."  # a target is a whole name
        async with self._places:
            answered = await self._answer(asked_as, kind)
        if answered is not None:
            self._memory.take_addresses(host, kind, answered.addresses, self._clock.now())

    async def _answer(self, name: str, kind: Kind) -> Answered | None:
        """None: nothing is known, which is noted."""
        try:
            answered = await self._servers.ask(name, kind)
        except NothingKnown as nothing:
            self.failed[nothing.reason] += 1
            return None
        self.heard_at = self._clock.now()
        if answered.ttl_s is not None:
            self.lives_s.append(answered.ttl_s)
        return answered
