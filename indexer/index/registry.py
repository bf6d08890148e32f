"""Which sources exist, by which names, and which of them a question is about. Pure.

A pod goes by its name, its address and its aliases; `http://`, a trailing `/` and the letter case of the host are
ignored. Model and tenant select sources; they are not part of any hash, so a model learnt late or an alias changes
nothing stored.
"""

from __future__ import annotations

import difflib
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from indexer.errors import LimitReachedError, SourceConflictError, SourceUnknownError
from indexer.index.served import LearntNames

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from indexer.index.served import Served
    from indexer.index.source import SourceIndex
    from indexer.model import Descriptor, SourceId


_REDESCRIBED: Final = ("model", "lora_name", "role", "address", "aliases", "labels", "blocks_total")
"""Of a descriptor: what is part of no hash, and of no connection."""
NAME_COMPARED: Final = 128
NAMES_COMPARED: Final = 256
"""Characters and names looked at for the nearest name: 20 us a name."""


class Resolved(NamedTuple):
    """What a `model` in a question means. `sources` is empty and `nearest` may be set where it is unknown.

    `elsewhere`: sources of it are registered, and this replica does not follow them.
    """

    model: str | None
    lora_name: str | None
    resolved_by: str | None
    sources: tuple[SourceIndex, ...]
    nearest: str | None = None
    elsewhere: bool = False

    @property
    def known(self) -> bool:
        """Whether the name means anything here."""
        return self.resolved_by is not None or self.model is None


def normal_name(name: str) -> str:
    """One spelling for all ways to write the same host: `http://Node-1:8000/` and `node-1:8000`."""
    for scheme in ("http://", "https://"):
        if name[: len(scheme)].lower() == scheme:
            name = name[len(scheme) :]
            break
    host, slash, path = name.rstrip("/").partition("/")
    return host.lower() + slash + path


def is_redescribed(known: Descriptor, new: Descriptor) -> bool:
    """Whether they differ, and in nothing that what is held depends on, nor where its events come from."""
    kept = {field: getattr(known, field) for field in _REDESCRIBED}
    return known != new and known == msgspec.structs.replace(new, **kept)


def taken(field: str) -> SourceConflictError:
    """For a name that another tenant's source has. Which one, and whose, is not this one's to know."""
    return SourceConflictError(field, "the name is taken by a source of another tenant")


class NameBook:
    """Which pod goes by which name. Names are unique over all tenants."""

    def __init__(self) -> None:
        self._holders: dict[str, dict[SourceId, None]] = {}
        self._tenants: dict[str, str] = {}

    def check(self, new: Descriptor) -> None:
        """Raise where a name of `new` belongs to another pod, or its pod to another tenant."""
        for field, name in _names(new):
            owner = next(iter(self._holders.get(normal_name(name), ())), None)
            if owner is not None and self._tenants.get(owner.pod) != new.tenant:
                raise taken(field)
            if owner is not None and owner.pod != new.pod:
                raise SourceConflictError(field, f"{name!r} already names pod {owner.pod!r}")

    def enter(self, descriptor: Descriptor) -> None:
        """Note the names of a source that `check` let pass."""
        self._tenants[descriptor.pod] = descriptor.tenant
        for _, name in _names(descriptor):
            self._holders.setdefault(normal_name(name), {})[descriptor.id] = None

    def leave(self, descriptor: Descriptor) -> None:
        """Forget them."""
        for _, name in _names(descriptor):
            key = normal_name(name)
            holders = self._holders.get(key)
            if holders is not None:
                holders.pop(descriptor.id, None)
                if not holders:
                    del self._holders[key]
        if normal_name(descriptor.pod) not in self._holders:
            self._tenants.pop(descriptor.pod, None)

    def holders(self, name: str) -> list[SourceId]:
        """The sources that go by this name, in the order of their ranks."""
        return sorted(self._holders.get(normal_name(name), ()))


