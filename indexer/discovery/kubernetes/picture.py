"""[pure] All pods as they were read, and what their engines answered → one picture of sources.

Of two pods at one address one is a leftover: an address is given anew only when nobody has it. Its object may stand for
a while, as on a node that is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from indexer.discovery.event_endpoints import Endpoints, by_rank
from indexer.discovery.found import REMARKS_MAX, Found, Pending, Picture
from indexer.model import Descriptor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from indexer.discovery.kubernetes.reading import Offer, Reading
    from indexer.model import SourceId
    from indexer.settings.discovery import Kubernetes

Answered = Mapping[int, Endpoints] | Literal["waited for"] | None
"""What an engine said of itself: by rank. None: nothing, and it is not waited for."""

PORT_MAX: Final = 65_535


class Pictures:
    """Makes one after the other; what did not change of a pod is not made again."""

    def __init__(self, settings: Kubernetes) -> None:
        self._settings = settings
        self._made: dict[tuple[str, str], _Made] = {}

    def of(self, readings: Iterable[Reading], answered: Callable[[Offer], Answered]) -> Picture:
        """In the order of pods' names, whatever the order of readings."""
        ordered = sorted(readings, key=lambda reading: reading.key)
        leftovers = _leftovers(ordered)
        found: dict[SourceId, Found] = {}
        remarks: dict[str, str] = {}
        pending: dict[str, Pending] = {}
        before, self._made = self._made, {}
        for reading in ordered:
            made = self._made[reading.key] = self._sources(reading, answered, before.get(reading.key))
            told = made.remarks
            if reading.key in leftovers:
                told = (*told, f"a leftover: pod {leftovers[reading.key]} has its address now; no source")
            else:
                found.update(made.found)
                if made.answer == "waited for" and reading.offer is not None:
                    pending[reading.offer.pod] = Pending(reading.offer.ready, reading.offer.life)
            if told and len(remarks) < REMARKS_MAX:
                remarks["/".join(reading.key)] = "; ".join(told)
        return Picture(found, remarks, pending)

    def _sources(self, reading: Reading, answered: Callable[[Offer], Answered], before: _Made | None) -> _Made:
        offer = reading.offer
        answer = None if offer is None or not offer.must_ask else answered(offer)
        if before is not None and before.reading is reading and before.answer is answer:
            return before
        if offer is None:
            return _Made(reading, answer, {}, reading.remarks)
        sources, remark = _sources(offer, answer, self._settings)
        remarks = (*reading.remarks, remark) if remark else reading.remarks
        return _Made(reading, answer, {each.descriptor.id: each for each in sources}, remarks)


class _Made(NamedTuple):
    reading: Reading
    answer: Answered
    found: Mapping[SourceId, Found]
    remarks: tuple[str, ...]


def _leftovers(readings: Iterable[Reading]) -> dict[tuple[str, str], str]:
    """Pods whose address, or name, is another's now, and whose."""
    latest: dict[str, tuple[tuple[bool, bool, str, str], Reading]] = {}
    out: dict[tuple[str, str], str] = {}
    for reading in readings:
        offer = reading.offer
        if offer is None:
            continue
        place = offer.asked_at if reading.shares_ip else offer.host
        age = (offer.why != "pod is terminating", not reading.shares_ip or offer.ready, offer.started_at, reading.uid)
        if place not in latest:
            latest[place] = (age, reading)
            continue
        other = latest[place][1]
        first, last = (other, reading) if age > latest[place][0] else (reading, other)
        out[first.key] = "/".join(last.key)
        if last is reading:
            latest[place] = (age, reading)
    return out


def _sources(offer: Offer, answered: Answered, settings: Kubernetes) -> tuple[list[Found], str]:
    """Those of a pod, and what is to be said of it."""
    if offer.silent:
        ranks = offer.ranks or (0,) if offer.may_be_silent else ()
        return [_found(offer, rank, None, None) for rank in ranks], ""
    if offer.must_ask and answered == "waited for":
        return [], "its engine is being asked where it publishes; no source yet"
    told = answered if offer.must_ask and isinstance(answered, dict) else {}
    if told and (offer.base is None or offer.base[0] == 0):
        wanted = offer.ranks if offer.ranks is not None and offer.tells_ranks else tuple(sorted(told))
        return [_found(offer, rank, *told[rank]) for rank in wanted if rank in told], ""
    base = offer.base
    if base is None or base[0] == 0:
        if settings.events_port is None:
            return [], "where it publishes is not known: kvindexer.io/events-port says it; no source"
        base = (settings.events_port, settings.replay_port)
    ranks = offer.ranks if offer.ranks is not None else tuple(sorted(told)) or tuple(range(settings.ranks))
    usable = [rank for rank in ranks if base[0] + rank <= PORT_MAX and (base[1] or 0) + rank <= PORT_MAX]
    said = "" if len(usable) == len(ranks) else "the ports of some of its ranks are beyond 65535: no source of those"
    return [_found(offer, rank, *endpoints) for rank, endpoints in by_rank(offer.host, *base, usable).items()], said


def _found(offer: Offer, rank: int, endpoint: str | None, replay: str | None) -> Found:
    described = Descriptor(
        pod=offer.pod,
        dp_rank=rank,
        endpoint=endpoint,
        replay_endpoint=replay,
        model=offer.model,
        tenant=offer.tenant,
        role=offer.role,
        address=offer.address,
        aliases=offer.aliases,
        labels=offer.labels,
        engine=offer.engine,
        origin="discovery",
    )
    return Found(descriptor=described, ready=offer.ready, life=offer.life, why=offer.why, block_size=offer.block_size)
