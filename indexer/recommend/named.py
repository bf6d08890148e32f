"""Which sources a caller means by the names in its question: whose loads it tells, and whom it leaves out. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.candidates import of_tenant
from indexer.loads.known import LoadView
from indexer.model import DEFAULT_TENANT, SourceId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from indexer.candidates import Scene
    from indexer.index.registry import Registry
    from schemas.recommend import GivenLoad


class Names:
    """Of one question. A name that nobody registered means itself."""

    def __init__(self, scene: Scene, registry: Registry, tenant: str | None) -> None:
        self._called = scene.standing.called
        self._asked_of = scene.standing.ids
        self._unregistered = tuple(SourceId(name, 0) for name in scene.candidates.unknown_names)
        self._registry = registry
        self._tenant = tenant or DEFAULT_TENANT

    def meant(self, name: str) -> Sequence[SourceId]:
        """All ranks of that pod. Names as the answer tells them are found at once."""
        found = self._called.get(name)
        if found is None:
            sources = of_tenant(self._registry, name, self._tenant)
            found = tuple(source.descriptor.id for source in sources) or (SourceId(name, 0),)
        return found

    def loads(self, given: Mapping[str, GivenLoad]) -> LoadView | None:
        """What the caller knows, which is of now. What it tells of a pod holds for each of its ranks.

        None where it tells nothing of any candidate, as when it calls all of them by other names.
        """
        requests: dict[SourceId, float] = {}
        kv_usage: dict[SourceId, float] = {}
        for name, load in given.items():
            for source in self.meant(name):
                if load.running is not None or load.waiting is not None:
                    requests[source] = (load.running or 0.0) + (load.waiting or 0.0)
                if load.kv_usage is not None:
                    kv_usage[source] = load.kv_usage
        told = requests.keys() | kv_usage.keys()
        if told.isdisjoint(self._asked_of) and told.isdisjoint(self._unregistered):
            return None
        return LoadView("request", 0.0, requests, kv_usage)
