"""From what stands in the registry, and what discoverers tell, to the steps between the two. Pure.

The steps stand in an order in which a name never belongs to two pods, if they are taken one by one: who gives a name up
comes before who gets it, and where two exchange names one of them goes without for a moment. A step that only takes
away, as a source that is gone and not scored any more, comes first of all.

What is not of origin `discovery` is never touched: it is there, and a discovered source of its name is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Final, Literal, NamedTuple

import msgspec

from indexer.discovery.found import REMARKS_MAX, WHY_CHARACTERS_MAX, Found, Pending, Picture
from indexer.errors import SourceConflictError
from indexer.index.registry import NameBook, is_redescribed, normal_name
from indexer.model import Descriptor, SourceId
from indexer.store.registered import Registered

GONE: Final = "nobody tells of it any more"
"""Why a source is not ready that is gone from the picture, until it is removed."""

PENDING: Final = "its engine is being asked where it publishes"
"""The same of one whose pod is there, and not ready, or with another process."""

How = Literal["edit", "put", "remove"]


class Step(NamedTuple):
    """One change of one source. `stands`: what it is based on, None where there is nothing; `wanted`: None to remove.

    `edit` keeps what the source holds; `put` begins a generation, and so forgets what stands in its place.
    """

    how: How
    source: SourceId
    stands: Registered | None
    wanted: Registered | None

    @property
    def forgets(self) -> bool:
        """Whether what is held of a source is forgotten."""
        return self.how == "remove" or (self.how == "put" and self.stands is not None)


class Wanted(NamedTuple):
    """What all discoverers together tell. `remarks` by pod, or by source where that is one."""

    found: Mapping[SourceId, Found]
    remarks: Mapping[str, str]
    pending: Mapping[str, Pending]
    whole: bool
    """Whether every discoverer has told: else who is in no picture may be in one that is still to come."""


def together(told: Sequence[tuple[str, Picture | None]]) -> Wanted:
    """The pictures of discoverers in their order: who is in two of them is as the first tells."""
    found: dict[SourceId, Found] = {}
    whose: dict[SourceId, str] = {}
    remarks: dict[str, str] = {}
    for name, picture in told:
        if picture is None:
            continue
        for pod, remark in picture.remarks.items():
            _remark(remarks, pod, remark)
        for source, each in picture.found.items():
            if source in found:
                _remark(remarks, str(source), f"{name} tells of it, too: it is as {whose[source]} says")
                continue
            found[source], whose[source] = each, name
    pending = {pod: each for _, picture in reversed(told) if picture for pod, each in picture.pending.items()}
    return Wanted(found, remarks, pending, all(picture is not None for _, picture in told))


class Plan(NamedTuple):
    """What is to be done, in this order, and what could not be as it was told."""

    steps: list[Step]
    remarks: dict[str, str]


def plan(standing: Mapping[SourceId, Registered], wanted: Wanted, *, sources_max: int) -> Generator[None, None, Plan]:
    """The steps from what stands to what is wanted; none where it is so already.

    Runs to the end in pieces of one source each: of a thousand it takes some 50 ms.
    """
    remarks = dict(wanted.remarks)
    others = [each.descriptor for each in standing.values() if each.descriptor.origin != "discovery"]
    ours = {key: each for key, each in standing.items() if each.descriptor.origin == "discovery"}
    found = yield from _beside(others, wanted.found, _Room(sources_max, len(others), ours), remarks)
    ends: dict[SourceId, Registered] = {}
    for key, told in found.items():
        ends[key] = _registered(told, ours.get(key))
        yield
    if not wanted.whole:
        ends = {key: each for key, each in ours.items() if key not in ends} | ends
    ends = _pending(ours, wanted.pending) | ends
    gone = {key: each for key, each in ours.items() if key not in ends}
    ends |= {key: _gone(each) for key, each in gone.items()}
    changes = _Changes(ours, ends)
    yield from changes.note_names([*others, *(each.descriptor for each in ours.values())])
    yield from changes.take()
    removals = [Step("remove", key, changes.now[key], None) for key in sorted(gone)]
    for key in changes.waiting:
        _remark(remarks, str(key), "it waits for a name that a source has which is about to be removed")
    return Plan(changes.steps + removals, remarks)


# -- who is wanted ----------------------------------------------------------------------------------------------------


class _Room:
    """What `limits.sources` leaves. Who is gone takes its place until it is removed, and who stands keeps its own."""

    def __init__(self, sources_max: int, others: int, ours: Collection[SourceId]) -> None:
        self._in_all = sources_max - others
        self._for_new = self._in_all - len(ours)
        self._ours = ours

    def has_place_for(self, source: SourceId) -> bool:
        """Whether some is left."""
        return self._in_all > 0 and (source in self._ours or self._for_new > 0)

    def take(self, source: SourceId) -> None:
        """There is less."""
        self._in_all -= 1
        self._for_new -= source not in self._ours


def _beside(
    others: Sequence[Descriptor], told: Mapping[SourceId, Found], room: _Room, remarks: dict[str, str]
) -> Generator[None, None, dict[SourceId, Found]]:
    """Those that can stand beside sources of other origins, and beside each other, under the names that they can have.

    A further name that two pods want goes to neither: whoever calls by it would mean either.
    """
    names = NameBook()
    for descriptor in others:
        names.enter(descriptor)
        yield
    fixed = {descriptor.id: descriptor for descriptor in others}
    shared = yield from _shared_names(told.values())
    kept: dict[SourceId, Found] = {}
    for key in sorted(told):
        yield
        each = told[key]
        if key in fixed:
            _remark(remarks, str(key), f"it is registered already (origin {fixed[key].origin}), and stays so")
            continue
        if not room.has_place_for(key):
            _remark(remarks, str(key), "limits.sources is reached: it is left out")
            continue
        own = _with_own_names(each.descriptor, names, shared, remarks)
        if own is not None:
            room.take(key)
            names.enter(own)
            kept[key] = msgspec.structs.replace(each, descriptor=own)
    return kept


def _with_own_names(
    descriptor: Descriptor, names: NameBook, shared: frozenset[str], remarks: dict[str, str]
) -> Descriptor | None:
    """Without further names that are another's; None where its first name is, or its address."""
    try:
        names.check(msgspec.structs.replace(descriptor, aliases=()))
    except SourceConflictError as conflict:
        _remark(remarks, str(descriptor.id), f"it is left out: {conflict}")
        return None
    own: list[str] = []
    for alias in descriptor.aliases:
        try:
            names.check(msgspec.structs.replace(descriptor, aliases=(alias,)))
        except SourceConflictError as conflict:
            _remark(remarks, str(descriptor.id), f"without a name: {conflict}")
            continue
        if normal_name(alias) in shared:
            _remark(remarks, str(descriptor.id), f"without the name {alias!r}, which other pods have, too")
            continue
        own.append(alias)
    return msgspec.structs.replace(descriptor, aliases=tuple(own), origin="discovery")


