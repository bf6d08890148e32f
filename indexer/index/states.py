"""Facts about a source, and the states and bounds that follow from them and the present moment.

Pure functions of facts and now.

Computed at each lookup, never stored: a process that wakes from a pause must not answer with yesterday's state
(DESIGN.md section 5). All times are seconds on the boot-time clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from indexer.model import Bound, Reason, SourceState

NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class StateLimits:
    """When silence changes a state, seconds: `stale_after_s` < `score_ttl_s`."""

    stale_after_s: float = 5.0
    score_ttl_s: float = 60.0
    suspect_weight: float = 1.0


@dataclass(slots=True)
class SourceFacts:
    """What is known about one source in its present generation."""

    generation: int
    sequence: int | None = None
    """Last applied batch; -1 when the engine confirmed that it has published nothing yet; None before any word."""
    complete: bool = False
    """Every batch from sequence 0, or from the engine's last clear, was applied."""
    shortfalls: set[str] = field(default_factory=set)
    """Why blocks may be held that are not known here: bound `lower`."""
    doubts: set[str] = field(default_factory=set)
    """Why something claimed may be false: state `suspect`, bound `estimate`."""
    suspicions: set[str] = field(default_factory=set)
    """The same for now: the collector says when it is over. They belong to the stream and outlast a generation."""
    missed_stores: bool = False
    """Announcements were missed in a kept gap: a named parent may be one of them."""
    rule_missing: bool = False
    """A group's hit rule is not known: bound `upper`."""
    syncing: bool = False
    in_part: bool = False
    """A batch, or what came of some, is applied in part: what is known is of no sequence. No better than `syncing`."""
    loading: bool = False
    """Its map is being read from the store: what is there already counts."""
    reloading: bool = False
    """What is known may be behind its journal and is being read anew: at most `stale`."""
    lease_until: float = NEVER
    """From then on another replica may be its owner and know more: at most `stale`. Memory mode has no such moment."""
    connected: bool = False
    cordoned: bool = False
    """An operator took it out of the scores."""
    ready: bool = True
    """Whether whoever runs it says that requests may go there; where nobody tells, they may."""
    unready_why: str = ""
    """For people."""
    alive_at: float | None = None
    """Newest moment at which the connection was seen up."""
    message_at: float | None = None
    """When the engine's newest live message was applied: those of the past (`RawBatch.late`) came nobody knows when."""
    proof_at: float | None = None
    """Newest proof that nothing is missing: an in-order message or a probe's end marker."""
    stamp: float | None = None
    """What tells the batch at `sequence` from another of its number (`decode.envelope.stamp`); None: not known."""
    clock_checked: bool = False
    """The engine's own wall time was seen to agree with ours in this generation: for the clock-skew warning only."""

    may_be_silent: bool = False
    """An engine of its model need not announce anything (`models.approximate`), and this one never did."""

    @property
    def is_approximate(self) -> bool:
        """Nothing is known but what callers say that they routed there."""
        return self.may_be_silent and self.sequence is None

    @property
    def is_withheld(self) -> bool:
        """Whether somebody wants no requests there, whatever it holds: an operator, or whoever runs it."""
        return self.cordoned or not self.ready

    @property
    def in_doubt(self) -> bool:
        """Whether something claimed may be false."""
        return bool(self.doubts or self.suspicions)

    def forget_history(self, generation: int) -> None:
        """A new generation begins: what was known about the old one's history is void."""
        self.may_be_silent = self.is_approximate  # who spoke once will again
        self.generation = generation
        self.sequence = None
        self.complete = False
        self.shortfalls = set()
        self.doubts = set()
        self.missed_stores = False
        self.in_part = False
        self.proof_at = None
        self.clock_checked = False


def bound_of(facts: SourceFacts) -> Bound:
    """How far the source's claims can be trusted: nothing missing and nothing false, or which way they may err."""
    if facts.is_approximate:
        return "estimate"
    may_be_false = facts.in_doubt
    may_miss = not facts.complete or bool(facts.shortfalls)
    if may_be_false or (facts.rule_missing and may_miss):
        return "estimate"
    if facts.rule_missing:
        return "upper"
    return "lower" if may_miss else "exact"


def bound_with_unannounced_ends(bound: Bound) -> Bound:
    """The bound of a claim in which there are blocks whose end nobody announces: some of these may be gone."""
    return "upper" if bound in {"exact", "upper"} else "estimate"


def state_of(facts: SourceFacts, now: float, limits: StateLimits) -> SourceState:
    """The source's state at `now`."""
    if facts.loading:
        return "syncing"
    if facts.sequence is None:
        if facts.may_be_silent:
            return "live"
        return "syncing" if facts.syncing and facts.connected else "new"
    silent_s = NEVER if facts.alive_at is None else now - facts.alive_at
    if silent_s >= limits.score_ttl_s:
        return "down"
    if silent_s >= limits.stale_after_s or now >= facts.lease_until or facts.reloading:
        return "stale"
    if facts.syncing or facts.in_part:
        return "syncing"
    return "suspect" if facts.in_doubt else "live"


def next_change(facts: SourceFacts, now: float, limits: StateLimits) -> float:
    """The next moment at which `state_of` may differ though no fact changes."""
    if facts.alive_at is None or facts.sequence is None:
        return NEVER
    due = NEVER if now >= facts.lease_until else facts.lease_until
    for after in (limits.stale_after_s, limits.score_ttl_s):
        if now < facts.alive_at + after:
            return min(due, facts.alive_at + after)
    return due


def is_scored(state: SourceState) -> bool:
    """Whether blocks of a source in this state count."""
    return state not in {"new", "down"}


def reason_of(state: SourceState, facts: SourceFacts) -> Reason | None:
    """Why a source in this state scores nothing or nothing of it can be known; None where its events tell.

    Of several reasons the one that somebody decided (decisions/0045): an operator's word, which nothing else ends, then
    that it is not ready, which explains why nothing is heard of it better than that does.
    """
    if facts.cordoned:
        return "cordoned"
    if not facts.ready:
        return "not_ready"
    if facts.is_approximate and state == "live":
        return "approximate"
    if state == "new":
        return "no_events_yet"
    return "down" if state == "down" else None


def is_certain(state: SourceState, bound: Bound) -> bool:
    """Whether a candidate in this state leaves the whole answer `exact`."""
    return state == "live" and bound == "exact"


def degrades(state: SourceState, bound: Bound, facts: SourceFacts) -> bool:
    """Whether a candidate makes the whole answer `degraded`.

    A source that is down, cordoned or not ready is listed with 0 and does not.
    """
    if facts.is_withheld or state == "down":
        return False
    return not is_certain(state, bound)
