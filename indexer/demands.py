"""What a question with `min_sequence` waits for, and who is woken when it has come. No polling; one event loop.

A sequence is met once every rank that goes by the name has applied it. A name that nobody has yet is not met: engines
on a bound socket appear with their first message, others when a registrar gets to them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from indexer.candidates import of_tenant
from indexer.lookup_view import nothing_entry, unknown_entry
from indexer.model import DEFAULT_TENANT
from schemas.lookup import PodEntry

if TYPE_CHECKING:
    from indexer.index.registry import Registry
    from indexer.index.source import SourceIndex
    from indexer.lookup_view import FleetView
    from schemas.lookup import LookupAnswer, LookupQuery

_NOT_REACHED: Final = float("inf")


class _Watched(Protocol):
    def __call__(self, *, waited_for: bool) -> None: ...


class Unmet(NamedTuple):
    """A demand that is open: the name as the caller gave it, one source of that name (None: nobody has it)."""

    name: str
    source: SourceIndex | None
    sequence: int


def unmet(registry: Registry, query: LookupQuery) -> list[Unmet]:
    """What `query.min_sequence` asks for and is not applied."""
    found: list[Unmet] = []
    for name, sequence in (query.min_sequence or {}).items():
        sources = of_tenant(registry, name, query.tenant or DEFAULT_TENANT)
        if not sources:
            found.append(Unmet(name, None, sequence))
        for source in sources:
            applied = source.facts.sequence
            if applied is None or applied < sequence:
                found.append(Unmet(name, source, sequence))
    return found


def tell_unmet(registry: Registry, query: LookupQuery, answer: LookupAnswer, view: FleetView, now: float) -> None:
    """Say in the answer which demands were not met, also for pods that it does not list otherwise: `deadline`."""
    demands = unmet(registry, query)
    if not demands:
        return
    told = _listed(registry, query, answer)
    named: set[str] = set()
    for name, source, _ in demands:
        key = name if source is None else source.descriptor.pod
        if (query.group == "pod" and key in named) or key in told or (query.limit and len(answer.pods) >= query.limit):
            continue
        named.add(key)
        if source is None:
            answer.pods.append(unknown_entry(name, "deadline"))
        else:
            answer.pods.append(nothing_entry(source, view.prepared(source, now), "deadline", name))
    if answer.state == "exact":
        answer.state = "degraded"


def _listed(registry: Registry, query: LookupQuery, answer: LookupAnswer) -> set[str]:
    """The pods, by their own names, that have an entry saying what keeps them; others are encoded already."""
    told: set[str] = set()
    for entry in answer.pods:
        if isinstance(entry, PodEntry):
            sources = of_tenant(registry, entry.pod, query.tenant or DEFAULT_TENANT)
            told.add(sources[0].descriptor.pod if sources else entry.pod)
    return told


class _Waiter:
    """One question that waits."""

    __slots__ = ("done", "query", "sources")

    def __init__(self, query: LookupQuery) -> None:
        self.query = query
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sources: list[SourceIndex] = []


class SequenceWaits:
    """All questions that wait. `applied` and `reshaped` are to be called when a source, or the set of them, changed.

    `watched` is told whenever the first question comes or the last one leaves, so that a service without any pays
    nothing for each batch.
    """

    def __init__(self, registry: Registry, watched: _Watched) -> None:
        self._registry = registry
        self._watched = watched
        self._waiters: set[_Waiter] = set()
        self._by_source: dict[SourceIndex, dict[_Waiter, int]] = {}
        self._next: dict[SourceIndex, float] = {}
        """The smallest sequence that is waited for, or something below it: until then a batch costs one comparison."""
        self._look_again_due = False

    def __len__(self) -> int:
        return len(self._waiters)

    @property
    def watched_sources(self) -> int:
        """How many sources are waited for."""
        return len(self._by_source)

    async def until_applied(self, query: LookupQuery, timeout_s: float) -> None:
        """Return once everything `query` demands is applied, or the time is over."""
        demands = unmet(self._registry, query)
        if not demands:
            return
        waiter = _Waiter(query)
        self._waiters.add(waiter)
        if len(self._waiters) == 1:
            self._watched(waited_for=True)
        self._enter(waiter, demands)
        try:
            await asyncio.wait([waiter.done], timeout=timeout_s)
        finally:
            self._forget(waiter)
            self._waiters.discard(waiter)
            if not self._waiters:
                self._watched(waited_for=False)

    def applied(self, source: SourceIndex) -> None:
        """A batch of this source may have been applied."""
        sequence = source.facts.sequence
        if sequence is None or sequence < self._next.get(source, _NOT_REACHED):
            return
        waits = self._by_source[source]
        for waiter in [waiter for waiter, wanted in waits.items() if wanted <= sequence]:
            del waits[waiter]
            waiter.sources.remove(source)
            if not waiter.sources:
                self._look(waiter)
        self._note_next(source)

    def reshaped(self) -> None:
        """Sources came or went: names may lead elsewhere now. Looked at once for a whole list of them."""
        if self._waiters and not self._look_again_due:
            self._look_again_due = True
            asyncio.get_running_loop().call_soon(self._look_at_all)

    def _look_at_all(self) -> None:
        self._look_again_due = False
        for waiter in list(self._waiters):
            self._forget(waiter)
            self._look(waiter)

    def _look(self, waiter: _Waiter) -> None:
        """Done, or entered anew: an engine may have restarted while another was waited for."""
        if waiter.done.done():
            return
        demands = unmet(self._registry, waiter.query)
        if demands:
            self._enter(waiter, demands)
        else:
            waiter.done.set_result(None)

    def _enter(self, waiter: _Waiter, demands: list[Unmet]) -> None:
        for _, source, sequence in demands:
            if source is None:
                continue
            waits = self._by_source.setdefault(source, {})
            if waiter not in waits:
                waiter.sources.append(source)
            waits[waiter] = max(sequence, waits.get(waiter, 0))
            self._next[source] = min(sequence, self._next.get(source, _NOT_REACHED))

    def _forget(self, waiter: _Waiter) -> None:
        for source in waiter.sources:
            waits = self._by_source[source]
            del waits[waiter]
            if not waits:
                self._note_next(source)
        waiter.sources.clear()

    def _note_next(self, source: SourceIndex) -> None:
        waits = self._by_source[source]
        if waits:
            self._next[source] = min(waits.values())
        else:
            del self._by_source[source], self._next[source]
