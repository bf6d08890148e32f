"""What lookups need of each source, made once and used until a fact or the moment changes it. No I/O; time is given.

A fleet of hundreds answers mostly with entries that hold nothing of the prompt. These are the same for every prompt
but for two ages, so each is encoded once per quantum of time (10 ms, more for very large fleets) and put into answers
as it stands. Ages are computed for the end of the quantum: never shown younger than they are. States are computed for
the real moment: a prepared source is thrown away when its next state change is due (decisions/0006).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from indexer import entry_wire
from indexer.index.states import bound_of, degrades, is_scored, next_change, reason_of, state_of
from schemas.lookup import PodEntry, PrefixTokens, TierTokens

if TYPE_CHECKING:
    from indexer.index.source import SourceIndex
    from indexer.index.states import StateLimits
    from indexer.model import Bound, Reason, SourceState

Encoding = Literal["json", "msgpack", "proto"]

QUANTUM_MIN_S: Final = 0.010
QUANTUM_PER_SOURCE_S: Final = 0.0002
"""Preparing all entries costs about 5 us a source; this keeps it under 3 % of the time however large the fleet."""
TOUCHES_KEPT: Final = 16
"""Touches after which it is cheaper to compose a scene anew than to bring it up to date."""
FRAGMENTS_MAX: Final = 64
"""Encoded forms kept a source (reasons times names the callers use)."""

_json_encode: Final = msgspec.json.Encoder().encode
_encoders: Final[dict[Encoding, Callable[[PodEntry], bytes]]] = {
    "json": _json_encode,
    "msgpack": msgspec.msgpack.Encoder().encode,
    "proto": entry_wire.entry,
}
_BEFORE_HELD: Final = b',"matched_tokens":'
_BEHIND_HELD: Final = b',"state":'
_NO_TIERS: Final = TierTokens()
_NO_PREFIX: Final = PrefixTokens()


class Frame(NamedTuple):
    """What a source's entry has around the part that the prompt decides, and what that part is made with."""

    head: bytes
    """Empty where the entry has to be made whole: what a hybrid source reuses is a matter of its own."""
    tail: bytes
    """Only in JSON, where the order of fields is fixed."""
    block_size: int
    factor: float
    """Of the score."""
    rendezvous_name: bytes


class HeldPart(msgspec.Struct, kw_only=True):
    """The fields of `PodEntry` that the prompt decides, in its order: the same for all who hold the same."""

    matched_tokens: int
    reusable_tokens: int
    tiers: TierTokens
    prefix: PrefixTokens
    speculative_tokens: int = 0
    score: float


class Prepared(NamedTuple):
    """One source at one moment."""

    state: SourceState
    bound: Bound
    reason: Reason | None
    """Why nothing of it counts; None where it may score."""
    scored: bool
    degrades: bool
    lag_ms: int | None
    event_age_ms: int | None
    generation: str
    sequence: int | None
    until: float
    fragments: dict[tuple[str, str | None, str | None], msgspec.Raw]


class FleetView:
    """Prepared sources. `touch` is called by the write side whenever a fact that an entry shows changes."""

    def __init__(self, limits: StateLimits) -> None:
        self.limits = limits
        self.epoch = 0
        """Grows with every touch: what was composed from prepared sources is as old as its epoch."""
        self._touched: deque[SourceIndex] = deque(maxlen=TOUCHES_KEPT)
        self._prepared: dict[int, Prepared] = {}
        self._quantum_s = QUANTUM_MIN_S

    def touch(self, source: SourceIndex) -> None:
        """A fact of this source changed."""
        self.epoch += 1
        self._touched.append(source)
        self._prepared.pop(id(source), None)

    def touched_since(self, epoch: int) -> list[SourceIndex] | None:
        """The sources touched after `epoch`; None where that is too long ago to tell."""
        count = self.epoch - epoch
        if count > len(self._touched):
            return None
        return list(islice(reversed(self._touched), count))

    def fit(self, sources: int) -> None:
        """The fleet has this many sources now."""
        self.epoch += 1
        self._touched.clear()
        self._prepared.clear()
        self._quantum_s = max(QUANTUM_MIN_S, sources * QUANTUM_PER_SOURCE_S)

    def prepared(self, source: SourceIndex, now: float) -> Prepared:
        """The source as of `now`."""
        view = self._prepared.get(id(source))
        if view is None or now >= view.until:
            view = self._prepared[id(source)] = self._prepare(source, now)
        return view

    def _prepare(self, source: SourceIndex, now: float) -> Prepared:
        facts = source.facts
        state, bound = state_of(facts, now, self.limits), bound_of(facts)
        end = (math.floor(now / self._quantum_s) + 1) * self._quantum_s
        return Prepared(
            state=state,
            bound=bound,
            reason=reason_of(state, facts),
            scored=is_scored(state) and not facts.cordoned,
            degrades=degrades(state, bound, facts),
            lag_ms=_age_ms(facts.proof_at, end),
            event_age_ms=_age_ms(facts.message_at, end),
            generation=f"{facts.generation:x}",
            sequence=facts.sequence if facts.sequence is not None and facts.sequence >= 0 else None,
            until=min(end, next_change(facts, now, self.limits)),
            fragments={},
        )


