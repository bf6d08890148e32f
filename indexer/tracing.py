"""Own spans of what this process does: lookups, batches applied, writes to the store, replays. No I/O.

A span is made after the fact, from what is known then: what is not sampled costs one comparison. Who asks with a W3C
context decides itself: a sampled parent is continued, one that is not gets no span. All else is sampled at the head, by
ratio. Nothing of a prompt, no token, adapter, tenant or salt is put on a span. There is no global provider: whoever has
nothing to trace to holds None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import msgspec
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    INVALID_SPAN_ID,
    INVALID_TRACE_ID,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from indexer.trace_context import caller_of, header_text
from schemas.lookup import Holdings, LookupAnswer, PodEntry
from schemas.recommend import DetailedPod, RecommendAnswer
from schemas.rpc.kvindexer.v1.kvindexer_pb2 import LookupResponse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import SpanProcessor

    from indexer.model import SourceId
    from indexer.ports import Clock
    from indexer.trace_context import Asked

SCOPE: Final = "kvindexer"
TRACE_STATE_MAX: Final = 512
"""Of what a caller's `tracestate` says; a longer one is left out, as the standard allows."""
TEXT_MAX: Final = 100
FAULTS_FROM: Final = 500
_BY_NOBODY: Final = frozenset({None, "fleet"})
"""How a model was resolved that is known by the question alone; `fleet`: no engine names one, so all are meant."""
SHUT_OUT: Final = frozenset({401, 403})
"""Whoever may not ask gets no span of ours."""


class Chance(Protocol):
    """As `random.Random` has it."""

    def random(self) -> float:
        """At least 0, less than 1."""
        ...

    def getrandbits(self, k: int, /) -> int:
        """A number of so many bits."""
        ...


class Tracing:
    """One a process. `ended` takes the spans."""

    def __init__(
        self, ended: SpanProcessor, clock: Clock, chance: Chance, *, ratio: float, about: Mapping[str, str]
    ) -> None:
        self._clock = clock
        self._chance = chance
        self._ratio = ratio
        self._provider = TracerProvider(
            sampler=ALWAYS_ON,  # what comes so far was sampled
            resource=Resource({"service.name": SCOPE, **about}),
            shutdown_on_exit=False,
            id_generator=_Ids(chance),
        )
        self._provider.add_span_processor(ended)
        self._tracer = self._provider.get_tracer(SCOPE, about.get("service.version"))

    def samples(self) -> bool:
        """Whether to trace what nobody else traces already: asked before what a span needs is worked out."""
        return self._chance.random() < self._ratio

    def lookup(
        self, asked: Asked, answer: LookupAnswer | Holdings | RecommendAnswer | None, code: int, seconds: float
    ) -> None:
        """A lookup was answered, with `code`; None: refused."""
        parent = None if asked.traceparent is None else parent_of(asked.traceparent, asked.tracestate)
        if code in SHUT_OUT or not (self.samples() if parent is None else parent.trace_flags.sampled):
            return
        attributes: dict[str, str | int] = {"api": asked.api, "input": asked.form, "code": code}
        if answer is not None:
            attributes |= _found(answer)
        above = None if parent is None else set_span_in_context(NonRecordingSpan(parent))
        self._span("lookup", attributes, seconds, above, SpanKind.SERVER, failed=code >= FAULTS_FROM)

    def batch(self, source: SourceId, sequence: int, events: int, seconds: float) -> None:
        """A batch of a source was applied. To be called where `samples` said so, as the two below."""
        self._span("batch apply", {**_named(source), "sequence": sequence, "events": events}, seconds)

    def journal(self, partition: int, entries: int, size_bytes: int, result: str, seconds: float) -> None:
        """What changed was written to the store, or not."""
        attributes: dict[str, str | int] = {
            "partition": partition,
            "entries": entries,
            "bytes": size_bytes,
            "result": result,
        }
        self._span("journal", attributes, seconds, kind=SpanKind.CLIENT, failed=result != "ok")

    def replay(self, source: SourceId, first: int, last: int | None, result: str, seconds: float) -> None:
        """An engine was asked for batches again. `last`: the newest that is known now; None: none is."""
        reached = {} if last is None else {"to": last}
        attributes = {**_named(source), "from": first, **reached, "result": result}
        self._span("replay", attributes, seconds, kind=SpanKind.CLIENT, failed=result != "ok")

    def _span(
        self,
        name: str,
        attributes: Mapping[str, str | int],
        seconds: float,
        above: Context | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
        *,
        failed: bool = False,
    ) -> None:
        end_ns = self._clock.wall_us() * 1_000
        span = self._tracer.start_span(
            name,
            _ROOT if above is None else above,
            kind,
            attributes,
            start_time=end_ns - max(0, round(seconds * 1e9)),
        )
        if failed:
            span.set_status(Status(StatusCode.ERROR))
        span.end(end_ns)


