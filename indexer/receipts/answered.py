"""What was answered lately, so that a report that comes later finds the lookup it is about. No I/O; time is given.

    note      in the lookup, 2 us: the answer's numbers, or where many hold something what they are made of
    tidy      a moment later, in slices: these are made, and what is too old goes
    find      by request id, else the newest lookup of the same prompt (prompts.py)

Everything is bounded in bytes and time; what goes early is counted.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from xxhash import xxh3_64_intdigest

from indexer.candidates import lineup_of
from indexer.model import DEFAULT_TENANT
from indexer.receipts.answer import GROUP, Answered, expected_of, groups_at_once, groups_of
from indexer.receipts.prompts import Prompts

if TYPE_CHECKING:
    from collections.abc import Callable

    from indexer.candidates import Candidates, Scene
    from indexer.model import Match, Prompt, SourceId
    from indexer.ports import Clock
    from schemas.lookup import LookupQuery

RECORD_BYTES: Final = 600
"""Of one record with its places in the indices, beside what grows with the fleet (measured)."""
EXPECTED_BYTES: Final = 24
"""A number of what is expected."""
SEAT_BYTES: Final = 32
"""A source in a lineup."""
WAITING_MAX: Final = 4_096
"""Answers that are not made small yet, and what these hold of sources together."""
WAITING_MATCHES_MAX: Final = 262_144
SLICE_S: Final = 0.0005
OLD_A_SLICE: Final = 512


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
        self.prompts = Prompts(
            salt,
            kept_s=options.prompt_s,
            bytes_max=options.prompt_bytes,
            digests_s=options.horizon_s,
            is_found=self._is_newest,
            reached=reached,
        )
        self.bytes = 0
        self.dropped = 0
        """Answers forgotten before their time, ever."""
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
        groups = groups_at_once(candidates, prompt, usable, partial=query.partial) if plain or not matches else None
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
            record.expected = expected_of(prompt.expected, candidates)
            record.size += EXPECTED_BYTES * len(record.expected)
        self._keep(record)
        if groups is None:
            self._postpone(record, matches, candidates)
        self.prompts.keep(record, query)

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
        return self._small(self.prompts.find(query, lora_name, model, self._clock.now()))

    def tidy(self) -> bool:
        """One slice of housekeeping; True while there is more to do."""
        now = self._clock.now()
        until = now + SLICE_S
        while self._waiting:
            self._small(self._waiting.popleft())
            if self._clock.now() >= until:
                return True
        while self.prompts.drop_one(now):
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
            groups, matches = groups_of(record.matches, record.candidates, record), record.matches
            self._waiting_matches -= len(matches)
            record.groups, record.matches, record.candidates = groups, None, None
            more = sum(slots.bit_length() // 8 for slots in groups[GROUP - 1 :: GROUP])
            record.size += more
            self.bytes += more
        return record

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
        self.prompts.forget(record)
        return was_found

    def _early(self, limit: str) -> None:
        self.dropped += 1
        self._reached(limit)