class Registry:
    """All registered sources. `version` grows whenever candidates must be chosen anew."""

    def __init__(self, *, aliases: Mapping[str, str] | None = None, sources_max: int = 4_096) -> None:
        self.sources: dict[SourceId, SourceIndex] = {}
        self.version = 0
        self._model_aliases = dict(aliases or {})
        self._names = NameBook()
        self._at: dict[str, dict[SourceId, None]] = {}
        self._modelled: Counter[str] = Counter()
        self._models: Counter[tuple[str, str]] = Counter()
        """Sources of each tenant that have a model, and by which."""
        self._learnt = LearntNames()
        self._told: dict[SourceId, tuple[str, str, tuple[str, ...]]] = {}
        """What each source counts for in those three: its tenant, its model, and further names of it."""
        self._elsewhere: Counter[tuple[str, str | None]] = Counter()
        """By tenant and model, sources that are registered and not followed by this replica."""
        self._sources_max = sources_max

    def check(self, new: Descriptor) -> None:
        """Raise where `new` cannot stand beside the others.

        Its names may belong to another pod, its pod to another tenant, or there are too many sources.
        """
        if new.id not in self.sources and len(self.sources) >= self._sources_max:
            raise LimitReachedError("limits.sources", self._sources_max)
        self._names.check(new)

    def check_all(self, leaving: Iterable[SourceId], coming: Sequence[Descriptor]) -> None:
        """The same for a whole exchange, before anything of it is done."""
        gone = set(leaving)
        names = NameBook()
        stay = [source.descriptor for key, source in self.sources.items() if key not in gone]
        if len(stay) + len(coming) > self._sources_max:
            raise LimitReachedError("limits.sources", self._sources_max)
        for descriptor in stay:
            names.enter(descriptor)
        for descriptor in coming:
            names.check(descriptor)
            names.enter(descriptor)

    def add(self, source: SourceIndex) -> None:
        """Enter a source that `check` let pass; replaces one of the same identity."""
        self.remove(source.descriptor.id)
        self.sources[source.descriptor.id] = source
        self._names.enter(source.descriptor)
        if source.descriptor.endpoint is not None:
            self._at.setdefault(_place(source.descriptor.endpoint), {})[source.descriptor.id] = None
        self._count(source)
        self.version += 1

    def remove(self, source_id: SourceId) -> SourceIndex | None:
        """Take a source out; None when it is not there."""
        source = self.sources.pop(source_id, None)
        if source is not None:
            self._names.leave(source.descriptor)
            if source.descriptor.endpoint is not None:
                place = _place(source.descriptor.endpoint)
                self._at[place].pop(source_id)
                if not self._at[place]:
                    del self._at[place]
            self._uncount(source_id)
            self.version += 1
        return source

    def learn(self, source: SourceIndex, served: Served) -> None:
        """What the engine of a registered source says it serves. Equal words change nothing."""
        if source.serves == served:
            return
        source.learn_served(served)
        if self.sources.get(source.descriptor.id) is source:
            self._uncount(source.descriptor.id)
            self._count(source)
            self.version += 1

    def _count(self, source: SourceIndex) -> None:
        model, tenant = source.model, source.descriptor.tenant
        if model is None:
            return
        served = source.serves
        names = () if served is None else tuple(name for name in served.names if name != model)
        self._told[source.descriptor.id] = tenant, model, names
        self._modelled[tenant] += 1
        self._models[tenant, model] += 1
        self._learnt.enter(tenant, source.descriptor.id, model, names)

    def _uncount(self, source_id: SourceId) -> None:
        told = self._told.pop(source_id, None)
        if told is None:
            return
        tenant, model, names = told
        self._modelled[tenant] -= 1
        self._models[tenant, model] -= 1
        if not self._models[tenant, model]:
            del self._models[tenant, model]
        if not self._modelled[tenant]:
            del self._modelled[tenant]
        self._learnt.leave(tenant, source_id, names)

    def is_alias(self, name: str, model: str) -> bool:
        """Whether `models.aliases` says that this name is that model."""
        return self._model_aliases.get(name) == model

    def means(self, name: str, tenant: str) -> str | None:
        """The model that goes by this name, as a source's model or another name of one; None: none does."""
        if self._models[tenant, name]:
            return name
        return self._model_aliases.get(name) or self._learnt.meaning(tenant, name)

    def neighbours(self, descriptor: Descriptor) -> tuple[SourceId, int] | None:
        """The first other source whose events come from the same endpoint, and how many there are; None: nobody.

        Of the same tenant: what is told of a source is told to its tenant.
        """
        if descriptor.endpoint is None:
            return None
        there = [
            other
            for other in self._at.get(_place(descriptor.endpoint), {})
            if other != descriptor.id and self.sources[other].descriptor.tenant == descriptor.tenant
        ]
        return (there[0], len(there)) if there else None

    def publishes_at(self, endpoint: str | None, tenant: str) -> SourceId | None:
        """A source of that tenant whose events come from there."""
        there = () if endpoint is None else self._at.get(_place(endpoint), ())
        return next((key for key in there if self.sources[key].descriptor.tenant == tenant), None)

    def note_elsewhere(self, tenant: str, model: str | None, more: int) -> None:
        """So many more sources of that model are registered, and not followed by this replica."""
        self._elsewhere[tenant, model] += more
        if not self._elsewhere[tenant, model]:
            del self._elsewhere[tenant, model]
        self.version += 1

    def follows_all(self, tenant: str) -> bool:
        """Whether this replica follows every source of the tenant that is registered."""
        return not any(of == tenant for of, _ in self._elsewhere)

    def has_models(self, tenant: str) -> bool:
        """Whether any source of the tenant has a model: those without answer for none then."""
        return self._modelled[tenant] > 0

    def named(self, name: str, dp_rank: int | None = None, tenant: str | None = None) -> list[SourceIndex]:
        """The sources that go by this name, by rank; raises where there is none. `tenant`: of that one alone."""
        found = [self.sources[key] for key in self._names.holders(name) if dp_rank is None or key.dp_rank == dp_rank]
        if tenant is not None:
            found = [source for source in found if source.descriptor.tenant == tenant]
        if not found:
            raise SourceUnknownError(name, dp_rank)
        return found

    def resolve(self, model: str | None, tenant: str) -> Resolved:
        """The sources a question names by its model: a source's model, then an alias, then an adapter."""
        pool = tuple(source for source in self.sources.values() if source.descriptor.tenant == tenant)
        if model is None:
            return Resolved(None, None, None, pool)
        models = {source.model for source in pool} - {None}
        if model in models:
            return Resolved(model, None, "model", _with_model(pool, model))
        target = self._model_aliases.get(model) or self._learnt.meaning(tenant, model)
        if (tenant, model) in self._elsewhere or (target is not None and (tenant, target) in self._elsewhere):
            return Resolved(model, None, None, (), elsewhere=True)
        if target is not None and (target in models or not models):
            return Resolved(target, None, "alias", _with_model(pool, target) if models else pool)
        by_adapter = self._resolve_adapter(target or model, pool)
        if by_adapter is not None:
            return by_adapter
        if not models and pool:
            return Resolved(model, None, "fleet", pool)
        aliases = (alias for alias, meant in self._model_aliases.items() if meant in models or not models)
        learnt = self._learnt.known(tenant, NAMES_COMPARED)
        known = {*filter(None, models), *aliases, *learnt, *(name for source in pool for name in source.adapters)}
        nearest = difflib.get_close_matches(model[:NAME_COMPARED], sorted(known)[:NAMES_COMPARED], n=1)
        return Resolved(model, None, None, (), nearest[0] if nearest else None)

    def _resolve_adapter(self, name: str, pool: tuple[SourceIndex, ...]) -> Resolved | None:
        owners = [source for source in pool if source.has_adapter(name)]
        if not owners:
            return None
        bases = sorted({source.model for source in owners} - {None}, key=str)
        if not bases:
            return Resolved(None, name, "adapter", pool if not any(s.model for s in pool) else tuple(owners))
        return Resolved(bases[0], name, "adapter", _with_model(pool, str(bases[0])))


def _place(endpoint: str) -> str:
    """One spelling for the same host and port. A path stays as it is."""
    if endpoint.startswith("tcp://"):
        return endpoint.lower().replace("tcp://localhost:", "tcp://127.0.0.1:")
    return endpoint


def _with_model(pool: Iterable[SourceIndex], model: str) -> tuple[SourceIndex, ...]:
    return tuple(source for source in pool if source.model == model)


def _names(descriptor: Descriptor) -> list[tuple[str, str]]:
    """Every name of a source with the field it stands in."""
    names = [("pod", descriptor.pod)]
    if descriptor.address is not None:
        names.append(("address", descriptor.address))
    return names + [("aliases", alias) for alias in descriptor.aliases]
