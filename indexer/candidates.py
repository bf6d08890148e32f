"""Which sources an answer lists, and what is ready-made of their entries. No I/O; time is given.

`Candidates` is everything of a question that does not depend on its prompt: model, tenant, roles and names. It is
made once and kept while the registry's version stands. `Scene` is the same sources at one moment: whose blocks count,
whether the answer can be exact, and the encoded entries of those that turn out to hold nothing, which in a large
fleet are nearly all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from xxhash import xxh3_64_intdigest

from indexer.errors import SourceUnknownError
from indexer.lookup_view import encode_nothing, frame_of
from indexer.model import DEFAULT_TENANT
from indexer.trust import trust_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    import msgspec

    from indexer.index.registry import Registry, Resolved
    from indexer.index.source import SourceIndex
    from indexer.lookup_view import Encoding, FleetView, Frame, Prepared
    from indexer.model import Reason, SourceId
    from schemas.lookup import LookupQuery

ORDER_BUCKETS: Final = 64
_NO_CANDIDATE: Final[AbstractSet[str]] = frozenset({"other_model", "model_unknown", "filtered", "pod_unknown"})
"""Of entries that are there because the question names them."""
_MAY_BE_SENT: Final[AbstractSet[str | None]] = frozenset({None, "model_unknown"})
_WITHHELD: Final[AbstractSet[str | None]] = frozenset({"cordoned", "not_ready"})
Variant = tuple[int, int]
"""(block size, lookahead tokens): sources that share both share a prompt's hashes."""


class Candidate(NamedTuple):
    """One source an answer lists: the name the caller used (None: its own), and why it is no candidate, if so."""

    source: SourceIndex
    name: str | None
    excluded: Reason | None


class Lineup(NamedTuple):
    """Who the listed sources of an answer were, for a memory that must not keep what they hold.

    By index: the name of each, its slot and its block size.
    """

    names: tuple[bytes, ...]
    slots: tuple[int, ...]
    block_sizes: tuple[int | None, ...]


class Standing(NamedTuple):
    """Those among listed sources to whom a request may be sent at one moment, by index."""

    ready: tuple[int, ...]
    prefill: tuple[int, ...]
    """Who takes the prompt; none where no engine is there for that alone."""
    decode: tuple[int, ...]
    """Who makes the answer, be it of a prompt that another took."""
    stale: frozenset[int]
    """Of these nothing was heard for a while."""
    ids: tuple[SourceId, ...]
    """Of all listed, in their order."""
    names: tuple[str, ...]
    """Under which an answer tells them."""
    called: Mapping[str, tuple[SourceId, ...]]
    """All ids of a name."""


@dataclass(slots=True)
class Candidates:
    """The listed sources of one kind of question. `by_slot`: index into `listed`, in its order."""

    resolved: Resolved
    listed: tuple[Candidate, ...]
    unknown_names: tuple[str, ...]
    adapter_known: set[str]
    variants: dict[Variant, int] = field(default_factory=dict)
    longest: int = 0
    """Tokens from which on no source finds a prompt too short for one block."""
    by_slot: dict[int, int] = field(default_factory=dict)
    orders: dict[int, tuple[int, ...]] = field(default_factory=dict)
    scene: Scene | None = None
    lineup: Lineup | None = None
    """Made on first use (`lineup_of`)."""

    def order(self, seed: int) -> tuple[int, ...]:
        """The listed sources in an order that is the same in every replica and different for different prompts."""
        bucket = seed % ORDER_BUCKETS
        order = self.orders.get(bucket)
        if order is None:
            names = [candidate.source.rendezvous_name for candidate in self.listed]
            ranked = sorted(range(len(names)), key=lambda i: xxh3_64_intdigest(names[i], bucket), reverse=True)
            order = self.orders[bucket] = tuple(ranked)
        return order

    def all_of_size(self, query: LookupQuery) -> bool:
        """Whether no source has a reason of its own to hold nothing of what the question tells by hashes."""
        return query.block_hashes is None or [(query.block_size, 0)] == list(self.variants)

    def common_reason(self, of_entries: AbstractSet[str | None]) -> str:
        """Why nobody holds anything: what all entries say, else what all candidates do, else `no_match`.

        Without entries: what left none.
        """
        if self.resolved.elsewhere:
            return "other_model"  # also where pods are named, of which those that serve it are not known here
        if not self.resolved.known and len(of_entries) != 1:
            return "model_unknown"
        for reasons in (of_entries, of_entries - _NO_CANDIDATE):
            if len(reasons) == 1:
                return next(iter(reasons)) or "no_match"
        if of_entries:
            return "no_match"
        return "filtered" if self.resolved.sources else "no_events_yet"

    def at(self, now: float, view: FleetView) -> Scene:
        """These sources at `now`: the last scene, brought up to date where few facts changed, else a new one."""
        scene = self.scene
        if scene is None or now >= scene.until or not scene.follow(now, view):
            scene = self.scene = Scene(self, now, view)
        return scene


