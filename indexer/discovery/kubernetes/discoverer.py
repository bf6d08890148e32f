"""[I/O] Kubernetes as a discoverer: watches pods, asks engines where only they can tell, and tells pictures.

Nothing is told before each namespace was listed once: a picture that lacks pods would have their sources removed. From
then on the latest one is told whenever it changes, at most ten times a second, so that a rollout of a thousand pods
does not hold the loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from indexer.discovery.kubernetes.api import Unheard, namespace_in
from indexer.discovery.kubernetes.asking import Asking
from indexer.discovery.kubernetes.picture import Pictures
from indexer.discovery.kubernetes.reading import Reading, Rules, read
from indexer.discovery.kubernetes.watch import PACE, PODS_MAX, Key, Pace, PodWatch
from indexer.settings.in_cluster import is_one_namespace
from indexer.settings.kubernetes_rules import EVERYWHERE

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from indexer.discovery.found import Picture
    from indexer.discovery.kubernetes.asking import Ask
    from indexer.discovery.kubernetes.pod import Pod
    from indexer.ports import Clock
    from indexer.settings import Settings
    from indexer.settings.in_cluster import Access

BETWEEN_PICTURES_S: Final = 0.1


class KubernetesDiscoverer:
    """`access` None: this is no pod, and no `url` is set. `ask`: what an engine says of where it publishes."""

    name: str = "kubernetes"

    def __init__(
        self,
        rules: Rules,
        access: Access | None,
        *,
        clock: Clock,
        chance: random.Random,
        ask: Ask,
        pace: Pace = PACE,
        pods_max: int = PODS_MAX,
    ) -> None:
        self._rules = rules
        self._access = access
        self._clock = clock
        self._chance = chance
        self._ask = ask
        self._pace = pace
        self._pods_max = pods_max
        self._scopes: dict[str, _Scope] = {}
        self._dirty = asyncio.Event()
        self._is_making = False
        """A picture, which does not tell what is heard meanwhile."""
        self.heard_at: float | None = None
        """When the quietest of the watches heard something last, of what the latest picture tells: who takes that for a
        sign that a process lives must not take the word of a moment in which another one was known already. A bookmark
        comes about once a minute, or the end of a watch."""
        self.failures: Counter[str] = Counter()
        self.trouble: str = ""
        """Why the API server cannot be heard at the moment; empty where it can."""

    async def run(self, told: Callable[[Picture], None]) -> None:
        """Until cancelled; begins from nothing each time."""
        access, paths = await self._places()
        self._dirty.clear()
        self.heard_at, self.trouble = None, ""
        self._scopes = {
            path: _Scope(self._dirty, self._clock, self._heard, self._failed, self._pods_max) for path in paths
        }
        async with asyncio.TaskGroup() as tasks:
            asking = Asking(self._ask, tasks, self._dirty, self._chance)
            for path, scope in self._scopes.items():
                watch = PodWatch(
                    access,
                    path,
                    self._rules.settings.selector or "",
                    partial(reading_of, rules=self._rules),
                    scope,
                    clock=self._clock,
                    chance=self._chance,
                    pace=self._pace,
                    pods_max=self._pods_max,
                )
                tasks.create_task(watch.run(), name=f"watching {path}")
            tasks.create_task(self._tell(told, asking), name="telling of pods")

    async def _places(self) -> tuple[Access, list[str]]:
        """Paths to watch, once it is known where this runs."""
        while True:
            try:
                return await asyncio.to_thread(paths_of, self._access, self._rules.settings.namespaces)
            except Unheard as why:
                self._failed(why)
            await asyncio.sleep(self._pace.rest_max_s)

    def _heard(self) -> None:
        """Of a scope: as of now all that it knows is told, unless a picture is still to come."""
        self.trouble = next((scope.trouble for scope in self._scopes.values() if scope.trouble), "")
        if not (self._dirty.is_set() or self._is_making):
            times = [scope.heard_at for scope in self._scopes.values()]
            self.heard_at = None if None in times else min(time for time in times if time is not None)

    def _failed(self, why: Unheard) -> None:
        self.failures[why.reason] += 1
        self.trouble = why.words

    async def _tell(self, told: Callable[[Picture], None], asking: Asking) -> None:
        pictures = Pictures(self._rules.settings)
        last: Picture | None = None
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            if all(scope.is_listed for scope in self._scopes.values()):
                readings = [reading for scope in self._scopes.values() for reading in scope.readings.values()]
                asking.follow(readings)
                self._is_making = True  # and in a thread: of thousands of pods it takes longer than lookups can wait
                try:
                    picture = await asyncio.to_thread(pictures.of, readings, asking.answered)
                finally:
                    self._is_making = False
                remarks = {**picture.remarks, **(self._beyond() or self._nobody(readings))}
                picture = picture._replace(remarks=remarks)
                if picture != last:
                    last = picture
                    told(picture)
                self._heard()
            await asyncio.sleep(BETWEEN_PICTURES_S)

    def _nobody(self, readings: Sequence[Reading]) -> Mapping[str, str]:
        settings = self._rules.settings
        where = ", ".join(settings.namespaces) or "its own namespace"
        return {} if readings else {settings.selector or "": f"no pod has these labels ({where})"}

    def _beyond(self) -> Mapping[str, str]:
        left = any(scope.has_left_out for scope in self._scopes.values())
        return {"": f"there are more pods than the {self._pods_max} that are looked at: no sources"} if left else {}


def rules_of(settings: Settings) -> Rules:
    """As they are set."""
    pods = settings.discovery.kubernetes
    return Rules(
        pods,
        is_one_namespace(pods),
        settings.models.aliases,
        settings.models.discover,
        settings.models.approximate.keys(),
    )


class _Scope:
    """What one watch tells, kept as readings."""

    def __init__(
        self,
        dirty: asyncio.Event,
        clock: Clock,
        heard: Callable[[], None],
        failed: Callable[[Unheard], None],
        pods_max: int,
    ) -> None:
        self._pods_max = pods_max
        self._dirty = dirty
        self._clock = clock
        self._heard = heard
        self._failed = failed
        self.readings: dict[Key, Reading] = {}
        self.has_left_out = False
        self.is_listed = False
        self.heard_at: float | None = None
        self.trouble = ""

    def listed(self, readings: dict[Key, Reading], *, are_all: bool) -> None:
        """All there are: what is not among them is gone."""
        self.readings, self.has_left_out = readings, not are_all
        self.is_listed = True
        self._dirty.set()

    def changed(self, key: Key, reading: Reading) -> None:
        """One of them."""
        if key not in self.readings and len(self.readings) >= self._pods_max:
            if self.has_left_out:  # told already
                return
            self.has_left_out = True
        elif self.readings.get(key) == reading:
            return
        else:
            self.readings[key] = reading
        self._dirty.set()

    def gone(self, key: Key) -> None:
        """One less."""
        if self.readings.pop(key, None) is not None:
            self._dirty.set()

    def heard(self) -> None:
        """The server is there."""
        self.heard_at, self.trouble = self._clock.now(), ""
        self._heard()

    def unheard(self, why: Unheard) -> None:
        """It is not, or not of use."""
        self.trouble = why.words
        self._failed(why)


def reading_of(key: Key, pod: Pod | None, rules: Rules) -> Reading:
    """What is kept of a pod; None: one that cannot be read."""
    if pod is not None:
        return read(pod, rules)
    return Reading(
        namespace=key[0],
        name=key[1],
        uid="",
        ip=None,
        shares_ip=False,
        is_over=False,
        offer=None,
        remarks=("it is not told as a pod should be: no source",),
    )


def paths_of(access: Access | None, namespaces: Sequence[str]) -> tuple[Access, list[str]]:
    """Where to look, as paths of the API server. Raises `Unheard`."""
    if access is None:
        raise Unheard("configuration", "this is no pod of a cluster: set discovery.kubernetes.url")
    if EVERYWHERE in namespaces:
        return access, ["/api/v1/pods"]
    names = namespaces if access.namespace_file is None else (namespace_in(access.namespace_file),)
    return access, [f"/api/v1/namespaces/{name}/pods" for name in names]
