"""The first block of a prompt that a source does not hold, and what can be seen of it. No I/O.

What takes longer than a moment is done in steps, between which others may run.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec
import numpy as np

from indexer.explain.facts import Elsewhere, Gone, Miss
from indexer.hashing.chain import LOCAL_BYTES, SCHEME, local_hashes
from indexer.hashing.extra_keys import query_extras
from indexer.index.walk import walk
from indexer.lookup import whole_image
from indexer.model import TIER_NAMES, TOKEN_BYTES

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from indexer.index.mirror import Mirror
    from indexer.index.source import SourceIndex
    from indexer.lookup import Lookup
    from indexer.model import Tier
    from indexer.ports import Clock
    from schemas.lookup import LookupQuery, PodEntry

ADAPTERS_TRIED: Final = 32
"""Of one source."""
IDENTITIES_MAX: Final = 64
"""Of one question, over all sources: the prompt is hashed anew for each. Beyond, no further ones are tried."""
ORPHANS_A_STEP: Final = 4_096
"""Looked through at once: a third of a millisecond."""
NO_HASHES: Final = np.empty(0, np.uint64)


class Identity(NamedTuple):
    """The same tokens as blocks of something else."""

    how: Literal["adapter", "salt"]
    query: LookupQuery


class Question:
    """One prompt as several may hold it: its hashes under each identity are made once. `slots`: of all asked about."""

    def __init__(self, lookup: Lookup, query: LookupQuery, slots: int) -> None:
        self.query = query
        self._lookup = lookup
        self._slots = slots
        self._made: dict[tuple[int, int, str | None, str | None], NDArray[np.uint64]] = {}

    def hashes(self, source: SourceIndex, identity: Identity | None = None) -> NDArray[np.uint64]:
        """At the source's block size, at least up to the first that it does not hold; none under too many."""
        query = self.query if identity is None else identity.query
        key = source.block_size or 0, source.lookahead, query.lora_name, query.cache_salt
        made = self._made.get(key)
        if made is None:
            if identity is not None and len(self._made) >= IDENTITIES_MAX:
                return NO_HASHES
            made = self._made[key] = self._lookup.hashes_of(query, key[:2], self._slots)
        return made


class Missing:
    """Looks for what became of blocks. `tier_ttls`: where entries have a time to live, seconds."""

    def __init__(self, mirror: Mirror, clock: Clock, tier_ttls: Mapping[Tier, float]) -> None:
        self._mirror = mirror
        self._clock = clock
        self._tier_ttls = tier_ttls

    def of(
        self, question: Question, source: SourceIndex, entry: PodEntry, others: Sequence[str]
    ) -> Generator[None, None, Miss | None]:
        """Of a source that a lookup finds to hold less than the prompt's whole blocks; None where that has changed.

        `others`: pods that hold its first block.
        """
        block, generation = entry.matched_tokens // (source.block_size or 1), source.facts.generation
        hashes = question.hashes(source)
        if block >= len(hashes) or self._mirror.holds(source.slot, hashes.item(block)):
            return None
        missing = hashes.item(block)
        gone = self._gone(source, missing)
        groups = self._groups(source, missing)
        elsewhere = yield from self._elsewhere(question, source, entry.matched_tokens)
        waits = False
        if gone is None and elsewhere is None and source.map.orphans:
            waits = yield from self._waits(question.query, source, block)
        if source.facts.generation != generation:
            return None
        return Miss(
            block=block,
            hash=missing,
            groups=groups,
            gone=gone,
            elsewhere=elsewhere,
            waits=waits,
            starts_held_by=() if block else tuple(others),
        )

    def _gone(self, source: SourceIndex, token_hash: int) -> Gone | None:
        removal = self._mirror.removals.newest(source.slot, token_hash)
        if removal is None or removal.lane >= len(source.lane_table.lanes):
            return None
        group, tier = source.lane_table.lanes[removal.lane]
        ago_s = max(0.0, self._clock.now() - removal.at)
        return Gone(removal.why, TIER_NAMES[tier], group, ago_s, self._tier_ttls.get(tier))

    def _groups(self, source: SourceIndex, token_hash: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        held = {group for group, _ in self._mirror.lanes(source.slot, token_hash)}
        wanted = tuple(group for group in source.lane_table.main_groups if group not in held)
        return (tuple(sorted(held)), wanted) if held and wanted else None

    def _elsewhere(
        self, question: Question, source: SourceIndex, matched: int
    ) -> Generator[None, None, Elsewhere | None]:
        """The identity under which most of the same tokens is held, where that is more than what matches."""
        best: Elsewhere | None = None
        if question.query.block_hashes is not None:
            return None  # they stand for one identity
        for identity in _identities(question.query, source):
            yield
            held = self._held(question.hashes(source, identity), source)
            if held > (matched if best is None else best.tokens):
                best = Elsewhere(identity.how, identity.query.lora_name, held)
        return best

    def _held(self, hashes: NDArray[np.uint64], source: SourceIndex) -> int:
        """Tokens that the source holds from the start."""
        held = walk(self._mirror, hashes, 1 << source.slot).held
        return held[source.slot].matched * (source.block_size or 1) if source.slot in held else 0

    def _waits(self, query: LookupQuery, source: SourceIndex, block: int) -> Generator[None, None, bool]:
        """Whether a block of that content waits for its parent."""
        local = _local_of(query, source, block)
        if local is None:
            return False
        orphans = iter(list(source.map.orphans.values()))
        while step := list(islice(orphans, ORPHANS_A_STEP)):
            if any(orphan.local == local for orphan in step):
                return True
            yield
        return False


def whole_blocks(query: LookupQuery, source: SourceIndex, prompt_tokens: int) -> int | None:
    """How many blocks the source could hold of the prompt; None where its block size is not known."""
    if source.block_size is None:
        return None
    if query.block_hashes is not None:
        return len(query.block_hashes)
    return max(0, prompt_tokens - source.lookahead) // source.block_size


def _identities(query: LookupQuery, source: SourceIndex) -> Iterator[Identity]:
    """The same tokens without their salt, and under the other adapters that the source has announced."""
    if query.cache_salt:
        yield Identity("salt", msgspec.structs.replace(query, cache_salt=None))
    for adapter in [None, *islice(source.adapters, ADAPTERS_TRIED)]:
        if adapter != query.lora_name:
            yield Identity("adapter", msgspec.structs.replace(query, lora_name=adapter))


def _local_of(query: LookupQuery, source: SourceIndex, block: int) -> bytes | None:
    """The local hash of one block of the prompt, as the source announces it; None where the question does not tell."""
    size = source.block_size or 1
    if query.block_hashes is not None:
        told = query.scheme not in {None, SCHEME}
        return query.block_hashes[block].to_bytes(LOCAL_BYTES, "big") if told else None
    tokens = whole_image(query)
    extras = query_extras(
        tokens=tokens,
        block_size=size,
        mm_items=query.mm_items,
        cache_salt=query.cache_salt,
        lookahead=source.lookahead,
        within=range(block, block + 1),
    )
    step = size * TOKEN_BYTES
    image = tokens[block * step : (block + 1) * step]
    of_block = {0: extras[block]} if block in extras else None
    return next(iter(local_hashes(image, size, query.lora_name, of_block)), None)