class Scene:
    """Candidates at one moment."""

    __slots__ = (
        "_frames",
        "_nothing",
        "_standing",
        "_unscored",
        "_unsure",
        "_view",
        "_why_nothing",
        "candidates",
        "epoch",
        "generations",
        "hybrid",
        "prepared",
        "trust",
        "unannounced",
        "until",
        "usable",
    )

    def __init__(self, candidates: Candidates, now: float, view: FleetView) -> None:
        self.candidates = candidates
        self.epoch = view.epoch
        self.usable = 0
        self.until = float("inf")
        self._unsure = 0
        self._unscored = 0
        self._view = view
        self._frames: dict[Encoding, list[Frame | None]] = {}
        self.generations: tuple[int, ...] = tuple(listed.source.facts.generation for listed in candidates.listed)
        """Never changed in place, by index: who remembers an answer keeps it."""
        self.hybrid = 0
        """Slots of the sources whose reuse follows from more than how much they hold."""
        self.unannounced = 0
        """Slots of the sources that store where removals are not announced."""
        self.trust = bytearray(len(candidates.listed))
        """By index: how far each could be trusted (`trust_of`)."""
        self.prepared: list[Prepared] = [view.prepared(candidate.source, now) for candidate in candidates.listed]
        for index in range(len(self.prepared)):
            self._account(index)
        self._nothing: dict[tuple[Encoding, int, bool], list[msgspec.Raw]] = {}
        self._standing: Standing | None = None
        self._why_nothing: dict[tuple[int, bool], str] = {}

    @property
    def heard(self) -> bool:
        """Whether anything is known of any candidate."""
        return self.usable != 0

    @property
    def all_scored(self) -> bool:
        """Whether every listed source may score."""
        return self._unscored == 0

    @property
    def degraded(self) -> bool:
        """Whether a candidate keeps the answer from being exact."""
        return self._unsure != 0

    def follow(self, now: float, view: FleetView) -> bool:
        """Take in the sources touched since; False where it is better to begin anew."""
        if self.epoch == view.epoch:
            return True
        touched = view.touched_since(self.epoch)
        if touched is None:
            return False
        for source in set(touched):
            index = self.candidates.by_slot.get(source.slot)
            if index is None or self.candidates.listed[index].source is not source:
                continue
            before, after = self.prepared[index], view.prepared(source, now)
            self.prepared[index] = after
            for frames in self._frames.values():
                frames[index] = None
            self._account(index)
            if (before.state, before.reason) != (after.state, after.reason):  # else each batch of events would cost it
                self._standing = None
            for (encoding, prompt_tokens, adapter_unknown), entries in self._nothing.items():
                entries[index] = self._encode(index, encoding, prompt_tokens, adapter_unknown=adapter_unknown)
        self._why_nothing.clear()
        self.epoch = view.epoch
        return True

    def _account(self, index: int) -> None:
        """Whether the source counts, and whether it makes the answer less than exact."""
        source, _, excluded = self.candidates.listed[index]
        state = self.prepared[index]
        self.trust[index] = trust_of(state.state, state.bound, state.lag_ms)
        generation = source.facts.generation
        if self.generations[index] != generation:
            self.generations = (*self.generations[:index], generation, *self.generations[index + 1 :])
        self.until = min(self.until, state.until)
        self._unscored = self._unscored & ~(1 << index) | (not state.scored) << index
        bit = 1 << source.slot
        self.hybrid = self.hybrid & ~bit | (bit if source.rules else 0)
        self.unannounced = self.unannounced & ~bit | (bit if source.has_unannounced_ends else 0)
        self.usable &= ~bit
        self._unsure &= ~bit
        if excluded is None:
            self.usable |= bit if state.scored else 0
            self._unsure |= bit if state.degrades else 0

    @property
    def standing(self) -> Standing:
        """To whom a request may be sent. Made on first use."""
        if self._standing is None:
            self._standing = _standing_of(self.candidates, self.prepared)
        return self._standing

    def frames_in(self, encoding: Encoding) -> list[Frame | None]:
        """The frames of the listed sources, where made already; else `frame` makes one."""
        frames = self._frames.get(encoding)
        if frames is None:
            frames = self._frames[encoding] = [None] * len(self.prepared)
        return frames

    def frame(self, index: int, encoding: Encoding) -> Frame:
        """The frame of a listed source, made on first use."""
        source, name, _ = self.candidates.listed[index]
        weight = self._view.limits.suspect_weight
        frame = self.frames_in(encoding)[index] = frame_of(source, self.prepared[index], name, weight, encoding)
        return frame

    def nothing(self, encoding: Encoding, prompt_tokens: int, *, adapter_unknown: bool) -> list[msgspec.Raw]:
        """Encoded entries of all listed sources, should they hold nothing of a prompt of that length."""
        longest = self.candidates.longest
        key = (encoding, min(prompt_tokens, longest), adapter_unknown)
        entries = self._nothing.get(key)
        if entries is None:
            entries = self._nothing[key] = [
                self._encode(index, *key[:2], adapter_unknown=adapter_unknown) for index in range(len(self.prepared))
            ]
        return entries

    def _encode(self, index: int, encoding: Encoding, prompt_tokens: int, *, adapter_unknown: bool) -> msgspec.Raw:
        source, name, _ = self.candidates.listed[index]
        reason = self.reason(index, prompt_tokens, adapter_unknown=adapter_unknown)
        return encode_nothing(source, self.prepared[index], reason, name, encoding)

    def why_nothing(self, prompt_tokens: int, *, adapter_unknown: bool) -> str:
        """Why nobody holds anything of a prompt of that length, where each entry has the reason that is ready-made."""
        key = (min(prompt_tokens, self.candidates.longest), adapter_unknown)
        why = self._why_nothing.get(key)
        if why is None:
            reasons: set[str] = {"pod_unknown"} if self.candidates.unknown_names else set()
            for index in range(len(self.prepared)):
                reasons.add(self.reason(index, key[0], adapter_unknown=adapter_unknown))
            why = self._why_nothing[key] = self.candidates.common_reason(reasons)
        return why

    def reason(self, index: int, prompt_tokens: int, *, adapter_unknown: bool) -> Reason:
        """Why a listed source holds nothing of a prompt of that length."""
        source, _, excluded = self.candidates.listed[index]
        state = self.prepared[index]
        why = excluded or state.reason
        if why is not None:
            return why
        if source.facts.rule_missing:
            return "hybrid_window"
        size = source.asking_size
        if size is None:
            return "syncing" if state.state == "syncing" else "block_size_unknown"
        if prompt_tokens < size:
            return "below_block_size"
        if prompt_tokens < size + source.lookahead:
            return "lookahead"
        if adapter_unknown:
            return "adapter_unknown"
        return "syncing" if state.state == "syncing" else "no_match"