def parent_of(traceparent: bytes | str, tracestate: bytes | str | None) -> SpanContext | None:
    """The caller's span, for ours to be below it; None where there is none that can be read."""
    caller = caller_of(traceparent)
    if caller is None:
        return None
    state = "" if tracestate is None else header_text(tracestate)
    kept = TraceState.from_header([state]) if 0 < len(state) <= TRACE_STATE_MAX else TraceState()
    flags = TraceFlags(caller.flags)
    return SpanContext(caller.trace_id, caller.span_id, is_remote=True, trace_flags=flags, trace_state=kept)


def _found(answer: LookupAnswer | Holdings | RecommendAnswer) -> dict[str, str | int]:
    """What is told of an answer. A model that no engine and no setting names is a text of the caller's: left out."""
    if isinstance(answer, Holdings):
        matched = max((each.storage for each in answer.held), default=0)
        return {"state": answer.state, "holders": len(answer.held), "matched_tokens": matched}
    if isinstance(answer, RecommendAnswer):
        return _recommended(answer)
    told: dict[str, str | int] = {
        "state": answer.state,
        "prompt_tokens": answer.prompt_tokens,
        "candidates": len(answer.pods),
        "matched_tokens": _most_matched(answer),
    }
    if answer.model is not None and answer.resolved_by not in _BY_NOBODY:
        told["model"] = answer.model[:TEXT_MAX]
    return told


def _recommended(answer: RecommendAnswer) -> dict[str, str | int]:
    """What is matched is told of picks that say so."""
    told: dict[str, str | int] = {"state": answer.state, "picks": len(answer.picks), "loads": answer.load.source}
    matched = [each.matched_tokens for each in answer.picks if isinstance(each, DetailedPod)]
    return told | {"matched_tokens": max(matched)} if matched else told


def _most_matched(answer: LookupAnswer) -> int:
    """The longest match. Entries that are encoded already are best first, and say nothing but of GPU memory."""
    most = max((pod.matched_tokens for pod in answer.pods if isinstance(pod, PodEntry)), default=0)
    encoded = next((bytes(pod) for pod in answer.pods if not isinstance(pod, PodEntry)), b"")
    if encoded.startswith(b"{"):
        return max(most, _MATCHED(encoded).matched_tokens)
    if encoded.startswith(_IN_PROTO):
        return max(most, LookupResponse.FromString(encoded).pods[0].matched_tokens)
    return most  # in MessagePack only those are encoded that hold nothing


_IN_PROTO: Final = bytes([LookupResponse.PODS_FIELD_NUMBER << 3 | 2])


class _Matched(msgspec.Struct):
    matched_tokens: int


_MATCHED: Final = msgspec.json.Decoder(_Matched).decode


def _named(source: SourceId) -> dict[str, str | int]:
    return {"source": source.pod[:TEXT_MAX], "dp_rank": source.dp_rank}


_ROOT: Final = set_span_in_context(NonRecordingSpan(SpanContext(INVALID_TRACE_ID, INVALID_SPAN_ID, is_remote=False)))
"""No parent, whatever the context of the running task says."""


class _Ids(IdGenerator):
    def __init__(self, chance: Chance) -> None:
        self._chance = chance

    def generate_span_id(self) -> int:
        return self._chance.getrandbits(64) or 1

    def generate_trace_id(self) -> int:
        return self._chance.getrandbits(128) or 1
