"""Story 3: somebody asks why. No I/O; time comes from the Clock.

    question → the lookup's own answer → facts of each source (the missing block, where it went, who else holds it) →
    findings

The answer of the lookup is taken as it is, so that an explanation never explains another one. Work is done a source at
a time; between two others may run, and what has changed by then is said.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import msgspec

from indexer.explain.decision import UNSCORED, decide
from indexer.explain.facts import Facts
from indexer.explain.lives import life_of
from indexer.explain.missing import Missing, Question, whole_blocks
from indexer.lookup_view import unknown_entry
from indexer.moments import utc_text
from schemas.explain import ExplainAnswer, MissingBlock, PodExplanation, RemovedBlock
from schemas.lookup import PodEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Mapping, Sequence

    from indexer.explain.facts import Gone
    from indexer.history import Told
    from indexer.index.mirror import Mirror
    from indexer.index.registry import Registry
    from indexer.index.source import SourceIndex
    from indexer.lookup import Lookup
    from indexer.model import SourceId, Tier
    from indexer.ports import Clock
    from schemas.lookup import LookupQuery

EXACT_S: Final = 5.0
"""Generations are numbered by wall clocks of several machines: a life that began so much earlier was not seen whole."""
HOLDERS_NAMED: Final = 3
DONE_ANYWAY_S: Final = 0.001
"""What fits into this is done under any deadline."""

_decode: Final = msgspec.msgpack.Decoder(PodEntry).decode


class Explainer:
    """`follows`: whether another replica applies a source's events; `told`: what is known of its history."""

    def __init__(
        self,
        lookup: Lookup,
        registry: Registry,
        mirror: Mirror,
        clock: Clock,
        *,
        tier_ttls: Mapping[Tier, float],
        follows: Callable[[SourceId], bool],
        told: Callable[[SourceId], Collection[Told]],
    ) -> None:
        self._lookup = lookup
        self._registry = registry
        self._mirror = mirror
        self._clock = clock
        self._follows = follows
        self._told = told
        self._missing = Missing(mirror, clock, tier_ttls)

    def explain(self, query: LookupQuery, dp_rank: int | None = None) -> Generator[None, None, ExplainAnswer]:
        """All sources that the question is about, in the order of the lookup's answer.

        A generator that returns it; between its steps others may run. Raises as a lookup does.
        """
        began = self._clock.now()
        limit = query.limit
        query = msgspec.structs.replace(query, group="rank", limit=0)
        answer = self._lookup.answer(query, "msgpack", noted=False)
        query = msgspec.structs.replace(query, lora_name=answer.lora_name)
        entries = [each if isinstance(each, PodEntry) else _decode(each) for each in answer.pods]
        if dp_rank is not None:
            entries = _of_rank(entries, query.pods or (), dp_rank)
            if not entries:
                answer.state, answer.reason = "no_signal", "pod_unknown"
        entries = entries[:limit] if limit else entries
        listed = self._lookup.candidates(query).listed
        sources = {(name or source.descriptor.pod, source.descriptor.dp_rank): source for source, name, _ in listed}
        question = Question(self._lookup, query, sum(1 << source.slot for source in sources.values()))
        yield
        holders = self._holders(query, entries)
        ends = None if query.timeout_ms is None else began + max(DONE_ANYWAY_S, query.timeout_ms / 1_000)
        pods: list[PodExplanation] = []
        for entry in entries:
            yield
            source = sources.get((entry.pod, entry.dp_rank))
            facts = Facts(entry=entry, prompt_tokens=answer.prompt_tokens, partial=query.partial)
            if source is not None:
                if ends is not None and self._clock.now() > ends:
                    entry.reason = "deadline"
                facts = yield from self._facts(facts, question, source, holders)
                facts = self._with_life(facts, source, self._told(source.descriptor.id))
            pods.append(self._explained(facts))
        return ExplainAnswer(
            request_id=answer.request_id,
            model=answer.model,
            lora_name=answer.lora_name,
            resolved_by=answer.resolved_by,
            nearest_model=answer.nearest_model,
            prompt_tokens=answer.prompt_tokens,
            tokenizer=answer.tokenizer,
            state=answer.state,
            reason=answer.reason,
            pods=pods,
            took_us=int((self._clock.now() - began) * 1e6),
        )

    def _holders(self, query: LookupQuery, entries: Sequence[PodEntry]) -> tuple[str, ...]:
        """Pods that hold the beginning of the prompt, where somebody does not: all that may be asked about count."""
        if all(entry.matched_tokens or entry.reason in UNSCORED for entry in entries):
            return ()
        held = self._lookup.holdings(msgspec.structs.replace(query, pods=None, pod_roles=None)).held
        return tuple(dict.fromkeys(each.pod for each in held))

    def _facts(
        self, facts: Facts, question: Question, source: SourceIndex, holders: Collection[str]
    ) -> Generator[None, None, Facts]:
        """With what is known of the prompt's blocks there."""
        entry = facts.entry
        if entry.reason in UNSCORED and entry.reason != "adapter_unknown":
            return facts
        blocks = whole_blocks(question.query, source, facts.prompt_tokens)
        if blocks is None or not self._is_as_told(source, entry):
            return replace(facts, changed=blocks is not None)
        if entry.matched_tokens >= blocks * (source.block_size or 1):
            return replace(facts, blocks=blocks)
        others = [name for name in holders if name not in {entry.pod, source.descriptor.pod}]
        miss = yield from self._missing.of(question, source, entry, others[:HOLDERS_NAMED])
        return replace(facts, blocks=blocks, miss=miss, changed=miss is None)

    def _is_as_told(self, source: SourceIndex, entry: PodEntry) -> bool:
        """Whether it is there still, in the life that the lookup saw."""
        is_there = self._registry.sources.get(source.descriptor.id) is source
        return is_there and f"{source.facts.generation:x}" == entry.generation

    def _with_life(self, facts: Facts, source: SourceIndex, told: Collection[Told]) -> Facts:
        """With how its stream and its present life are."""
        of, now, wall_us = source.facts, self._clock.now(), self._clock.wall_us()
        life = life_of(of, told, wall_us)
        removals = self._mirror.removals
        known_since = removals.known_since(source.slot)
        began_at = now - (wall_us - of.generation) / 1e6
        is_cut = removals.has_forgotten(source.slot) or known_since > began_at + EXACT_S
        return replace(
            facts,
            removals_kept=removals.is_kept,
            removals_known_s=max(0.0, now - known_since) if is_cut else None,
            blocks_held=sum(source.holdings.blocks),
            waiting=source.holdings.waiting,
            silent_s=None if of.alive_at is None else max(0.0, now - of.alive_at),
            complete=of.complete,
            joined_at=life.joined_at,
            doubts=frozenset(of.doubts | of.suspicions),
            shortfalls=frozenset(of.shortfalls),
            rule_missing=of.rule_missing,
            begins_salted=source.begins_salted,
            begins_plain=source.begins_plain,
            lost=life.lost,
            began=life.began,
            followed=self._follows(source.descriptor.id),
        )

    def _explained(self, facts: Facts) -> PodExplanation:
        """In the form of the answer."""
        entry, miss = facts.entry, facts.miss
        first, *further = decide(facts)
        missing = None
        if miss is not None:
            size = entry.block_size or 1
            begin = miss.block * size
            missing = MissingBlock(
                block=miss.block, first_token=begin, end_token=begin + size, hash=f"{miss.hash:016x}"
            )
        return PodExplanation(
            pod=entry.pod,
            dp_rank=entry.dp_rank,
            state=entry.state,
            bound=entry.bound,
            lag_ms=entry.lag_ms,
            generation=entry.generation,
            sequence=entry.sequence,
            block_size=entry.block_size,
            prompt_blocks=facts.blocks,
            matched_tokens=entry.matched_tokens,
            reusable_tokens=entry.reusable_tokens,
            missing=missing,
            code=first.code,
            why=first.why,
            advice=first.advice,
            removed=None if missing is None or miss is None or miss.gone is None else self._removed(miss.gone),
            further=further,
        )

    def _removed(self, gone: Gone) -> RemovedBlock:
        at = utc_text(self._clock.wall_us() / 1e6 - gone.ago_s)
        return RemovedBlock(at=at, ago_ms=int(gone.ago_s * 1_000), tier=gone.tier, group=gone.group)


def _of_rank(entries: Sequence[PodEntry], named: Sequence[str], dp_rank: int) -> list[PodEntry]:
    """Those of that rank; where none has it, that of each pod that was named it is not known."""
    kept = [entry for entry in entries if entry.dp_rank == dp_rank and entry.reason != "pod_unknown"]
    if not kept:
        kept = [unknown_entry(name, "pod_unknown") for name in dict.fromkeys(named)]
        for entry in kept:
            entry.dp_rank = dp_rank
    return kept