def encode_nothing(
    source: SourceIndex, view: Prepared, reason: Reason | None, name: str | None, encoding: Encoding
) -> msgspec.Raw:
    """The encoded entry of a source that holds nothing of the prompt. `name`: as the caller called it."""
    key = (encoding, reason, name)
    fragment = view.fragments.get(key)
    if fragment is None:
        fragment = msgspec.Raw(_encoders[encoding](nothing_entry(source, view, reason, name)))
        if len(view.fragments) < FRAGMENTS_MAX:
            view.fragments[key] = fragment
    return fragment


def frame_of(source: SourceIndex, view: Prepared, name: str | None, suspect_weight: float, encoding: Encoding) -> Frame:
    """The frame of a source as it is now, for a caller that calls it `name` (None: by its own)."""
    head, tail = b"", b""
    if not source.rules:
        reason: Reason | None = "hybrid_window" if source.facts.rule_missing else None
        nothing = nothing_entry(source, view, reason, name)
        if encoding == "proto":
            head = entry_wire.frame_part(nothing)
        else:
            encoded = _json_encode(nothing)
            at = encoded.index(_BEFORE_HELD)  # no string can hold it: its quotes would be escaped
            head, tail = encoded[: at + 1], encoded[encoded.index(_BEHIND_HELD, at) :]
    factor = suspect_weight if view.state == "suspect" else 1.0
    return Frame(head, tail, source.block_size or 1, factor, source.rendezvous_name)


def encode_held_in_gpu(matched: int, reusable: int, score: float, encoding: Encoding) -> bytes:
    """The part that goes into the frame of a source that holds so many tokens, all in GPU memory."""
    tiers, prefix = TierTokens(matched), PrefixTokens(matched, matched, matched, matched)
    if encoding == "proto":
        return entry_wire.held_part(matched, reusable, tiers, prefix, score)
    part = HeldPart(matched_tokens=matched, reusable_tokens=reusable, tiers=tiers, prefix=prefix, score=score)
    return _json_encode(part)[1:-1]


def nothing_entry(source: SourceIndex, view: Prepared, reason: Reason | None, name: str | None) -> PodEntry:
    """The entry of a source that holds nothing of the prompt."""
    return PodEntry(
        pod=name or source.descriptor.pod,
        dp_rank=source.descriptor.dp_rank,
        block_size=source.block_size,
        matched_tokens=0,
        reusable_tokens=0,
        tiers=_NO_TIERS,
        prefix=_NO_PREFIX,
        score=0.0,
        state=view.state,
        bound=view.bound,
        lag_ms=view.lag_ms,
        event_age_ms=view.event_age_ms,
        generation=view.generation,
        sequence=view.sequence,
        reason=reason,
    )


def unknown_entry(name: str, reason: Reason) -> PodEntry:
    """The entry of a pod that the caller named and nobody registered."""
    return PodEntry(
        pod=name,
        dp_rank=0,
        block_size=None,
        matched_tokens=0,
        reusable_tokens=0,
        tiers=_NO_TIERS,
        prefix=_NO_PREFIX,
        score=0.0,
        state="down",
        bound="lower",
        lag_ms=None,
        event_age_ms=None,
        generation="0",
        sequence=None,
        reason=reason,
    )


def _age_ms(at: float | None, now: float) -> int | None:
    return None if at is None else max(0, math.ceil((now - at) * 1000))
