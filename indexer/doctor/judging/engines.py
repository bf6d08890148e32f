"""What an engine's HTTP side says of itself, beside what the service and the events say. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from indexer.doctor.checks import Finding, found, found_if

if TYPE_CHECKING:
    from collections.abc import Iterator

    from indexer.doctor.facts import Engine, EngineHttp, Heard

REPLAYS_WHOLE_FROM: Final = (0, 33)
"""vLLM: before it, a replay socket drops what a slow reader does not take."""


def judge_engine(engine: Engine, http: EngineHttp | None, heard: Heard | None) -> Iterator[Finding]:
    """Of one source; `http` None: no address is known."""
    name = engine.name
    if http is None:
        seen = "" if engine.address is None else f"{engine.address}: not asked from here"
        yield found("engine.reachable", "unknown", seen, name)
        return
    if http.trouble is not None:
        yield found("engine.reachable", "warning", f"{engine.address}: {http.trouble}", name)
        return
    yield found("engine.reachable", "ok", str(engine.address), name)
    yield _version(engine, http)
    if http.prefix_caching is None:
        yield found("engine.prefix_caching", "unknown", "", name)
    else:
        yield found_if(not http.prefix_caching, "engine.prefix_caching", "problem", "", name)
    yield _load(engine, http)
    yield _block_size(engine, http, heard)
    yield _capacity(engine, http)
    yield _model(engine, http)
    yield _events(engine, http)


def _load(engine: Engine, http: EngineHttp) -> Finding:
    if http.load is None:
        return found("engine.load", "warning", f"{engine.address}: no requests running or waiting", engine.name)
    running, waiting = http.load
    return found("engine.load", "ok", f"{running:g} requests running, {waiting:g} waiting", engine.name)


def _version(engine: Engine, http: EngineHttp) -> Finding:
    if http.version is None:
        return found("engine.version", "unknown", "", engine.name)
    old = engine.engine == "vllm" and engine.replay_endpoint is not None and _numbers(http.version) < REPLAYS_WHOLE_FROM
    return found_if(old, "engine.version", "warning", f"{engine.engine} {http.version}", engine.name)


def _numbers(version: str) -> tuple[int, ...]:
    """Of a release and of a build before one; what cannot be read is taken for new."""
    parts = version.split(".")[:2]
    if not all(part.isascii() and part.isdigit() for part in parts):
        return REPLAYS_WHOLE_FROM
    return tuple(map(int, parts))


def _block_size(engine: Engine, http: EngineHttp, heard: Heard | None) -> Finding:
    """Of the events as the service learnt it, else as they were heard just now."""
    sizes = set() if heard is None else set(heard.block_sizes)
    of_events = engine.block_size or (max(sizes) if sizes else None)
    if http.block_size is None or of_events is None:
        return found("engine.block_size", "unknown", "", engine.name)
    differs = http.block_size != of_events and http.block_size not in sizes
    seen = f"its metrics say {http.block_size}, its events {of_events}" if differs else f"{of_events} tokens"
    return found_if(differs, "engine.block_size", "warning", seen, engine.name)


def _capacity(engine: Engine, http: EngineHttp) -> Finding:
    if http.num_gpu_blocks is None:
        return found("engine.capacity", "unknown", "", engine.name)
    differs = engine.blocks_total != http.num_gpu_blocks
    given = "it was not given" if engine.blocks_total is None else f"{engine.blocks_total} was given"
    seen = f"num_gpu_blocks is {http.num_gpu_blocks}" + (f", {given}" if differs else "")
    return found_if(differs, "engine.capacity", "warning", seen, engine.name)


def _model(engine: Engine, http: EngineHttp) -> Finding:
    if http.models is None or engine.model is None:
        return found("engine.model", "unknown", "the source says no model" if http.models else "", engine.name)
    strange = engine.model not in http.models
    seen = f"the source says {engine.model}, the engine {', '.join(http.models[:3])}" if strange else engine.model
    return found_if(strange, "engine.model", "warning", seen, engine.name)


def _events(engine: Engine, http: EngineHttp) -> Finding:
    said = http.events
    if said is None or said.enabled is None:
        return found("engine.events", "unknown", "", engine.name)
    if not said.enabled:
        return found("engine.events", "problem", "enable_kv_cache_events is off", engine.name)
    if (said.replay_endpoint is None) != (engine.replay_endpoint is None):
        has = (
            "has none"
            if said.replay_endpoint is None
            else f"has {said.replay_endpoint}, which the source does not name"
        )
        return found("engine.events", "warning", f"the engine {has}", engine.name)
    kept = "" if said.buffer_steps is None else f"it keeps {said.buffer_steps} batches for replay"
    return found("engine.events", "ok", kept, engine.name)