def gather(registry: Registry, query: LookupQuery) -> Candidates:
    """The sources a question is about. With `pods`, every named one is listed, also those that are no candidates."""
    tenant = query.tenant or DEFAULT_TENANT
    resolved = registry.resolve(query.model, tenant)
    roles = query.pod_roles
    unknown: list[str] = []
    if query.pods is None:
        listed = [Candidate(source, None, None) for source in resolved.sources if _has_role(source, roles)]
    else:
        listed, unknown = _by_name(registry, query.pods, tenant, resolved, roles)
    candidates = Candidates(resolved, tuple(listed), tuple(unknown), _adapters(listed))
    for index, candidate in enumerate(listed):
        source = candidate.source
        candidates.by_slot[source.slot] = index
        size = source.asking_size
        if candidate.excluded is None and size is not None:
            variant = (size, source.lookahead)
            candidates.variants[variant] = candidates.variants.get(variant, 0) | 1 << source.slot
            candidates.longest = max(candidates.longest, sum(variant))
    candidates.variants = dict(sorted(candidates.variants.items()))
    return candidates


def _adapters(listed: Sequence[Candidate]) -> set[str]:
    """Those that events told of, or that engines list."""
    known = {adapter for candidate in listed for adapter in candidate.source.adapters}
    for candidate in listed:
        served = candidate.source.serves
        if served is not None:
            known.update(served.adapters)
    return known


