"""Sources as they are registered, and as a service that follows them tells. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from indexer.doctor.checks import Finding, found, found_if
from indexer.doctor.places import host_and_port, is_every_interface, is_loopback, one_spelling

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from indexer.doctor.facts import Engine

_TOLD_ALREADY: Final = ("no replay endpoint", "capacity unknown", "its endpoint is also", "no model")
"""Beginnings of a service's remarks on what checks of their own tell."""
_NOT_SCORED: Final = frozenset({"stale", "down"})
_SETTLED: Final = ("live", "exact")


def judge_sources(engines: Sequence[Engine], *, bound: bool = False) -> Iterator[Finding]:
    """What registrations say by themselves. `bound`: engines may connect and come by their topics."""
    if not engines:
        yield found_if(not bound, "sources.any", "warning", "none is registered")
        return
    yield found("sources.any", "ok", f"{len(engines)} registered")
    yield from _models(engines)
    yield from _names(engines)
    yield from _forms(engines)
    yield from _shared(engines)
    for engine in engines:
        if engine.announces_nothing:
            continue
        if engine.endpoint is not None:
            yield found_if(engine.replay_endpoint is None, "sources.replay", "warning", "", engine.name)
        yield _capacity(engine)


def judge_followed(models: Sequence[str] | None, engines: Sequence[Engine]) -> Iterator[Finding]:
    """Of a service that follows sources of these models alone. None: it follows all."""
    known = Counter(engine.model for engine in engines)
    for model in models or ():
        yield found_if(not known[model], "sources.followed", "warning", f"{known[model]} sources", model)


def judge_states(engines: Sequence[Engine], unhealed: Mapping[str, int]) -> Iterator[Finding]:
    """What the service that follows them says of each."""
    for engine in engines:
        if engine.state is None:
            continue
        yield _state(engine)
        lost = unhealed.get(engine.name, engine.counters.get("gaps", 0))
        yield found_if(lost > 0, "sources.losses", "warning", f"{lost} gaps not healed", engine.name)
        remarks = [remark for remark in engine.warnings if not remark.startswith(_TOLD_ALREADY)]
        yield found_if(remarks, "sources.remarks", "warning", "; ".join(remarks), engine.name)


def _state(engine: Engine) -> Finding:
    seen = f"{engine.state}, bound {engine.bound}" + (f": {engine.why}" if engine.why else "")
    if engine.cordoned:
        return found("sources.state", "warning", f"cordoned: {seen}", engine.name)
    if not engine.ready:
        return found("sources.state", "warning", seen, engine.name)
    if engine.state in _NOT_SCORED:
        return found("sources.state", "problem", seen, engine.name)
    settled = (engine.state, engine.bound) == _SETTLED or (engine.announces_nothing and engine.state == "live")
    return found_if(not settled, "sources.state", "warning", seen, engine.name)


def _models(engines: Sequence[Engine]) -> Iterator[Finding]:
    """By tenant: a source without a model answers for all while none of the tenant's has one."""
    by_tenant: dict[str, list[Engine]] = defaultdict(list)
    for engine in engines:
        by_tenant[engine.tenant].append(engine)
    for tenant in by_tenant.values():
        models = sorted({engine.model for engine in tenant if engine.model is not None})
        for engine in tenant:
            if engine.model is not None:
                yield found("sources.model", "ok", engine.model, engine.name)
            elif models:
                yield found("sources.model", "problem", f"none; others have {_some(models)}", engine.name)
            else:
                yield found("sources.model", "warning", "none", engine.name)


def _names(engines: Sequence[Engine]) -> Iterator[Finding]:
    for engine in engines:
        others = engine.address is not None or engine.aliases
        bare = not others and host_and_port(engine.pod.removeprefix("http://").rstrip("/")) is None
        yield found_if(bare, "sources.names", "unknown", "", engine.name)


def _forms(engines: Sequence[Engine]) -> Iterator[Finding]:
    """Loopback is right where all engines are on one machine; among others it is likely a mistake."""
    endpoints = [engine.endpoint for engine in engines if engine.endpoint is not None]
    elsewhere = any(not is_loopback(endpoint) for endpoint in endpoints)
    for engine in engines:
        for endpoint in (engine.endpoint, engine.replay_endpoint):
            if endpoint is None:
                continue
            if is_every_interface(endpoint):
                yield found("sources.endpoint_form", "problem", endpoint, engine.name)
            else:
                apart = elsewhere and is_loopback(endpoint)
                yield found_if(apart, "sources.endpoint_form", "warning", endpoint, engine.name)


def _shared(engines: Sequence[Engine]) -> Iterator[Finding]:
    """Event and replay endpoints of all: no engine binds one port twice."""
    users: dict[str, list[str]] = defaultdict(list)
    for engine in engines:
        for purpose, endpoint in (("events", engine.endpoint), ("replay", engine.replay_endpoint)):
            if endpoint is not None:
                users[one_spelling(endpoint)].append(f"{purpose} of {engine.name}")
    several = {place: who for place, who in users.items() if len(who) > 1}
    for place, who in several.items():
        yield found("sources.endpoint_shared", "problem", f"is {_some(who)}", place)
    if users and not several:
        yield found("sources.endpoint_shared", "ok")


def _capacity(engine: Engine) -> Finding:
    held = engine.blocks.get("gpu", 0)
    if engine.blocks_total is None:
        return found("sources.capacity", "warning", "", engine.name)
    beyond = held > engine.blocks_total
    seen = f"{engine.blocks_total} blocks, and {held} are held" if beyond else f"{engine.blocks_total} blocks"
    return found_if(beyond, "sources.capacity", "warning", seen, engine.name)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= len(names[:3]) else f"{shown} and {len(names) - 3} more"
