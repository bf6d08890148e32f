"""[I/O] Pods of one namespace, or of all, by label: a list, then a watch that goes on where the list ended.

Level-triggered by nature: whatever goes wrong ends in a watch that goes on at the version last heard of, or, where that
cannot be believed or is forgotten (410), in a new list, which is believed as a whole: pods that it lacks are gone.

Lists ask for no `resourceVersion`: they are read from etcd's quorum, or from a cache that is proven to be as new. With
"0" an API server may answer out of a cache that lags, and one asked after another may go back in time: a pod that is
gone would come back, or an engine seem to be its former process, and what is known of the present one be forgotten.
Such a list costs the server more; there is one at the start and one after a 410, by one replica.

A watch asks for bookmarks, so that the version stays young while nothing happens, and for an end after about a minute:
one that says nothing for longer than that has a dead connection. Going on with a watch is one request; nothing is
polled.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from indexer.discovery.kubernetes.api import Unheard, failure_of, session
from indexer.discovery.kubernetes.pod import Metadata, Pod, PodPage, read_event, read_failure, read_named, read_pod

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from indexer.discovery.kubernetes.api import Api
    from indexer.discovery.kubernetes.reading import Reading
    from indexer.ports import Clock
    from indexer.settings.in_cluster import Access

PAGE_PODS: Final = 50
"""About a megabyte: what is decoded in one step holds the loop."""
PODS_A_TURN: Final = 8
PAGE_PODS_MAX: Final = 3_200
"""After lists that took longer than the server remembers."""
PODS_MAX: Final = 16_384
"""Of one namespace, or of all together where all are watched; what is beyond is no source, and that is remarked."""
DOUBLINGS_MAX: Final = 16


class Pace(NamedTuple):
    """Times, in seconds."""

    watch_s: tuple[int, int] = (45, 75)
    """A watch ends after so long by itself, at random: what starts together does not go on together."""
    spare_s: float = 10.0
    """Longer than that past its end there is nobody at the other one."""
    short_s: float = 5.0
    """One that ended sooner without a word is a failure: a server that ends each at once would be asked all the time.
    """
    rest_s: float = 0.25
    rest_max_s: float = 30.0
    """After failures, the first and the longest."""

    def rest(self, failures: int, retry_s: float, chance: random.Random) -> float:
        """Before the next try. Doubled with each failure in a row, and never for all at the same time.

        `retry_s`: what the server asked for, which is waited for at least.
        """
        most = min(self.rest_max_s, self.rest_s * (1 << min(failures, DOUBLINGS_MAX)))
        return retry_s + most * chance.uniform(0.5, 1.0)


PACE: Final = Pace()


Key = tuple[str, str]
"""Namespace and name."""


class Sink(Protocol):
    """What is told. Returns at once."""

    def listed(self, readings: dict[Key, Reading], *, are_all: bool) -> None:
        """All pods there are, or as many as are looked at."""
        ...

    def changed(self, key: Key, reading: Reading) -> None:
        """A pod came, or is otherwise than before."""
        ...

    def gone(self, key: Key) -> None:
        """A pod is no more."""
        ...

    def heard(self) -> None:
        """The server said something."""
        ...

    def unheard(self, why: Unheard) -> None:
        """It cannot be heard; it is tried again."""
        ...


class PodWatch:
    """One list and watch, for as long as `run` runs. `reads`: what is kept of a pod, None being an unreadable one."""

    def __init__(
        self,
        access: Access,
        path: str,
        selector: str,
        reads: Callable[[Key, Pod | None], Reading],
        sink: Sink,
        *,
        clock: Clock,
        chance: random.Random,
        pace: Pace = PACE,
        pods_max: int = PODS_MAX,
    ) -> None:
        self._access = access
        self._path = path
        self._selector = selector
        self._reads = reads
        self._sink = sink
        self._clock = clock
        self._chance = chance
        self._pace = pace
        self._pods_max = pods_max
        self._version: str | None = None
        """All up to it is known. None: a list is needed."""
        self._page_pods = PAGE_PODS
        self._failures = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                async with session(self._access) as api:
                    await self._follow(api)
            except Unheard as why:
                if why.reason in {"expired", "unreadable", "too_large"}:
                    self._version = None
                self._sink.unheard(why)
                await asyncio.sleep(self._pace.rest(self._failures, why.retry_s, self._chance))
                self._failures += 1

    async def _follow(self, api: Api) -> None:
        """Until something goes wrong."""
        if self._version is None:
            self._version = await self._list(api)
        while True:
            await self._watch(api)

    async def _list(self, api: Api) -> str:
        """Tell all there are; the version to go on from. Raises `Unheard`."""
        query = {"labelSelector": self._selector, "limit": str(self._page_pods)}
        readings: dict[Key, Reading] = {}
        while True:
            page = await self._page(api, query)
            await self._read_all(page, readings)
            are_all = len(readings) <= self._pods_max
            if not (page.metadata.token and are_all):  # what is beyond is not even asked for
                break
            query["continue"] = page.metadata.token
        if not page.metadata.resource_version:
            raise Unheard("unreadable", "its list of pods has no version")
        self._page_pods = PAGE_PODS
        self._sink.listed(dict(sorted(readings.items())[: self._pods_max]), are_all=are_all)
        self._sink.heard()
        return page.metadata.resource_version

    async def _read_all(self, page: PodPage, readings: dict[Key, Reading]) -> None:
        """In turns of about a millisecond; of each pod is kept what is needed."""
        for index, item in enumerate(page.items or ()):
            read = read_item(item)
            if read is not None:
                key = _key(read[0])
                readings[key] = self._reads(key, read[1])
            if index % PODS_A_TURN == PODS_A_TURN - 1:
                await asyncio.sleep(0)

    async def _page(self, api: Api, query: dict[str, str]) -> PodPage:
        try:
            return await api.page(self._path, query)
        except Unheard as why:
            if why.reason == "expired":  # it took longer than the server keeps what it was answered from
                self._page_pods = min(self._page_pods * 4, PAGE_PODS_MAX)
            elif why.reason == "too_large":
                self._page_pods = max(self._page_pods // 8, 1)
            raise

    async def _watch(self, api: Api) -> None:
        """Until it ends by itself. Raises `Unheard`."""
        lasts_s = self._chance.randint(*self._pace.watch_s)
        query = {
            "labelSelector": self._selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "",
            "timeoutSeconds": str(lasts_s),
        }
        began, has_told = self._clock.now(), False
        async with api.watch(self._path, query, lasts_s + self._pace.spare_s) as batches:
            async for lines in batches:
                self._take(lines)
                has_told, self._failures = True, 0
        if not has_told and self._clock.now() - began < self._pace.short_s:
            raise Unheard("ended", "it ended a watch at once")
        # An end in order is a word, too: a server up to 1.20, or one whose store tells no progress, sends no bookmark
        # while no pod changes, and would seem to be away for as long as a cluster is quiet.
        self._sink.heard()
        self._failures = 0

    def _take(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            if line.strip():
                self._take_one(line)
                self._sink.heard()

    def _take_one(self, line: bytes) -> None:
        """Raises `Unheard` for what is no event, as then nobody knows what it was: all is read anew."""
        try:
            event = read_event(line)
            if event.type == "ERROR":
                raise failure_of(0, read_failure(event.object))
            metadata = read_named(event.object).metadata
        except (msgspec.DecodeError, RecursionError) as error:
            raise Unheard("unreadable", "an event that cannot be read: all is read anew") from error
        if not metadata.resource_version:
            raise Unheard("unreadable", "an event without a version: all is read anew")
        if event.type in {"ADDED", "MODIFIED"}:
            key, read = _key(metadata), read_item(event.object)
            self._sink.changed(key, self._reads(key, None if read is None else read[1]))
        elif event.type == "DELETED":
            self._sink.gone(_key(metadata))
        elif event.type != "BOOKMARK":
            raise Unheard("unreadable", "an event of a kind that is not known: all is read anew")
        self._version = metadata.resource_version


def _key(metadata: Metadata) -> Key:
    return metadata.namespace, metadata.name


def read_item(item: msgspec.Raw) -> tuple[Metadata, Pod | None] | None:
    """One that cannot be read costs no other. None where not even its name can."""
    try:
        pod = read_pod(item)
    except (msgspec.DecodeError, RecursionError):
        pass
    else:
        return pod.metadata, pod
    try:
        return read_named(item).metadata, None
    except (msgspec.DecodeError, RecursionError):
        return None
