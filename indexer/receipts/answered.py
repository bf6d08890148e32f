"""What was answered lately, so that a report that comes later finds the lookup it is about. No I/O; time is given.

    note      in the lookup, 2 us: the answer's numbers, or where many hold something what they are made of
    tidy      a moment later, in slices: these are made, and what is too old goes
    find      by request id, else the newest lookup of the same prompt

A prompt itself is kept for some seconds only, within a bound of bytes: `of` of a routed report needs all its hashes,
while those of the answer end where nobody holds more. Later a keyed digest stands for it, and that only while somebody
names prompts instead of request ids: whoever never does pays nothing for it.

Of a source there is one byte (trust.py) and, where it held something, a bit: a fleet of a thousand costs 2 KB an
answer. Everything is bounded in bytes and time; what goes early is counted.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec
import numpy as np
from xxhash import xxh3_64_intdigest, xxh3_128_digest

from indexer.candidates import lineup_of
from indexer.hashing.memo import CHUNK_TOKENS, chunk_digest
from indexer.index.states import bound_with_unannounced_ends
from indexer.model import DEFAULT_TENANT, TOKEN_BYTES
from indexer.reuse import reusable_tokens
from indexer.score.prefix import blocks_by_tier
from indexer.trust import Trust, in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from indexer.candidates import Candidates, Lineup, Scene
    from indexer.model import Expected, Held, Match, Prompt, SourceId
    from indexer.ports import Clock
    from schemas.lookup import LookupQuery

RECORD_BYTES: Final = 600
"""Of one record with its places in the indices, beside what grows with the fleet (measured)."""
EXPECTED_BYTES: Final = 24
"""A number of what is expected."""
SEAT_BYTES: Final = 32
"""A source in a lineup."""
QUERY_BYTES: Final = 500
"""Of a question that is kept, beside its prompt."""
HASH_BYTES: Final = 8
CHUNK_BYTES: Final = CHUNK_TOKENS * TOKEN_BYTES
START_BYTES: Final = CHUNK_TOKENS * 8
"""A chunk that is told by its digest keeps the body that it stands in, as text."""
AT_ONCE_MAX: Final = 32
"""Sources that hold something, not all alike: so many are looked at in the lookup itself, for less than keeping them
for later costs."""
WAITING_MAX: Final = 4_096
"""Answers that are not made small yet, and what these hold of sources together."""
WAITING_MATCHES_MAX: Final = 262_144
SLICE_S: Final = 0.0005
OLD_A_SLICE: Final = 512
GROUP: Final = 5
_NOTHING: Final = (0, 0, 0, 0, 0)
FED_MAX: Final = 16
"""Reports remembered of one answer: only prompts that are named without its request have more than one or two."""
Fed = Literal["first", "repeated", "unsure"]
"""What a report of an answer is; `unsure`: it names no request, or more came than are remembered."""
LOOKED_AT_MAX: Final = 128
LOOKED_AT_BYTES: Final = 4 * 2**20
"""Prompts looked at for the first report that names one, the newest: within a millisecond."""


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
        """Of so many, held from the beginning: the last token is always computed."""
        return tokens if self.partial else min(tokens, max(0, self.prompt_tokens - 1) // size * size)


class Kept(NamedTuple):
    """Answers that are remembered, and the age of the oldest."""

    answers: int
    oldest_s: float


class AnswerOptions(NamedTuple):
    """`horizon_s`: how long an answer is remembered, in `bytes_max` at most; its prompt for `prompt_s`.

    `prompt_bytes` of prompts at most; 0: none is ever kept.
    """

    horizon_s: float = 600.0
    bytes_max: int = 64 * 2**20
    prompt_s: float = 10.0
    prompt_bytes: int = 16 * 2**20


class Answers:
    """One a process. `salt`: any 64-bit number, not known outside; that of the memory of prompts."""

    def __init__(self, clock: Clock, options: AnswerOptions, salt: int, reached: Callable[[str], None]) -> None:
        self._clock = clock
        self.options = options
        self._salt = salt
        self._reached = reached
        self._records: dict[str, dict[str, Answered]] = {}
        """By tenant and request id."""
        self._order: deque[Answered] = deque()
        """The oldest first, with those that a newer answer to the same request replaced."""
        self._waiting: deque[Answered] = deque()
        self._waiting_matches = 0
        self._prompts: deque[Answered] = deque()
        """Those whose prompts are kept."""
        self.prompt_bytes = 0
        self.bytes = 0
        self.dropped = 0
        """Answers forgotten before their time, ever."""
        self._by_prompt: dict[tuple[str, str | None, bytes], Answered] = {}
        self._by_prompt_until = 0.0
        """So long digests are made: the horizon behind the last report that named a prompt."""
        self._trust = b""

    def __len__(self) -> int:
        return sum(map(len, self._records.values()))

    def kept(self, tenant: str | None) -> Kept:
        """How many are remembered, and since when; of one tenant, or of all."""
        of = list(self._records.values()) if tenant is None else [self._records.get(tenant, {})]
        first = min((next(iter(each.values())).at for each in of if each), default=None)
        return Kept(sum(map(len, of)), 0.0 if first is None else self._clock.now() - first)

    def note(self, query: LookupQuery, lora_name: str | None, scene: Scene, prompt: Prompt, usable: int) -> None:
        """This is being answered. The newest answer to a request id counts."""
        request_id = query.request_id
        if not request_id:
            return
        candidates, matches, trust = scene.candidates, prompt.matches, bytes(scene.trust)
        trust = self._trust = self._trust if trust == self._trust else trust
        size, lineup = RECORD_BYTES + len(trust), candidates.lineup
        if lineup is None:
            lineup = candidates.lineup = lineup_of(candidates)
            size += SEAT_BYTES * len(trust)
        plain = not (scene.hybrid | scene.unannounced) and len(candidates.variants) <= 1
        groups = _groups_at_once(candidates, prompt, usable, partial=query.partial) if plain or not matches else None
        size += (usable.bit_length() >> 3) * (1 + len(groups or ()) // GROUP)
        record = Answered(
            self._clock.now(),
            query.tenant or DEFAULT_TENANT,
            request_id,
            candidates.resolved.model,
            lora_name,
            prompt.tokens,
            query.partial,
            usable,
            trust,
            scene.generations,
            lineup,
            size,
            groups or (),
            self.salt_digest(query.cache_salt) if query.cache_salt else 0,
            query.block_hashes is not None and query.prompt_tokens is None,
        )
        if prompt.expected:
            record.expected = _expected(prompt.expected, candidates)
            record.size += EXPECTED_BYTES * len(record.expected)
        self._keep(record)
        if groups is None:
            self._postpone(record, matches, candidates)
        if self.options.prompt_bytes:
            record.query, record.prompt_bytes = query, _prompt_bytes(query)
            self.prompt_bytes += record.prompt_bytes
            self._prompts.append(record)
            if record.at < self._by_prompt_until:
                self._digest(record)
            while self.prompt_bytes > self.options.prompt_bytes:
                self._reached("feedback.prompt_bytes")
                self._drop_prompt()

    def _keep(self, record: Answered) -> None:
        mine = self._records.get(record.tenant)
        if mine is None:
            mine = self._records[record.tenant] = {}
        mine.pop(record.request_id, None)  # else it would stand in the other's place, among older ones
        mine[record.request_id] = record
        self._order.append(record)
        self.bytes += record.size
        while self.bytes > self.options.bytes_max and self._order:
            if self._forget_oldest():
                self._early("feedback.answers_bytes")

    def _postpone(self, record: Answered, matches: dict[int, Match], candidates: Candidates) -> None:
        record.matches, record.candidates = matches, candidates
        self._waiting.append(record)
        self._waiting_matches += len(matches)
        while len(self._waiting) > WAITING_MAX or self._waiting_matches > WAITING_MATCHES_MAX:
            oldest = self._waiting.popleft()
            if oldest.matches is not None:  # more was answered than housekeeping came to
                self._let_go(oldest)
                self._disown(oldest)
                self._early("feedback.answers_waiting")

    def _let_go(self, record: Answered) -> None:
        """What it holds of its lookup is not made small any more."""
        if record.matches is not None:
            self._waiting_matches -= len(record.matches)
            record.matches = record.candidates = None

    def salt_digest(self, salt: str) -> int:
        """What stands for a salt in this process."""
        return xxh3_64_intdigest(salt.encode("utf-8", "surrogatepass"), self._salt) | 1

    def find(self, request_id: str, tenant: str | None) -> Answered | None:
        """The newest answer to that request of that tenant."""
        return self._small(self._records.get(tenant or DEFAULT_TENANT, {}).get(request_id))

    def sent(self, request_id: str, tenant: str | None, source: SourceId) -> None:
        """That request, if it is known, was sent there; the last such word counts."""
        record = self._records.get(tenant or DEFAULT_TENANT, {}).get(request_id)
        if record is not None:
            record.routed = source

    def find_prompt(self, query: LookupQuery, lora_name: str | None, model: str | None) -> Answered | None:
        """The newest answer to the same prompt, model and tenant; prompts by tokens and by hashes are not compared."""
        key = (query.tenant or DEFAULT_TENANT, model, prompt_digest(query, lora_name, self._salt))
        now, until = self._clock.now(), self._by_prompt_until
        self._by_prompt_until = now + self.options.horizon_s
        if now >= until:
            tokens = query_tokens(query)
            looked_at = 0
            for record in islice(reversed(self._prompts), LOOKED_AT_MAX):
                if record.prompt_tokens == tokens and looked_at + record.prompt_bytes <= LOOKED_AT_BYTES:
                    looked_at += record.prompt_bytes
                    self._digest(record)
        return self._small(self._by_prompt.get(key))

    def tidy(self) -> bool:
        """One slice of housekeeping; True while there is more to do."""
        now = self._clock.now()
        until = now + SLICE_S
        while self._waiting:
            self._small(self._waiting.popleft())
            if self._clock.now() >= until:
                return True
        while self._prompts and now - self._prompts[0].at >= self.options.prompt_s:
            self._drop_prompt()
            if self._clock.now() >= until:
                return True
        for _ in range(OLD_A_SLICE):
            if not self._order or now - self._order[0].at < self.options.horizon_s:
                return False
            self._forget_oldest()
        return True

    def _small(self, record: Answered | None) -> Answered | None:
        """What the lookup had at hand becomes a few numbers."""
        if record is not None and record.matches is not None and record.candidates is not None:
            groups, matches = _groups(record.matches, record.candidates, record), record.matches
            self._waiting_matches -= len(matches)
            record.groups, record.matches, record.candidates = groups, None, None
            more = sum(slots.bit_length() // 8 for slots in groups[GROUP - 1 :: GROUP])
            record.size += more
            self.bytes += more
        return record

    def _digest(self, record: Answered) -> None:
        """From now on it is found by its prompt."""
        if record.query is not None and record.digest is None and self._is_newest(record):
            record.digest = prompt_digest(record.query, record.lora_name, self._salt)
            key = (record.tenant, record.model, record.digest)
            known = self._by_prompt.get(key)
            if known is None or known.at <= record.at:
                self._by_prompt[key] = record

    def _drop_prompt(self) -> None:
        """The oldest is kept no longer."""
        record = self._prompts.popleft()
        record.query = None
        self.prompt_bytes -= record.prompt_bytes

    def _is_newest(self, record: Answered) -> bool:
        return self._records.get(record.tenant, {}).get(record.request_id) is record

    def _forget_oldest(self) -> bool:
        record = self._order.popleft()
        self.bytes -= record.size
        record.size = 0
        self._let_go(record)
        return self._disown(record)

    def _disown(self, record: Answered) -> bool:
        """It is not found any more; whether it was."""
        was_found = self._is_newest(record)
        if was_found:
            mine = self._records[record.tenant]
            del mine[record.request_id]
            if not mine:
                del self._records[record.tenant]
        if record.digest is not None:
            key = (record.tenant, record.model, record.digest)
            if self._by_prompt.get(key) is record:
                del self._by_prompt[key]
        return was_found

    def _early(self, limit: str) -> None:
        self.dropped += 1
        self._reached(limit)


def _groups_at_once(candidates: Candidates, prompt: Prompt, usable: int, *, partial: bool) -> tuple[int, ...] | None:
    """As `_groups`, where all are of one block size, and whatever is held is reused and its end announced.

    None where there are so many that it is better done later.
    """
    matches = prompt.matches
    if not matches:
        return ()
    ((size, _), slots), *_ = candidates.variants.items()
    most = prompt.tokens
    if not partial and most:
        most = (most - 1) // size * size
    held, runs, _ = next(iter(matches.values()))
    if len(runs) == 1 and runs[0].record.plain:  # the usual prompt: the same sources hold all of what is held
        tokens = held.matched * size
        return tokens, min(most, tokens), tokens, 0, runs[0].record.any & slots & usable
    return _groups_unlike(matches, size, most) if len(matches) <= AT_ONCE_MAX else None


def _expected(expected: Mapping[int, Expected], candidates: Candidates) -> tuple[int, ...]:
    """What is expected of engines that announce nothing: it is all that an answer says of these."""
    told: list[int] = []
    for slot, (blocks, _) in expected.items():
        source = candidates.listed[candidates.by_slot[slot]].source
        if source.facts.is_approximate:
            told += slot, blocks * (source.asking_size or 1)
    return tuple(told)


def _groups_unlike(matches: dict[int, Match], size: int, most: int) -> tuple[int, ...]:
    """`most`: tokens that are reused of the prompt at most."""
    by_held: dict[tuple[int, int], int] = {}
    last: Held | None = None
    said, slots = (0, 0), 0
    # Sources that hold as much share what says so, and stand together as a rule.
    for slot, (held, _, _) in matches.items():
        if held is not last:
            if last is not None:
                by_held[said] = by_held.get(said, 0) | slots
            last, slots, said = held, 0, (held.matched, held.views[0])
        slots |= 1 << slot
    by_held[said] = by_held.get(said, 0) | slots
    groups: tuple[int, ...] = ()
    for (matched, gpu), slots in by_held.items():
        groups += (matched * size, min(matched * size, most), gpu * size, 0, slots)
    return groups


def _groups(matches: dict[int, Match], candidates: Candidates, record: Answered) -> tuple[int, ...]:
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


def prompt_digest(query: LookupQuery, lora_name: str | None, salt: int) -> bytes:
    """What stands for a prompt in this process: the same however its beginning is told."""
    told = (lora_name, query.cache_salt, query.mm_items, query.block_size, query.scheme)
    parts = [msgspec.msgpack.encode(told), *query.start]
    if query.block_hashes is None:
        tokens = memoryview(query.tokens or b"")
        parts += [chunk_digest(tokens[at : at + CHUNK_BYTES], salt) for at in range(0, len(tokens), CHUNK_BYTES)]
    else:
        parts.append(np.asarray(query.block_hashes, np.uint64).tobytes())
    return xxh3_128_digest(b"".join(parts), salt)


def query_tokens(query: LookupQuery) -> int:
    """Length of the prompt."""
    if query.block_hashes is None:
        return len(query.start) * CHUNK_TOKENS + len(query.tokens or b"") // TOKEN_BYTES
    return query.prompt_tokens or len(query.block_hashes) * (query.block_size or 0)


def _prompt_bytes(query: LookupQuery) -> int:
    hashes = 0 if query.block_hashes is None else len(query.block_hashes) * HASH_BYTES
    return QUERY_BYTES + len(query.tokens or b"") + len(query.start) * START_BYTES + hashes