def _shared_names(told: Iterable[Found]) -> Generator[None, None, frozenset[str]]:
    """Names of which more than one pod says that they are its own."""
    holders: dict[str, set[str]] = {}
    for each in told:
        for name in _names(each.descriptor):
            holders.setdefault(name, set()).add(each.descriptor.pod)
        yield
    return frozenset(name for name, pods in holders.items() if len(pods) > 1)


def _registered(found: Found, stands: Registered | None) -> Registered:
    """A cordon stays, and so does a life of which nobody tells any more."""
    cordoned, life = (False, "") if stands is None else (stands.cordoned, stands.life)
    why = "" if found.ready else found.why[:WHY_CHARACTERS_MAX]
    return Registered(found.descriptor, cordoned, found.ready, found.life or life, why)


def _pending(ours: Mapping[SourceId, Registered], pods: Mapping[str, Pending]) -> dict[SourceId, Registered]:
    """Whose pods are there: they stay, and are not scored where another process lives, wherever that publishes."""
    held: dict[SourceId, Registered] = {}
    for key, stands in ours.items():
        pod = pods.get(key.pod)
        if pod is None:
            continue
        is_same = pod.life in {"", stands.life}
        held[key] = msgspec.structs.replace(
            stands,
            ready=pod.ready and is_same,
            why="" if pod.ready and is_same else PENDING,
        )
    return held


def _gone(stands: Registered) -> Registered:
    """Not scored at once; it may come back before it is removed."""
    return msgspec.structs.replace(stands, ready=False, why=GONE)


