"""One answer as it is remembered: what it said of each source, in few numbers. Pure.

Of a source there is one byte (trust.py) and, where it held something, a bit: a fleet of a thousand costs 2 KB an
answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from indexer.index.states import bound_with_unannounced_ends
from indexer.reuse import reusable_tokens
from indexer.score.prefix import blocks_by_tier, reusable_blocks
from indexer.trust import Trust, in_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from indexer.candidates import Candidates, Lineup
    from indexer.model import Expected, Held, Match, Prompt, SourceId
    from schemas.lookup import LookupQuery

AT_ONCE_MAX: Final = 32
"""Sources that hold something, not all alike: so many are looked at in the lookup itself, for less than keeping them
for later costs."""
GROUP: Final = 5
_NOTHING: Final = (0, 0, 0, 0, 0)
FED_MAX: Final = 16
"""Reports remembered of one answer: only prompts that are named without its request have more than one or two."""
Fed = Literal["first", "repeated", "unsure"]
"""What a report of an answer is; `unsure`: it names no request, or more came than are remembered."""


class Predicted(NamedTuple):
    """What an answer said of one source, and how far it could be trusted. `best_tokens`: of the best source."""

    matched_tokens: int
    reusable_tokens: int
    gpu_tokens: int
    """Of the matched ones: the longest prefix wholly in GPU memory."""
    best_tokens: int
    block_size: int | None
    generation: int
    unannounced: bool
    """Some of it lies where ends are not announced."""
    trust: Trust


class Answered(msgspec.Struct, gc=False):
    """One answer. Until it is made small it holds the lookup's own `matches` and `candidates`.

    Nothing in it leads back to it, and there are tens of thousands: the garbage collector need not look.
    """

    at: float
    tenant: str
    request_id: str
    model: str | None
    lora_name: str | None
    prompt_tokens: int
    partial: bool
    usable: int
    """Slots of the sources that the answer could count."""
    trust: bytes
    generations: tuple[int, ...]
    lineup: Lineup
    size: int
    groups: tuple[int, ...] = ()
    """Sources of which it said the same, `GROUP` numbers each: matched, reusable, in GPU memory, whether some of it
    may be gone unannounced, slots."""
    salt: int = 0
    """A digest of the prompt's salt; 0: it had none."""
    open_end: bool = False
    """The prompt was told by hashes, which say nothing of the tokens behind the last whole block."""
    matches: dict[int, Match] | None = None
    candidates: Candidates | None = None
    query: LookupQuery | None = None
    """With its prompt, for as long as that is kept."""
    prompt_bytes: int = 0
    digest: bytes | None = None
    routed: SourceId | None = None
    """Where the request was reported to have been sent."""
    fed: tuple[int, ...] = ()
    """Reports that came of it: digests of source and request id."""
    expected: tuple[int, ...] = ()
    """Slots of engines that announce nothing, each followed by the tokens that were expected of it."""

    def feed(self, name: bytes, request_id: str | None) -> Fed:
        """A report of that source and request; whether it came before."""
        if request_id is None:
            return "unsure"
        report = hash((name, request_id))
        if report in self.fed:
            return "repeated"
        surely = len(self.fed) < FED_MAX
        self.fed = (*self.fed[1 - FED_MAX :], report)
        return "first" if surely else "unsure"

    def predicted(self, name: bytes) -> Predicted | None:
        """What it said of the source of that rendezvous name; None where it was not among those that could count."""
        lineup = self.lineup
        if name not in lineup.names:
            return None
        index = lineup.names.index(name)
        bit = 1 << lineup.slots[index]
        if not self.usable & bit:
            return None
        said = (self.groups[at : at + GROUP] for at in range(0, len(self.groups), GROUP))
        matched, reusable, gpu, unannounced, _ = next((each for each in said if each[-1] & bit), _NOTHING)
        expected = dict(zip(self.expected[::2], self.expected[1::2], strict=True))
        if lineup.slots[index] in expected:
            matched = gpu = expected[lineup.slots[index]]
            reusable = self._reused(matched, lineup.block_sizes[index] or 1)
        trust = in_words(self.trust[index])
        return Predicted(
            matched_tokens=matched,
            reusable_tokens=reusable,
            gpu_tokens=gpu,
            best_tokens=max((reusable, *self.groups[1::GROUP], *self._best_expected())),
            block_size=lineup.block_sizes[index],
            generation=self.generations[index],
            unannounced=bool(unannounced),
            trust=trust._replace(bound=bound_with_unannounced_ends(trust.bound)) if unannounced else trust,
        )

    def _best_expected(self) -> Iterator[int]:
        slots, sizes = self.lineup.slots, self.lineup.block_sizes
        for slot, tokens in zip(self.expected[::2], self.expected[1::2], strict=True):
            yield self._reused(tokens, sizes[slots.index(slot)] or 1)

    def _reused(self, tokens: int, size: int) -> int:
        """Of so many, held from the beginning."""
        return reusable_blocks(tokens // size, size, self.prompt_tokens, partial=self.partial) * size


def groups_at_once(candidates: Candidates, prompt: Prompt, usable: int, *, partial: bool) -> tuple[int, ...] | None:
    """As `groups_of`, where all are of one block size, and whatever is held is reused and its end announced.

    None where there are so many that it is better done later.
    """
    matches = prompt.matches
    if not matches:
        return ()
    ((size, _), slots), *_ = candidates.variants.items()
    held, runs, _ = next(iter(matches.values()))
    if len(runs) == 1 and runs[0].record.plain:  # the usual prompt: the same sources hold all of what is held
        tokens = held.matched * size
        reused = reusable_blocks(held.matched, size, prompt.tokens, partial=partial) * size
        return tokens, reused, tokens, 0, runs[0].record.any & slots & usable
    return _groups_unlike(prompt, size, partial=partial) if len(matches) <= AT_ONCE_MAX else None


def expected_of(expected: Mapping[int, Expected], candidates: Candidates) -> tuple[int, ...]:
    """What is expected of engines that announce nothing: it is all that an answer says of these."""
    told: list[int] = []
    for slot, (blocks, _) in expected.items():
        source = candidates.listed[candidates.by_slot[slot]].source
        if source.facts.is_approximate:
            told += slot, blocks * (source.asking_size or 1)
    return tuple(told)


def _groups_unlike(prompt: Prompt, size: int, *, partial: bool) -> tuple[int, ...]:
    by_held: dict[tuple[int, int], int] = {}
    last: Held | None = None
    said, slots = (0, 0), 0
    # Sources that hold as much share what says so, and stand together as a rule.
    for slot, (held, _, _) in prompt.matches.items():
        if held is not last:
            if last is not None:
                by_held[said] = by_held.get(said, 0) | slots
            last, slots, said = held, 0, (held.matched, held.views[0])
        slots |= 1 << slot
    by_held[said] = by_held.get(said, 0) | slots
    groups: tuple[int, ...] = ()
    for (matched, gpu), slots in by_held.items():
        reused = reusable_blocks(matched, size, prompt.tokens, partial=partial)
        groups += (matched * size, reused * size, gpu * size, 0, slots)
    return groups


def groups_of(matches: dict[int, Match], candidates: Candidates, record: Answered) -> tuple[int, ...]:
    """What is said of each source that holds something, as `Answered.groups` has it."""
    groups: dict[tuple[int, int, int, int], int] = {}
    for slot, match in matches.items():
        index = candidates.by_slot[slot]
        source, size = candidates.listed[index].source, record.lineup.block_sizes[index] or 1
        reusable = reusable_tokens(source, size, match, record.prompt_tokens, partial=record.partial)
        held = match.held
        gone = held.views[0] != held.matched and source.may_be_gone(blocks_by_tier(held, match.runs, slot))
        said = held.matched * size, reusable, held.views[0] * size, int(gone)
        groups[said] = groups.get(said, 0) | 1 << slot
    return tuple(number for said, slots in groups.items() for number in (*said, slots))
