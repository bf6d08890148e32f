"""What lookups need of each source, made once and used until a fact or the moment changes it. No I/O; time is given.

A fleet of hundreds answers mostly with entries that hold nothing of the prompt. These are the same for every prompt,
so each is made once per quantum of time (10 ms, more for very large fleets) and put into answers as it stands; from
one quantum to the next only two ages differ, which are put between texts that are kept. Ages are computed for the end
of the quantum: never shown younger than they are. States are computed for the real moment: a prepared source is thrown
away when its next state change is due (decisions/0006).
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
_LAG: Final = b',"lag_ms":'
_AGE: Final = b',"event_age_ms":'
_NO_AGES: Final = _LAG + b"null" + _AGE + b"null"
_HELD_IN_GPU: Final = (
    b'"matched_tokens":%d,"reusable_tokens":%d,'
    b'"tiers":{"gpu":%d,"cpu":0,"storage":0,"remote":0,"unknown":0},'
    b'"prefix":{"gpu":%d,"cpu":%d,"storage":%d,"remote":%d},"speculative_tokens":0,"score":%b'
)
"""What the encoder makes of these fields of a `PodEntry`, in its order."""
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


class Shell(NamedTuple):
    """An entry in JSON around what the prompt decides and around its ages: the same until a fact changes."""

    head: bytes
    """Up to what the prompt decides."""
    nothing: bytes
    """Up to the ages, of an entry that holds nothing."""
    middle: bytes
    """From behind what the prompt decides up to the ages."""
    end: bytes
    """Behind the ages."""


class Prepared(NamedTuple):
    """One source at one moment."""

    state: SourceState
    bound: Bound
    reason: Reason | None
    """Why nothing of it counts, or why nothing of it can be known; None where its events tell."""
    scored: bool
    degrades: bool
    lag_ms: int | None
    event_age_ms: int | None
    generation: str
    sequence: int | None
    until: float
    ages: bytes
    """As they stand in JSON."""
    shown: tuple[SourceState, Bound, int, int | None, tuple[bool, bool], int | None]
    """All else that an entry shows, or follows from."""
    fragments: dict[tuple[str, str | None, str | None], msgspec.Raw]
    """Encoded entries without hits, for this moment: by encoding, reason and name."""
    shells: dict[tuple[str | None, str | None], Shell]
    """For as long as nothing but the ages changes: by reason and name."""


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
            view = self._prepared[id(source)] = self._prepare(source, now, view)
        return view

    def _prepare(self, source: SourceIndex, now: float, before: Prepared | None) -> Prepared:
        facts = source.facts
        state, bound = state_of(facts, now, self.limits), bound_of(facts)
        if state != source.state_seen[0]:
            source.state_seen = state, now
        end = (math.floor(now / self._quantum_s) + 1) * self._quantum_s
        until = min(end, next_change(facts, now, self.limits))
        lag_ms, event_age_ms = _age_ms(facts.proof_at, end), _age_ms(facts.message_at, end)
        ages = _ages(lag_ms, event_age_ms)
        withheld = facts.cordoned, facts.ready
        shown = (state, bound, facts.generation, facts.sequence, withheld, source.asking_size)
        if before is not None and before.shown == shown:
            _, _, reason, scored, degrading, _, _, generation, sequence, _, _, _, _, shells = before
            moment = (lag_ms, event_age_ms, generation, sequence, until, ages, shown)
            return Prepared(state, bound, reason, scored, degrading, *moment, {}, shells)
        return Prepared(
            state=state,
            bound=bound,
            reason=reason_of(state, facts),
            scored=is_scored(state) and not facts.is_withheld,
            degrades=degrades(state, bound, facts),
            lag_ms=lag_ms,
            event_age_ms=event_age_ms,
            generation=f"{facts.generation:x}",
            sequence=facts.sequence if facts.sequence is not None and facts.sequence >= 0 else None,
            until=until,
            ages=ages,
            shown=shown,
            fragments={},
            shells={},
        )


def encode_nothing(
    source: SourceIndex, view: Prepared, reason: Reason | None, name: str | None, encoding: Encoding
) -> msgspec.Raw:
    """The encoded entry of a source that holds nothing of the prompt. `name`: as the caller called it."""
    if encoding == "json":
        shell = view.shells.get((reason, name)) or _shell_of(source, view, reason, name)
        return msgspec.Raw(shell.nothing + view.ages + shell.end)
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
        if encoding == "proto":
            head = entry_wire.frame_part(nothing_entry(source, view, reason, name))
        else:
            head, _, middle, end = view.shells.get((reason, name)) or _shell_of(source, view, reason, name)
            tail = middle + view.ages + end
    factor = suspect_weight if view.state == "suspect" else 1.0
    return Frame(head, tail, source.asking_size or 1, factor, source.rendezvous_name)


def _shell_of(source: SourceIndex, view: Prepared, reason: Reason | None, name: str | None) -> Shell:
    """Made, and kept where there is room."""
    entry = nothing_entry(source, view, reason, name)
    entry.lag_ms = entry.event_age_ms = None
    encoded = _json_encode(entry)
    held = encoded.index(_BEFORE_HELD) + 1  # no string can hold it: its quotes would be escaped
    behind = encoded.index(_BEHIND_HELD, held)
    ages = encoded.index(_NO_AGES, behind)
    shell = Shell(encoded[:held], encoded[:ages], encoded[behind:ages], encoded[ages + len(_NO_AGES) :])
    if len(view.shells) < FRAGMENTS_MAX:
        view.shells[reason, name] = shell
    return shell


def encode_held_in_gpu(matched: int, reusable: int, score: float, encoding: Encoding) -> bytes:
    """The part that goes into the frame of a source that holds so many tokens, all in GPU memory."""
    if encoding == "proto":
        prefix = PrefixTokens(matched, matched, matched, matched)
        return entry_wire.held_part(matched, reusable, TierTokens(matched), prefix, score)
    return _HELD_IN_GPU % (matched, reusable, matched, matched, matched, matched, matched, _json_encode(score))


def nothing_entry(source: SourceIndex, view: Prepared, reason: Reason | None, name: str | None) -> PodEntry:
    """The entry of a source that holds nothing of the prompt."""
    return PodEntry(
        pod=name or source.descriptor.pod,
        dp_rank=source.descriptor.dp_rank,
        block_size=source.asking_size,
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


def _ages(lag_ms: int | None, event_age_ms: int | None) -> bytes:
    lag = b"null" if lag_ms is None else b"%d" % lag_ms
    return b"%b%b%b%b" % (_LAG, lag, _AGE, b"null" if event_age_ms is None else b"%d" % event_age_ms)


def _age_ms(at: float | None, now: float) -> int | None:
    return None if at is None else max(0, math.ceil((now - at) * 1000))
