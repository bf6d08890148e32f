"""Story 2: a question arrives.

Which sources is it about, which hashes does its prompt have, who holds how many of them from the start, and how far
can that be trusted right now? Answers from memory; no I/O; time comes from the Clock.

    query → candidates (model, tenant, roles, names) → hashes per (block size, lookahead) → walk → entries, best first
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import numpy as np
from xxhash import xxh3_64_intdigest

from indexer.candidates import Candidates, gather, of_tenant
from indexer.entry_wire import framed
from indexer.errors import BadRequestError, FieldIssue, SchemeConflictError
from indexer.hashing import portions
from indexer.hashing.chain import SCHEME, root_seed
from indexer.hashing.extra_keys import query_extras
from indexer.hashing.memo import ChainMemo, fits
from indexer.index.states import bound_with_unannounced_ends
from indexer.index.walk import walk
from indexer.lookup_view import FleetView, encode_held_in_gpu, nothing_entry, unknown_entry
from indexer.model import DEFAULT_TENANT, TOKEN_BYTES, Expected, Match, Prompt
from indexer.question import prompt_tokens
from indexer.receipts.speculation import Speculation
from indexer.reuse import reusable_tokens
from indexer.score.prefix import DEFAULT_WEIGHTS, blocks_by_tier, reusable_blocks, score_of
from schemas.lookup import Holding, Holdings, LookupAnswer, PodEntry, PrefixTokens, Shards, TierTokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from indexer.candidates import Scene, Variant
    from indexer.index.mirror import Mirror
    from indexer.index.registry import Registry
    from indexer.index.source import SourceIndex
    from indexer.index.states import StateLimits
    from indexer.lookup_view import Encoding
    from indexer.model import AnswerState, Held, Reason
    from indexer.ports import Clock
    from indexer.receipts.answered import Answers
    from indexer.score.prefix import Weights
    from schemas.lookup import LookupQuery

CANDIDATE_SETS_MAX: Final = 256
"""Kinds of question (model, tenant, roles, names) whose candidates are kept; then all are forgotten and made anew."""
NAMES_KEPT_MAX: Final = 128
"""Questions that name more pods have their candidates chosen each time: what is kept is bounded in bytes, too."""
_SHARDS: Final = Shards()
_NO_LAG: Final = float("inf")
_LE_U64: Final = np.dtype("<u8")
_BE_U64: Final = np.dtype(">u8")
_NO_HASHES: Final = np.empty(0, _LE_U64)


class Ranked(NamedTuple):
    """A match's entry, sorted as answers are: by score, then in an order that differs between prompts."""

    worse: float
    turn: int
    listed: int
    entry: PodEntry


class Weighed(NamedTuple):
    """What the listed sources hold of a prompt, before anything is made of it. `scores`: by index, of matches."""

    scene: Scene
    prompt: Prompt
    state: AnswerState
    scores: Mapping[int, float]