# -- the order of changes ---------------------------------------------------------------------------------------------


class _Changes:
    """Who stands, changed one by one into who shall; `waiting`: who cannot before another is removed."""

    def __init__(self, ours: Mapping[SourceId, Registered], ends: Mapping[SourceId, Registered]) -> None:
        self.steps: list[Step] = []
        self._book = NameBook()
        self.now: dict[SourceId, Registered] = dict(ours)
        """Of ours, as they stand behind the steps."""
        self._ends = ends
        pending = sorted(key for key, end in ends.items() if self.now.get(key) != end)
        self.waiting = sorted(pending, key=lambda key: ends[key].ready)  # who is not ready any more first

    def note_names(self, standing: Iterable[Descriptor]) -> Generator[None, None, None]:
        """Who goes by which before anything is changed; where nothing is to be, nobody asks."""
        for descriptor in standing if self.waiting else ():
            self._book.enter(descriptor)
            yield

    def take(self) -> Generator[None, None, None]:
        """All that can be done."""
        while self.waiting:
            left = []
            for key in self.waiting:
                if not self._take_one(key):
                    left.append(key)
                yield
            if len(left) == len(self.waiting) and not (
                self._leave_tenants(left) or (yield from self._give_up_names(left))
            ):
                return
            self.waiting = left

    def _take_one(self, key: SourceId) -> bool:
        """False where a name of it is another's yet."""
        stands, end = self.now.get(key), self._ends[key]
        if stands is not None:
            self._book.leave(stands.descriptor)
        try:
            self._book.check(end.descriptor)
        except SourceConflictError:
            if stands is not None:
                self._book.enter(stands.descriptor)
            return False
        self._book.enter(end.descriptor)
        self._change(key, end)
        return True

    def _change(self, key: SourceId, end: Registered) -> None:
        stands = self.now.get(key)
        same = stands is not None and (
            stands.descriptor == end.descriptor or is_redescribed(stands.descriptor, end.descriptor)
        )
        self.steps.append(Step("edit" if same else "put", key, stands, end))
        self.now[key] = end

    def _leave_tenants(self, blocked: Sequence[SourceId]) -> bool:
        """Remove those of another tenant than they shall be; False where there are none.

        All ranks of a pod are one tenant's, so that none of several could change alone.
        """
        moving = [
            key
            for key in blocked
            if key in self.now and self.now[key].descriptor.tenant != self._ends[key].descriptor.tenant
        ]
        for key in moving:
            stands = self.now.pop(key)
            self._book.leave(stands.descriptor)
            self.steps.append(Step("remove", key, stands, None))
        return bool(moving)

    def _give_up_names(self, blocked: Sequence[SourceId]) -> Generator[None, None, bool]:
        """Have sources go without further names that another shall have; False where none of them has one.

        Of two that exchange names, and of those that are gone and not removed yet.
        """
        wanted = Counter(name for key in blocked for name in set(_names(self._ends[key].descriptor)))
        kept, given_up = set(blocked), False
        for key, stands in sorted(self.now.items(), key=itemgetter(0)):
            yield
            before = stands.descriptor
            own = set(_names(self._ends[key].descriptor)) if key in kept else set()
            aliases = tuple(
                each for each in before.aliases if not wanted[normal_name(each)] or normal_name(each) in own
            )
            taken = before.address is not None and wanted[normal_name(before.address)]
            address = None if taken and normal_name(before.address or "") not in own else before.address
            after = msgspec.structs.replace(before, aliases=aliases, address=address)
            if after != before:
                self._book.leave(before)
                self._book.enter(after)
                self._change(key, msgspec.structs.replace(stands, descriptor=after))
                given_up = True
        return given_up


def _names(descriptor: Descriptor) -> list[str]:
    """As a registry compares them."""
    address = () if descriptor.address is None else (descriptor.address,)
    return [normal_name(name) for name in (descriptor.pod, *address, *descriptor.aliases)]


def _remark(remarks: dict[str, str], about: str, text: str) -> None:
    """The first of each, and not too many."""
    if len(remarks) < REMARKS_MAX:
        remarks.setdefault(about, text[:WHY_CHARACTERS_MAX])