def lineup_of(candidates: Candidates) -> Lineup:
    """Who they were when the candidates were chosen."""
    of_variants = [(size, mask) for (size, _), mask in candidates.variants.items()]
    slots = tuple(candidates.by_slot)
    return Lineup(
        tuple(candidate.source.rendezvous_name for candidate in candidates.listed),
        slots,
        tuple(next((size for size, mask in of_variants if mask >> slot & 1), None) for slot in slots),
    )


def _standing_of(candidates: Candidates, prepared: Sequence[Prepared]) -> Standing:
    """Where the model is not known here, a pod that the caller names may still serve it."""
    descriptors = [candidate.source.descriptor for candidate in candidates.listed]
    ready = tuple(
        index
        for index, (candidate, view) in enumerate(zip(candidates.listed, prepared, strict=True))
        if candidate.excluded in _MAY_BE_SENT and view.state != "down" and view.reason not in _WITHHELD
    )
    split = any(descriptors[index].role == "prefill" for index in ready)
    ids = tuple(descriptor.id for descriptor in descriptors)
    names = tuple(candidate.name or source.pod for candidate, source in zip(candidates.listed, ids, strict=True))
    called: dict[str, tuple[SourceId, ...]] = {}
    for name, source in zip(names, ids, strict=True):
        called[name] = (*called.get(name, ()), source)
    return Standing(
        ready,
        tuple(index for index in ready if descriptors[index].role != "decode") if split else (),
        tuple(index for index in ready if descriptors[index].role != "prefill"),
        frozenset(index for index in ready if prepared[index].state == "stale"),
        ids,
        names,
        called,
    )


def _by_name(
    registry: Registry, names: tuple[str, ...], tenant: str, resolved: Resolved, roles: tuple[str, ...] | None
) -> tuple[list[Candidate], list[str]]:
    """The named sources, each under the first name that led to it, and the names that lead nowhere."""
    members = {id(source) for source in resolved.sources}
    listed: dict[int, Candidate] = {}
    unknown: list[str] = []
    for name in dict.fromkeys(names):
        named = of_tenant(registry, name, tenant)
        if not named:
            unknown.append(name)
        for source in named:
            excluded: Reason | None = None
            if id(source) not in members:
                excluded = "other_model" if resolved.known or resolved.elsewhere else "model_unknown"
            elif not _has_role(source, roles):
                excluded = "filtered"
            listed.setdefault(id(source), Candidate(source, name, excluded))
    return list(listed.values()), unknown


def of_tenant(registry: Registry, name: str, tenant: str) -> list[SourceIndex]:
    """Sources of other tenants do not exist for this one."""
    try:
        return [source for source in registry.named(name) if source.descriptor.tenant == tenant]
    except SourceUnknownError:
        return []


def _has_role(source: SourceIndex, roles: tuple[str, ...] | None) -> bool:
    """An engine of role `both` serves either kind of request."""
    return roles is None or source.descriptor.role in roles or source.descriptor.role == "both"
