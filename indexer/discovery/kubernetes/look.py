"""[I/O] One look at pods, for doctor: whether they may be listed and watched, and what becomes of them.

As the discoverer looks, but once, and no engine is asked where it publishes: where pods do not say, the settings count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from indexer.discovery.kubernetes.api import Unheard, session
from indexer.discovery.kubernetes.discoverer import paths_of, reading_of
from indexer.discovery.kubernetes.picture import Pictures
from indexer.discovery.kubernetes.watch import PAGE_PODS, read_item
from indexer.doctor.facts import PodsSeen

if TYPE_CHECKING:
    from indexer.discovery.kubernetes.api import Api
    from indexer.discovery.kubernetes.reading import Reading, Rules
    from indexer.discovery.kubernetes.watch import Key
    from indexer.settings.in_cluster import Access

WATCH_S: Final = 1
PATIENCE_S: Final = 10.0


async def look_at_pods(rules: Rules, access: Access | None) -> PodsSeen:
    """All of it, or why not."""
    if access is None:
        return PodsSeen(elsewhere="this is no pod of the cluster, and discovery.kubernetes.url is not set")
    settings = rules.settings
    where = ", ".join(settings.namespaces) or "its own namespace"
    seen = PodsSeen(place=f"{access.url}, {settings.selector} in {where}")
    readings: dict[Key, Reading] = {}
    try:
        for path in paths_of(access, settings.namespaces)[1]:
            async with session(access) as api:
                version = await _list(api, path, rules, readings)
                await _watch(api, path, settings.selector or "", version)
    except Unheard as why:
        if why.reason in {"forbidden", "unauthorized"}:
            seen.refused = why.words
        else:
            seen.trouble = why.words
        return seen
    picture = Pictures(settings).of(readings.values(), lambda _: None)
    seen.pods, seen.sources = len(readings), len(picture.found)
    seen.not_ready = sum(not found.ready for found in picture.found.values())
    seen.remarks = dict(picture.remarks)
    return seen


async def _list(api: Api, path: str, rules: Rules, readings: dict[Key, Reading]) -> str:
    """Its version."""
    query = {"labelSelector": rules.settings.selector or "", "limit": str(PAGE_PODS)}
    while True:
        page = await api.page(path, query)
        for item in page.items or ():
            read = read_item(item)
            if read is not None:
                key = read[0].namespace, read[0].name
                readings[key] = reading_of(key, read[1], rules)
        if not page.metadata.token:
            return page.metadata.resource_version
        query["continue"] = page.metadata.token


async def _watch(api: Api, path: str, selector: str, version: str) -> None:
    """Raises `Unheard` where that is not permitted."""
    query = {
        "labelSelector": selector,
        "watch": "true",
        "resourceVersion": version,
        "timeoutSeconds": str(WATCH_S),
    }
    async with api.watch(path, query, WATCH_S + PATIENCE_S) as batches:
        async for _ in batches:
            pass
