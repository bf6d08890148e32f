"""What an engine's event and replay sockets said. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from indexer.decode.topic import mismatches, parse_topic
from indexer.doctor.checks import Finding, found, found_if
from indexer.model import Descriptor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from indexer.doctor.facts import Engine, First, Heard, Probed, Replayed

SKEW_MAX_S: Final = 5.0
"""Batches are stamped when they are made, a step of the engine before they arrive."""
KEPT_BY_DEFAULT: Final = 10_000
"""Batches that vLLM keeps for replay unless told otherwise (`buffer_steps`)."""
PACE_FROM: Final = 5
"""Batches from which on a pace is told: fewer say little."""
ENOUGH: Final = 2.0
"""Times what is needed."""
_NAMES_A_POD: Final = b"kv@"


class Need(msgspec.Struct, frozen=True):
    """For how long nobody may listen to an engine, in the worst case that is planned for, and why."""

    seconds: float
    why: str


def judge_endpoints(engine: Engine, probed: Probed, need: Need, now_s: float) -> Iterator[Finding]:
    """Of one source. `now_s`: seconds since 1970."""
    if probed.skipped is not None:
        yield found("endpoint.reachable", "unknown", probed.skipped, engine.name)
        return
    if engine.endpoint is not None:
        yield from _events(engine, probed)
    if engine.replay_endpoint is not None:
        yield from _replay(engine, probed, need, now_s)


def _events(engine: Engine, probed: Probed) -> Iterator[Finding]:
    heard, name = probed.heard, engine.name
    if probed.no_route is not None or heard is None:
        seen = f"{engine.endpoint}: {probed.no_route or 'not listened to'}"
        yield found("endpoint.reachable", "problem" if probed.no_route else "unknown", seen, name)
        return
    yield found("endpoint.reachable", "ok", str(engine.endpoint), name)
    if not heard.connected:
        yield found("endpoint.handshake", "problem", f"{engine.endpoint}: {_other(heard)}", name)
        return
    yield found("endpoint.handshake", "ok", "", name)
    if not heard.batches and not heard.malformed:
        yield found("endpoint.events", "unknown", f"nothing in {heard.listened_s:.1f} s", name)
        return
    yield found("endpoint.events", "ok", f"{heard.batches} batches in {heard.listened_s:.1f} s", name)
    bad = heard.malformed + heard.undecodable
    yield found_if(bad > 0, "endpoint.messages", "problem", f"{bad} could not be read" if bad else "", name)
    yield from _content(engine, heard)


def _other(heard: Heard) -> str:
    if heard.is_replay:
        return "a replay socket is there: are endpoint and replay endpoint swapped?"
    return "no ZMQ publisher" if heard.refused else "it takes connections and says nothing"


def _content(engine: Engine, heard: Heard) -> Iterator[Finding]:
    name = engine.name
    topics = sorted(topic.decode("utf-8", "backslashreplace")[:100] for topic in heard.topics)
    strange = [topic for topic in heard.topics if _is_strange(topic, engine)]
    several = len(topics) > 1
    yield found_if(several or strange, "endpoint.topic", "warning", ", ".join(map(repr, topics[:3])), name)
    others = sorted(heard.ranks - {engine.dp_rank})
    yield found_if(others, "endpoint.rank", "warning", f"rank {', '.join(map(str, others))}" if others else "", name)
    missing = f"{heard.missing} of {heard.batches + heard.missing} batches" if heard.missing else ""
    yield found_if(heard.missing > 0, "endpoint.losses", "warning", missing, name)
    if heard.skew_s is not None:
        off = abs(heard.skew_s) > SKEW_MAX_S
        yield found_if(off, "endpoint.clock", "warning", f"{-heard.skew_s:+.1f} s" if off else "", name)


def _is_strange(topic: bytes, engine: Engine) -> bool:
    """It names a pod or a model, and another one."""
    described = Descriptor(pod=engine.pod, model=engine.model, address=engine.address, aliases=engine.aliases)
    return topic.startswith(_NAMES_A_POD) and bool(mismatches(parse_topic(topic), described))


def _replay(engine: Engine, probed: Probed, need: Need, now_s: float) -> Iterator[Finding]:
    replayed, name, place = probed.replayed, engine.name, engine.replay_endpoint
    if probed.replay_no_route is not None:
        yield found("replay.reachable", "problem", f"{place}: {probed.replay_no_route}", name)
        return
    if replayed is None:
        return  # Ctrl-C came first
    yield found("replay.reachable", "ok", "", name)
    if not replayed.answers:
        what = "connected, and no answer" if replayed.connected else "no ZMQ replay socket"
        yield found("replay.answers", "problem", f"{place}: {what}", name)
        return
    yield found("replay.answers", "ok", "", name)
    if replayed.same is None:
        yield found("replay.same_engine", "unknown", "", name)
    else:
        yield found_if(not replayed.same, "replay.same_engine", "problem", str(place), name)
    yield _reach(name, replayed, probed, need, now_s)


def _reach(name: str, replayed: Replayed, probed: Probed, need: Need, now_s: float) -> Finding:
    """The shorter of two: the time from its oldest batch to now, and what it keeps at the pace that was heard."""
    oldest = replayed.oldest
    if oldest is None:
        return found("replay.reach", "unknown", "it keeps nothing", name)
    spans = [*_span(oldest, probed.heard, now_s), *_at_pace(oldest, probed)]
    if not spans and oldest.sequence:
        return found("replay.reach", "unknown", f"back to batch {oldest.sequence}, whose time it does not say", name)
    back = f"back to batch {oldest.sequence}" if oldest.sequence else "back to the engine's start"
    if not spans:
        return found("replay.reach", "ok", back, name)
    reach_s, how = min(spans)
    seen = f"{back}, {reach_s:.0f} s{how}; {need.seconds:.0f} s are needed ({need.why})"
    if reach_s < need.seconds:
        return found("replay.reach", "problem", seen, name)
    return found_if(reach_s < ENOUGH * need.seconds, "replay.reach", "warning", seen, name)


def _span(oldest: First, heard: Heard | None, now_s: float) -> Iterator[tuple[float, str]]:
    """By the engine's own stamps, to its newest batch where one was heard. Says nothing where nothing is gone."""
    newest_s = heard.last.ts if heard is not None and heard.last is not None else now_s
    if oldest.sequence and oldest.ts is not None and newest_s is not None:
        yield newest_s - oldest.ts, ""


def _at_pace(oldest: First, probed: Probed) -> Iterator[tuple[float, str]]:
    """An hour ago it may have idled: what matters is how long what it keeps lasts now."""
    heard, said = probed.heard, None if probed.http is None else probed.http.events
    if heard is None or heard.last is None or heard.batches < PACE_FROM or heard.listened_s <= 0:
        return
    kept = heard.last.sequence - oldest.sequence + 1
    if not oldest.sequence:  # nothing is gone yet: how much it will keep is its own word, or vLLM's default
        steps = None if said is None else said.buffer_steps
        kept = max(kept, KEPT_BY_DEFAULT) if steps is None else steps
    pace = heard.batches / heard.listened_s
    yield kept / pace, f" at {pace:.0f} batches a second"
