"""What is known of all engines' loads in this process: readings of metrics, and receipts beside them. Pure.

A reading counts while it is young; beside it count the requests sent since. Where no engine that a question is about
has a young one, the receipts are all that is known, and an engine without one had nothing sent to it. Where some have,
an engine that has none is unknown: few receipts must not make one look idle that does not even tell. Many, more than
the others' mean, count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.loads.known import KnownLoad, LoadView
from indexer.loads.receipts import Receipts
from indexer.model import DEFAULT_TENANT

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from indexer.loads.engine_metrics import EngineLoad
    from indexer.model import SourceId

YOUNG_S: Final = 5.0
"""The age at which a reading no longer counts, or three intervals where these are longer."""
AT_ONCE: Final = 256
"""Sources that are looked at in one step."""


class Reading(NamedTuple):
    """What a source's metrics said, as they were at that time of our clock."""

    load: EngineLoad
    at: float


class LoadBoard:
    """One a process; a `Loads`. `interval_s`: between two readings of an engine; None: nobody reads any."""

    def __init__(self, reached: Callable[[str], None], *, interval_s: float | None) -> None:
        self.young_s = max(YOUNG_S, 3 * (interval_s or 0.0))
        self.readings: dict[SourceId, Reading] = {}
        self.receipts = Receipts(reached)

    # -- what is asked ------------------------------------------------------------------------------------------------

    def view(self, sources: Sequence[SourceId], now: float) -> LoadView:
        """Of these."""
        readings, unseen, least = self.readings, self.receipts.unseen, now - self.young_s
        requests: dict[SourceId, float] = {}
        usage: dict[SourceId, float] = {}
        oldest = now
        for source in sources:
            reading = readings.get(source)
            if reading is not None and reading.at >= least:
                load = reading.load
                requests[source] = load.running + load.waiting + unseen(source)
                oldest = min(oldest, reading.at)
                if load.kv_usage is not None:
                    usage[source] = load.kv_usage
        if requests:
            if len(requests) < len(sources):
                self._add_untold(requests, sources)
            return LoadView("metrics", now - oldest, requests, usage)
        counts = {source: float(self.receipts.open(source)) for source in sources}
        return LoadView("receipts", None, counts) if any(counts.values()) else LoadView("none", None, {})

    def _add_untold(self, requests: dict[SourceId, float], sources: Sequence[SourceId]) -> None:
        """Those of which no metrics tell, where more was sent to one than the others' mean: so busy it is at least."""
        mean = sum(requests.values()) / len(requests)
        untold = {source: float(self.receipts.open(source)) for source in sources if source not in requests}
        requests.update((source, count) for source, count in untold.items() if count > mean)

    def known(self, source: SourceId, now: float) -> KnownLoad | None:
        """Of one source, whatever its age; None where its metrics were never read."""
        reading = self.readings.get(source)
        if reading is None:
            return None
        return KnownLoad(*reading.load, age_s=max(0.0, now - reading.at), unseen=self.receipts.unseen(source))

    def numbers(self, source: SourceId, now: float) -> dict[str, float]:
        """The same as numbers by their names: what is known of one source and counts."""
        reading, numbers = self.readings.get(source), {"unseen": float(self.receipts.unseen(source))}
        if reading is not None and now - reading.at <= self.young_s:
            return {"running": reading.load.running, "waiting": reading.load.waiting, **numbers}
        return numbers if numbers["unseen"] else {}

    def young(self, sources: Sequence[SourceId], now: float) -> Iterator[tuple[SourceId, Reading]]:
        """Readings of these that count."""
        for source in sources:
            reading = self.readings.get(source)
            if reading is not None and now - reading.at <= self.young_s:
                yield source, reading

    # -- what is told -------------------------------------------------------------------------------------------------

    def sent(self, source: SourceId, request_id: str, tenant: str | None, now: float) -> None:
        """A request goes to that source. Told again, it changes nothing; told of another source, the newest counts."""
        self.receipts.note(source, ((tenant or DEFAULT_TENANT, request_id),), now)

    def routed(self, source: SourceId, request_ids: Sequence[str], tenant: str, now: float) -> None:
        """The same by all the names that the request goes by; none where it has no name."""
        self.receipts.note(source, tuple(dict.fromkeys((tenant, each) for each in request_ids)), now)

    def ended(self, request_id: str, tenant: str | None) -> None:
        """It is over, as far as anybody told."""
        self.receipts.ended((tenant or DEFAULT_TENANT, request_id))

    def read(self, source: SourceId, load: EngineLoad, at: float) -> None:
        """Its metrics said so, as they were at that time. What is older than what is known changes nothing."""
        before = self.readings.get(source)
        if before is None or at >= before.at:
            self.readings[source] = Reading(load, at)
            self.receipts.read(source, at)

    # -- housekeeping -------------------------------------------------------------------------------------------------

    def look(self, known: Mapping[SourceId, object]) -> Generator[None, None, None]:
        """Once a second: what is kept of sources that are gone goes. Between its steps others may run."""
        for nth, source in enumerate(list(self.readings)):
            if source not in known:
                self.readings.pop(source, None)
            if nth % AT_ONCE == AT_ONCE - 1:
                yield
        self.receipts.forget_others(known)

    def tidy(self, now: float) -> bool:
        """One slice; True while there is more to do."""
        return self.receipts.tidy(now)