class Lookup:
    """The read side of the core."""

    def __init__(
        self,
        mirror: Mirror,
        registry: Registry,
        clock: Clock,
        limits: StateLimits,
        *,
        secret: bytes = b"",
        memo_salt: int = 0,
        weights: Weights = DEFAULT_WEIGHTS,
        speculation: Speculation | None = None,
    ) -> None:
        self.view = FleetView(limits)
        self._mirror = mirror
        self._speculation = speculation or Speculation(mirror, blocks_max=0, reached=_never_reached)
        self._registry = registry
        self._clock = clock
        self._limits = limits
        self._secret = secret
        self._memo = ChainMemo(memo_salt, secret)
        self._weights = weights
        self._candidates: dict[tuple[object, ...], Candidates] = {}
        self._candidates_version = -1
        self.answers: Answers | None = None
        """Where it is noted what was answered; None: nowhere."""

    def candidates(self, query: LookupQuery) -> Candidates:
        """The sources that a question is about."""
        return self._candidates_for(query)

    def answer(self, query: LookupQuery, encoding: Encoding = "json", *, noted: bool = True) -> LookupAnswer:
        """Answer one question. Raises BadRequestError and SchemeConflictError for what only the core can judge.

        `noted`: it is an answer by which somebody may route.
        """
        started = self._clock.now()
        scene = self._scene(query, started)
        candidates = scene.candidates
        if query.overdue:
            return self._overdue(query, scene, started)
        lora_name = query.lora_name or candidates.resolved.lora_name
        blocked, usable = self._usable(query, scene)
        prompt = self._match(query, lora_name, candidates, usable)
        adapter_unknown = bool(lora_name) and lora_name not in candidates.adapter_known
        pods, reason = self._entries(query, scene, prompt, blocked, encoding, adapter_unknown=adapter_unknown)
        state = _state_of(scene, prompt, blocked)
        if noted and self.answers is not None:
            self.answers.note(query, lora_name, scene, prompt, usable)
        return LookupAnswer(
            request_id=query.request_id or "",
            model=candidates.resolved.model,
            lora_name=lora_name,
            resolved_by=candidates.resolved.resolved_by,
            nearest_model=msgspec.UNSET if candidates.resolved.known else candidates.resolved.nearest,
            prompt_tokens=prompt.tokens,
            tokenizer=query.tokenizer or msgspec.UNSET,
            state=state,
            reason=reason,
            pods=pods[: query.limit] if query.limit else pods,
            shards=_SHARDS,
            took_us=int((self._clock.now() - started) * 1e6),
        )

    def holdings(self, query: LookupQuery) -> Holdings:
        """Who holds how much, and nothing else: for answers that leave out the rest.

        The same facts as `answer` has, by the same walk, without an entry for each source that holds nothing.
        """
        scene = self._scene(query, self._clock.now())
        candidates = scene.candidates
        prompt = self._match(query, query.lora_name or candidates.resolved.lora_name, candidates, scene.usable)
        held: list[Holding] = []
        for slot, (of_slot, _, _) in prompt.matches.items():
            source, name, _ = candidates.listed[candidates.by_slot[slot]]
            gpu, cpu, storage, _ = of_slot.views
            size, descriptor = source.asking_size or 1, source.descriptor
            held.append(Holding(name or descriptor.pod, descriptor.dp_rank, gpu * size, cpu * size, storage * size))
        return Holdings(_state_of(scene, prompt, {}), held)

    def weighed(self, query: LookupQuery) -> Weighed:
        """What each source that is asked about is worth by its prefix alone: for an answer that ranks by more.

        It is an answer by which somebody routes, and is noted as such. Raises as `answer`.
        """
        scene = self._scene(query, self._clock.now())
        if query.overdue:
            return Weighed(scene, Prompt(0, {}, xxh3_64_intdigest((query.request_id or "").encode())), "no_signal", {})
        lora_name = query.lora_name or scene.candidates.resolved.lora_name
        blocked, usable = self._usable(query, scene)
        prompt = self._match(query, lora_name, scene.candidates, usable)
        if self.answers is not None:
            self.answers.note(query, lora_name, scene, prompt, usable)
        return Weighed(scene, prompt, _state_of(scene, prompt, blocked), self._scores(scene, prompt))

    def _scores(self, scene: Scene, prompt: Prompt) -> dict[int, float]:
        """By index. Many sources that hold the same of it, all in GPU memory, score alike."""
        candidates, prepared, suspect = scene.candidates, scene.prepared, self._limits.suspect_weight
        out: dict[int, float] = {}
        alike, score = (0, 0), 0.0
        for slot, (held, runs, _) in prompt.matches.items():
            index, matched = candidates.by_slot[slot], held.matched
            size = candidates.listed[index].source.asking_size or 1
            factor = suspect if prepared[index].state == "suspect" else 1.0
            if held.views[0] != matched:
                by_tier = blocks_by_tier(held, runs, slot)
                out[index] = score_of(by_tier, size, prompt.tokens, self._weights, factor)
                continue
            if alike != (matched, size):
                alike = matched, size
                score = score_of((matched, 0, 0, 0, 0), size, prompt.tokens, self._weights)
            out[index] = score * factor
        return out

    def hashes(
        self, query: LookupQuery, block_size: int, lookahead: int = 0, *, held_by: int | None = None
    ) -> NDArray[np.uint64]:
        """Token hashes of the prompt's whole blocks at that block size.

        `held_by`: a mask of slots; the hashes may end behind the first block that none of these holds.
        """
        tokens, start = query.tokens or b"", query.start
        extras = None
        if query.cache_salt or query.mm_items or lookahead or (start and not fits(block_size)):
            tokens, start = whole_image(query), ()
            extras = query_extras(
                tokens=tokens,
                block_size=block_size,
                mm_items=query.mm_items,
                cache_salt=query.cache_salt,
                lookahead=lookahead,
            )
            if lookahead:  # the engine announces a block only once the tokens after it exist
                tokens = tokens[: max(0, len(tokens) - lookahead * TOKEN_BYTES)]
        go_on = self._goes_on(held_by)
        image = self._memo.hash_image(tokens, block_size, query.lora_name, extras, go_on, start)
        if image is None:
            image = self._memo.hash_image(whole_image(query), block_size, query.lora_name, extras, go_on)
        return np.frombuffer(image or b"", _LE_U64)

    def routed_hashes(self, query: LookupQuery, source: SourceIndex, most: int) -> Iterator[NDArray[np.uint64]]:
        """Token hashes of a prompt's first whole blocks, as that source cuts it; none where it cannot be known.

        As `hashes_of`, a portion at a time; what is refused is refused before the first.
        """
        size, lookahead, given = source.asking_size, source.lookahead, query.block_hashes
        if size is None or query.block_size not in {None, size} or (given is not None and lookahead):
            return iter(())
        if given is not None and query.scheme in {None, SCHEME}:
            return iter([np.asarray(given[:most], np.uint64)])
        if given is not None:
            locals_ = np.asarray(given[:most], np.uint64).astype(_BE_U64).tobytes()
            images = portions.of_locals(self._memo, locals_, size, most)
        elif query.cache_salt or query.mm_items or lookahead:
            extras, root = portions.Extras(query.mm_items, query.cache_salt, lookahead), root_seed(size, self._secret)
            tokens = whole_image(query)
            images = portions.with_extras(tokens, size, query.lora_name, extras, parent=root, most=most)
        else:
            tokens, start, whole = query.tokens or b"", query.start, partial(whole_image, query)
            images = portions.of_tokens(self._memo, tokens, size, query.lora_name, start=start, whole=whole, most=most)
        return (np.frombuffer(image, _LE_U64) for image in images)

    def forget_prompts(self) -> None:
        """Give back the memory of prompts asked for."""
        self._memo.forget()

    def _scene(self, query: LookupQuery, now: float) -> Scene:
        if self._secret and query.scheme not in {None, SCHEME}:
            raise SchemeConflictError("hashes without this deployment's secret are refused: ask by token_ids")
        return self._candidates_for(query).at(now, self.view)

    # -- the prompt ----------------------------------------------------------------------------------------------------

    def _match(self, query: LookupQuery, lora_name: str | None, candidates: Candidates, usable: int) -> Prompt:
        if lora_name != query.lora_name:
            query = msgspec.structs.replace(query, lora_name=lora_name)
        matches: dict[int, Match] = {}
        expected: dict[int, Expected] = {}
        seed = apart = 0
        for variant, mask in candidates.variants.items():
            start = mask & usable
            hashes = self.hashes_of(query, variant, start)
            if not len(hashes):
                continue
            seed = seed or hashes.item(0)  # of the smallest variant: they are sorted
            found = walk(self._mirror, hashes, start)
            for slot, held in found.held.items():
                matches[slot] = Match(held, found.runs, hashes.item(held.matched - 1))
            longest = found.runs[-1].end if found.held else 0  # a walk ends where nobody goes on
            apart = apart or hashes.item(min(longest, len(hashes) - 1))
            if self._speculation.slots & start:
                expected |= self._expected(hashes, start, found.held)
        return Prompt(prompt_tokens(query), matches, seed or xxh3_64_intdigest(whole_image(query)), expected, apart)

    def _expected(self, hashes: NDArray[np.uint64], start: int, held: dict[int, Held]) -> dict[int, Expected]:
        """What is about to be held, by slot."""
        out: dict[int, Expected] = {}
        for slot, blocks in self._speculation.beyond(hashes, start, held).items():
            end = blocks + (held[slot].matched if slot in held else 0)
            out[slot] = Expected(blocks, hashes.item(end - 1))
        return out

    def _goes_on(self, slots: int | None) -> Callable[[int], bool] | None:
        """Whether a block is of use behind which nothing is hashed otherwise; None: all of the prompt is asked for."""
        if slots is None:
            return None
        held = partial(self._mirror.held_by_any, slots)
        if not self._speculation.slots & slots:
            return held
        expected = self._speculation.expected_of_any(slots)
        return lambda token_hash: held(token_hash) or expected(token_hash)

    def hashes_of(self, query: LookupQuery, variant: Variant, held_by: int | None) -> NDArray[np.uint64]:
        """Token hashes of what a question tells, as sources of that block size and lookahead have them; as `hashes`."""
        block_size, lookahead = variant
        given = query.block_hashes
        if query.block_size not in {None, block_size}:
            return _NO_HASHES
        if given is None:
            return self.hashes(query, block_size, lookahead, held_by=held_by)
        if lookahead:
            return _NO_HASHES
        if query.scheme not in {None, SCHEME}:
            locals_ = np.asarray(given, np.uint64).astype(_BE_U64).tobytes()
            image = self._memo.chain_image(locals_, block_size, self._goes_on(held_by))
            return np.frombuffer(image, _LE_U64)
        return np.asarray(given, np.uint64)

    # -- entries -------------------------------------------------------------------------------------------------------

    def _entries(
        self,
        query: LookupQuery,
        scene: Scene,
        prompt: Prompt,
        blocked: dict[int, Reason],
        encoding: Encoding,
        *,
        adapter_unknown: bool,
    ) -> tuple[list[PodEntry | msgspec.Raw], str | None]:
        """All entries, best first: matches by score, then those that count but hold nothing, then the rest.

        And why nobody holds anything, where nobody does.
        """
        candidates = scene.candidates
        unknown = [unknown_entry(name, "pod_unknown") for name in candidates.unknown_names]
        if query.group == "pod" or blocked or not candidates.all_of_size(query):
            ranked = self._ranked(query, scene, prompt, blocked, adapter_unknown=adapter_unknown)
            entries = [match.entry for match in ranked]
            entries += self._plain_rest(query, scene, prompt, blocked, adapter_unknown=adapter_unknown)
            entries = [*(_best_of_pods(entries) if query.group == "pod" else entries), *unknown]
            why = None if prompt.matches else candidates.common_reason({entry.reason for entry in entries})
            return list(entries), why
        pods: list[PodEntry | msgspec.Raw]
        if encoding != "msgpack":
            pods, done = self._encoded(query, scene, prompt, encoding, adapter_unknown=adapter_unknown)
        else:
            ranked = self._ranked(query, scene, prompt, blocked, adapter_unknown=adapter_unknown)
            pods, done = [match.entry for match in ranked], {match.listed for match in ranked}
        nothing = scene.nothing(encoding, prompt.tokens, adapter_unknown=adapter_unknown)
        order = candidates.order(prompt.seed)
        if scene.all_scored:
            pods += [nothing[index] for index in order if index not in done]
        else:
            rest, prepared = [index for index in order if index not in done], scene.prepared
            pods += [nothing[index] for index in rest if prepared[index].scored]
            pods += [nothing[index] for index in rest if not prepared[index].scored]
        pods += unknown
        return pods, None if prompt.matches else scene.why_nothing(prompt.tokens, adapter_unknown=adapter_unknown)

    def _ranked(
        self, query: LookupQuery, scene: Scene, prompt: Prompt, blocked: dict[int, Reason], *, adapter_unknown: bool
    ) -> list[Ranked]:
        """The entries of matches and of sources that are about to hold something, best first."""
        candidates = scene.candidates
        ranked: list[Ranked] = []
        for slot, match in prompt.matches.items():
            if slot in prompt.expected:
                continue
            index = candidates.by_slot[slot]
            entry = self._entry(query, scene, index, match, prompt.tokens, blocked.get(index))
            name = candidates.listed[index].source.rendezvous_name
            ranked.append(Ranked(-entry.score, -xxh3_64_intdigest(name, match.last_hash), index, entry))
        if not prompt.expected:
            ranked.sort()
            return ranked
        ranked += self._expectant(query, scene, prompt, blocked, adapter_unknown=adapter_unknown)
        return sorted(ranked, key=lambda each: (each.worse, -each.entry.speculative_tokens, each.turn, each.listed))

    def _expectant(
        self, query: LookupQuery, scene: Scene, prompt: Prompt, blocked: dict[int, Reason], *, adapter_unknown: bool
    ) -> list[Ranked]:
        """The entries of sources that are about to hold something; in no order."""
        candidates = scene.candidates
        ranked: list[Ranked] = []
        for slot, (blocks, last_hash) in prompt.expected.items():
            index, match = candidates.by_slot[slot], prompt.matches.get(slot)
            source, name, _ = candidates.listed[index]
            if match is None:
                why = blocked.get(index) or scene.reason(index, prompt.tokens, adapter_unknown=adapter_unknown)
                entry = nothing_entry(source, scene.prepared[index], why, name)
            else:
                entry = self._entry(query, scene, index, match, prompt.tokens, blocked.get(index))
            entry.speculative_tokens = blocks * (source.asking_size or 1)
            ranked.append(Ranked(-entry.score, -xxh3_64_intdigest(source.rendezvous_name, last_hash), index, entry))
        return ranked

    def _encoded(
        self, query: LookupQuery, scene: Scene, prompt: Prompt, encoding: Encoding, *, adapter_unknown: bool
    ) -> tuple[list[PodEntry | msgspec.Raw], set[int]]:
        """As `_ranked`, encoded where that is cheap, and their indices.

        Most matches are held in GPU memory by several sources alike: what these entries say of the prompt is encoded
        once, and stands in each source's prepared frame.
        """
        by_slot, frames = scene.candidates.by_slot, scene.frames_in(encoding)
        expected = prompt.expected
        matches = prompt.matches
        if expected:
            matches = {slot: match for slot, match in matches.items() if slot not in expected}
        ranked: list[tuple[float, int, int, PodEntry | msgspec.Raw]] = []
        alike: tuple[int, int, float] | None = None
        score, part, proto = 0.0, b"", encoding == "proto"
        for slot, (held, runs, last_hash) in matches.items():
            index = by_slot[slot]
            head, tail, size, factor, name = frames[index] or scene.frame(index, encoding)
            matched = held.matched
            if not head or held.views[0] != matched:
                match = self._entry(query, scene, index, Match(held, runs, last_hash), prompt.tokens, None)
                ranked.append((-match.score, -xxh3_64_intdigest(name, last_hash), index, match))
                continue
            if alike != (matched, size, factor):
                alike = matched, size, factor
                reusable = reusable_blocks(matched, size, prompt.tokens, partial=query.partial) * size
                score = score_of((matched, 0, 0, 0, 0), size, prompt.tokens, self._weights, factor)
                part = encode_held_in_gpu(matched * size, reusable, score, encoding)
            whole = framed(head, part) if proto else head + part + tail
            ranked.append((-score, -xxh3_64_intdigest(name, last_hash), index, msgspec.Raw(whole)))
        if expected:
            ranked += self._expectant(query, scene, prompt, {}, adapter_unknown=adapter_unknown)
            ranked.sort(key=_more_expected_first)
        else:
            ranked.sort()
        return [entry for *_, entry in ranked], {index for _, _, index, _ in ranked}

    def _entry(
        self, query: LookupQuery, scene: Scene, index: int, match: Match, prompt_tokens: int, blocked: Reason | None
    ) -> PodEntry:
        source, name, _ = scene.candidates.listed[index]
        view = scene.prepared[index]
        size = source.asking_size or 1
        held = match.held
        views = held.views
        if views[0] == held.matched:  # all of it in GPU memory
            by_tier: tuple[int, ...] = (held.matched, 0, 0, 0, 0)
            tiers = TierTokens(held.matched * size)
        else:
            by_tier = blocks_by_tier(held, match.runs, source.slot)
            tiers = TierTokens(*[blocks * size for blocks in by_tier])
        factor = self._limits.suspect_weight if view.state == "suspect" else 1.0
        bound = bound_with_unannounced_ends(view.bound) if source.may_be_gone(by_tier) else view.bound
        return PodEntry(
            pod=name or source.descriptor.pod,
            dp_rank=source.descriptor.dp_rank,
            block_size=size,
            matched_tokens=held.matched * size,
            reusable_tokens=reusable_tokens(source, size, match, prompt_tokens, partial=query.partial),
            tiers=tiers,
            prefix=PrefixTokens(views[0] * size, views[1] * size, views[2] * size, views[3] * size),
            score=score_of(by_tier, size, prompt_tokens, self._weights, factor),
            state=view.state,
            bound=bound,
            lag_ms=view.lag_ms,
            event_age_ms=view.event_age_ms,
            generation=view.generation,
            sequence=view.sequence,
            reason=blocked or ("hybrid_window" if source.facts.rule_missing else None),
        )

    def _plain_rest(
        self,
        query: LookupQuery,
        scene: Scene,
        prompt: Prompt,
        blocked: dict[int, Reason],
        *,
        adapter_unknown: bool,
    ) -> list[PodEntry]:
        """Entries that hold nothing, not encoded yet: where their reasons differ from the ready-made ones."""
        listed = scene.candidates.listed
        out: list[PodEntry] = []
        for index in scene.candidates.order(prompt.seed):
            source, name, _ = listed[index]
            if source.slot in prompt.matches or source.slot in prompt.expected:
                continue
            reason = blocked.get(index) or scene.reason(index, prompt.tokens, adapter_unknown=adapter_unknown)
            if query.block_hashes is not None and reason in {"no_match", "below_block_size", "lookahead"}:
                reason = "other_block_size" if source.asking_size != query.block_size else reason
                reason = "lookahead" if source.lookahead else reason
            out.append(nothing_entry(source, scene.prepared[index], reason, name))
        out.sort(key=lambda entry: entry.state in {"new", "down"} or entry.reason in {"cordoned", "not_ready"})
        return out

    def _overdue(self, query: LookupQuery, scene: Scene, started: float) -> LookupAnswer:
        """The prompt was not known in time: nothing is said of anybody, and why."""
        candidates = scene.candidates
        resolved = candidates.resolved
        entries = [
            nothing_entry(listed.source, view, "deadline", listed.name)
            for listed, view in zip(candidates.listed, scene.prepared, strict=True)
        ]
        entries += [unknown_entry(name, "pod_unknown") for name in candidates.unknown_names]
        shown: list[PodEntry | msgspec.Raw] = list(_best_of_pods(entries) if query.group == "pod" else entries)
        return LookupAnswer(
            request_id=query.request_id or "",
            model=resolved.model,
            lora_name=query.lora_name or resolved.lora_name,
            resolved_by=resolved.resolved_by,
            prompt_tokens=0,
            state="no_signal",
            reason="pod_unknown" if candidates.unknown_names and not candidates.listed else "deadline",
            pods=shown[: query.limit] if query.limit else shown,
            shards=_SHARDS,
            took_us=int((self._clock.now() - started) * 1e6),
        )

    # -- trust ---------------------------------------------------------------------------------------------------------

    def _blocked(self, query: LookupQuery, scene: Scene) -> dict[int, Reason]:
        """Listed sources that do not meet what this question demands: too far behind, or a sequence not yet applied."""
        out: dict[int, Reason] = {}
        candidates = scene.candidates
        for index, (candidate, view) in enumerate(zip(candidates.listed, scene.prepared, strict=True)):
            if candidate.excluded is None and view.scored and query.max_lag_ms is not None:
                lag_ms = _NO_LAG if view.lag_ms is None else view.lag_ms
                if lag_ms > query.max_lag_ms:
                    out[index] = "lagging"
        for name, sequence in (query.min_sequence or {}).items():
            for source in of_tenant(self._registry, name, query.tenant or DEFAULT_TENANT):
                position = candidates.by_slot.get(source.slot)
                applied = source.facts.sequence
                if position is not None and (applied is None or applied < sequence):
                    out[position] = "deadline"
        return out

    def _usable(self, query: LookupQuery, scene: Scene) -> tuple[dict[int, Reason], int]:
        """What `_blocked` says, and the slots whose blocks count for this question."""
        if query.max_lag_ms is None and not query.min_sequence:
            return {}, scene.usable
        blocked, usable = self._blocked(query, scene), scene.usable
        for index, why in blocked.items():
            if why == "lagging":
                usable &= ~(1 << scene.candidates.listed[index].source.slot)
        return blocked, usable

    def _candidates_for(self, query: LookupQuery) -> Candidates:
        if self._candidates_version != self._registry.version or len(self._candidates) > CANDIDATE_SETS_MAX:
            self._candidates.clear()
            self._candidates_version = self._registry.version
        if query.pods is not None and len(query.pods) > NAMES_KEPT_MAX:
            return gather(self._registry, query)
        key = (query.model, query.tenant, query.pods, query.pod_roles)
        candidates = self._candidates.get(key)
        if candidates is None:
            candidates = self._candidates[key] = gather(self._registry, query)
        return candidates


def whole_image(query: LookupQuery) -> bytes:
    """The little-endian u32 image of all tokens of a prompt, also of those that are told by digests."""
    return (query.tokens or b"") if query.whole is None else query.whole()


def hash_block_size(query: LookupQuery) -> int:
    """The block size a hash request names; raises where it names none."""
    if not query.block_size:
        raise BadRequestError("block_size.required", [FieldIssue("block_size", "needed to cut the prompt into blocks")])
    return query.block_size


def _more_expected_first(ranked: tuple[float, int, int, PodEntry | msgspec.Raw]) -> tuple[float, int, int, int]:
    """Of those that score alike. An encoded entry expects nothing."""
    worse, turn, listed, entry = ranked
    return worse, 0 if isinstance(entry, msgspec.Raw) else -entry.speculative_tokens, turn, listed


def _state_of(scene: Scene, prompt: Prompt, blocked: Mapping[int, Reason]) -> AnswerState:
    if not scene.heard:
        return "no_signal"
    return "degraded" if scene.degraded or blocked or _may_be_gone(scene, prompt) else "exact"


def _may_be_gone(scene: Scene, prompt: Prompt) -> bool:
    """Whether a match counts blocks in a tier whose producers announce no removals."""
    if not scene.unannounced:
        return False
    listed, by_slot = scene.candidates.listed, scene.candidates.by_slot
    return any(
        listed[by_slot[slot]].source.may_be_gone(blocks_by_tier(held, runs, slot))
        for slot, (held, runs, _) in prompt.matches.items()
        if scene.unannounced >> slot & 1 and held.views[0] != held.matched
    )


def _never_reached(_: str) -> None:
    """Nothing is ever expected."""


def _best_of_pods(entries: Sequence[PodEntry]) -> list[PodEntry]:
    """One entry a pod: its best rank. Entries come best first."""
    best: dict[str, PodEntry] = {}
    for entry in entries:
        best.setdefault(entry.pod, entry)
    return list(best.values())
