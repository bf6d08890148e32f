"""A caller says where it sent a prompt: what the engine will come to hold is expected of it.

    report → source → the prompt's hashes as that source cuts it → those it is not known to hold → a receipt

Answers from memory; no I/O. Idempotent by request id and source (repeats.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

import msgspec
import numpy as np

from indexer.errors import BadRequestError, FieldIssue
from indexer.index.walk import walk
from indexer.model import DEFAULT_TENANT, TOKEN_BYTES
from indexer.receipts.repeats import Repeats
from indexer.receipts.whose import source_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from indexer.candidates import Candidates
    from indexer.index.mirror import Mirror
    from indexer.index.registry import Registry
    from indexer.index.source import SourceIndex
    from indexer.model import SourceId
    from indexer.ports import Clock
    from indexer.receipts.delays import Delays
    from indexer.receipts.speculation import Confirmed, Receipt, Speculation
    from schemas.lookup import LookupQuery
    from schemas.receipts import RoutedReport, RoutedResult

FORGOTTEN_A_SECOND: Final = 2_048
"""Requests whose time is over, where nobody reports any more."""
BLOCKS_MAX: Final = 8_192
"""Of one prompt: 131,072 tokens at 16. What is behind is not expected."""
BLOCKS_LIMIT: Final = "receipts.blocks_of_one"
PIECE: Final = 512
"""Blocks that are looked at in one step: 0.35 ms; the first of them, with the walk of 8,192 blocks, 0.6."""
_NO_HASHES: Final = np.empty(0, np.uint64)


class Prompts(Protocol):
    """What a lookup knows of prompts and of who is asked about them."""

    def candidates(self, query: LookupQuery) -> Candidates:
        """The sources that a question is about."""
        ...

    def routed_hashes(self, query: LookupQuery, source: SourceIndex, most: int) -> Iterator[NDArray[np.uint64]]:
        """Token hashes of a prompt's first whole blocks, as that source cuts it; none where it cannot be known.

        A portion at a time; what is refused is refused before the first.
        """
        ...


class Hint(NamedTuple):
    """What other replicas are told: these blocks are expected of that generation of a source, for so long."""

    source: SourceId
    generation: int
    ttl_s: float
    hashes: bytes
    """Little-endian u64."""


class Routed:
    """One a process. `silent_ttls_s`: by model, for engines that may never say what they hold."""

    def __init__(
        self,
        prompts: Prompts,
        registry: Registry,
        mirror: Mirror,
        speculation: Speculation,
        *,
        delays: Delays,
        clock: Clock,
        reached: Callable[[str], None],
        ended: Callable[[Literal["confirmed", "expired"]], None],
        silent_ttls_s: Mapping[str, float],
    ) -> None:
        self.asked_before: Callable[[str, str], LookupQuery | None] = lambda _request, _tenant: None
        """The question of a lookup that was answered, by its request id and tenant; None where it is not remembered."""
        self.hinted: Callable[[Hint], None] | None = None
        """Called with what is expected from now on, where other replicas are to know."""
        self._prompts = prompts
        self._registry = registry
        self._mirror = mirror
        self._speculation = speculation
        self._delays = delays
        self._clock = clock
        self._reached = reached
        self._silent_ttls_s = silent_ttls_s
        self.sent: Callable[[str, str, SourceId], None] = lambda _request, _tenant, _source: None
        """Told of a request id and tenant where that request, or the lookup before it, was sent."""
        self.noted: Callable[[SourceId, Sequence[str], str], None] = lambda _source, _requests, _tenant: None
        """Told once of each request where it went, with the names that it goes by, and its tenant."""
        self._told = Repeats(reached)
        self._silent: dict[int, SourceIndex] = {}
        """By slot: sources of which hints are all that is known."""
        self._ended = ended
        speculation.confirmed = self._confirmed
        speculation.expired = self._expired

    def take(self, report: RoutedReport) -> Generator[None, None, RoutedResult]:
        """One report. A generator that returns what came of it; between its steps others may run.

        Raises `SourceUnknownError` and `BadRequestError`.
        """
        tenant = report.query.tenant or DEFAULT_TENANT
        source = source_of(self._registry, report.pod, report.dp_rank, tenant)
        key = None if report.request_id is None else (tenant, report.request_id, source.descriptor.id)
        if key is not None and self._told.has(key, self._clock.now()):
            return "repeated"
        query = self._question(report, tenant, source)
        size, told = source.asking_size, query.block_size
        if None not in {size, told} and size != told:
            hint = "hashes are of whole blocks: ask /v1/hash for those of that size, or send token_ids"
            raise BadRequestError("block_size.other", [FieldIssue("block_size", f"{size}, the pod's", str(told), hint)])
        names = [name for name in (report.request_id, report.of) if name is not None]
        for name in names:
            self.sent(name, tenant, source.descriptor.id)
        self.noted(source.descriptor.id, names, tenant)
        portions = self._prompts.routed_hashes(self._cut(query, size or 1), source, BLOCKS_MAX + 1)
        if key is not None:
            self._told.note(key, self._clock.now())  # nothing is refused from here on, and others have turns
        return (yield from self._expect(source, portions))

    def hear(self, hint: Hint) -> Generator[None, None, bool]:
        """Another replica was told. False where its source is not the one known here."""
        source = self._registry.sources.get(hint.source)
        if source is None or source.facts.generation != hint.generation:
            return False
        yield from self._note(source, np.frombuffer(hint.hashes, "<u8")[:BLOCKS_MAX], hint.ttl_s, None)
        return True

    def ttl_s(self, source: SourceIndex) -> float:
        """So long the blocks of a prompt are expected of that source."""
        described = source.descriptor
        if source.facts.is_approximate:
            return self._silent_ttls_s[described.model or ""]
        return self._delays.ttl_s(described.id, described.model)

    def look(self) -> None:
        """Once a second: who spoke after all is known by that, and who is gone is forgotten."""
        for slot, source in list(self._silent.items()):
            if source.slot == slot and source.facts.is_approximate:
                continue
            del self._silent[slot]
            if source.slot == slot:
                self._speculation.end(slot)
        self._told.forget(self._clock.now(), FORGOTTEN_A_SECOND)
        self._delays.forget_others(self._registry.sources)

    # -- whose prompt, and which ---------------------------------------------------------------------------------------

    def _question(self, report: RoutedReport, tenant: str, source: SourceIndex) -> LookupQuery:
        """What tells the prompt, with the adapter that its model's name may mean."""
        query = report.query
        if report.of is not None:
            found = self.asked_before(report.of, tenant)
            if found is None:
                rule = "the request_id of a lookup that this replica answered a few seconds ago"
                issue = FieldIssue("of", rule, None, "report at once and to the same replica, or send token_ids")
                raise BadRequestError("of.unknown", [issue])
            query = msgspec.structs.replace(found, model=query.model or found.model)
        candidates = self._prompts.candidates(msgspec.structs.replace(query, pods=None, pod_roles=None))
        resolved = candidates.resolved
        if not resolved.known:
            nearest = None if resolved.nearest is None else f"did you mean {resolved.nearest}?"
            raise BadRequestError("model.unknown", [FieldIssue("model", "one that a source serves", None, nearest)])
        if candidates.by_slot.get(source.slot) is None:
            hint = None if source.model is None else f"it serves {source.model}"
            raise BadRequestError("model.other", [FieldIssue("model", "the pod's", None, hint)])
        if query.lora_name is None and resolved.lora_name is not None:
            return msgspec.structs.replace(query, lora_name=resolved.lora_name)
        return query

    def _cut(self, query: LookupQuery, block_size: int) -> LookupQuery:
        """With so much of its tokens as count; one more block tells that there were more."""
        most = (BLOCKS_MAX + 1) * block_size * TOKEN_BYTES
        if query.start or query.tokens is None or len(query.tokens) <= most:
            return query
        return msgspec.structs.replace(query, tokens=query.tokens[:most], whole=None)

    # -- what is expected ----------------------------------------------------------------------------------------------

    def _expect(
        self, source: SourceIndex, portions: Iterator[NDArray[np.uint64]]
    ) -> Generator[None, None, RoutedResult]:
        about, generation = source.descriptor.id, source.facts.generation
        found: list[NDArray[np.uint64]] = []
        for portion in portions:
            found.append(portion)
            yield
        is_same = self._registry.sources.get(about) is source and source.facts.generation == generation
        hashes = np.concatenate(found) if found and is_same else _NO_HASHES
        if not len(hashes):
            return "not_placed"
        if len(hashes) > BLOCKS_MAX:
            self._reached(BLOCKS_LIMIT)
        ttl_s = self.ttl_s(source)
        missing = yield from self._note(source, hashes[:BLOCKS_MAX], ttl_s, about)
        if not missing:
            return "held"
        if self.hinted is not None:
            image = np.asarray(missing, "<u8").tobytes()
            self.hinted(Hint(about, generation, ttl_s, image))
        return "expected"

    def _note(
        self, source: SourceIndex, hashes: NDArray[np.uint64], ttl_s: float, about: SourceId | None
    ) -> Generator[None, None, list[int]]:
        """Expect those that it does not hold; which they are."""
        slot, now, mirror = source.slot, self._clock.now(), self._mirror
        held = walk(mirror, hashes, 1 << slot).held.get(slot)
        silent = source.facts.is_approximate
        receipt: Receipt | None = None
        missing: list[int] = []
        for first in range(0 if held is None else held.matched, len(hashes), PIECE):
            piece = [each for each in hashes[first : first + PIECE].tolist() if not mirror.holds(slot, each)]
            if not piece:
                continue
            if receipt is None:
                receipt = self._speculation.expect(slot, now, ttl_s, None if silent else about)
            self._speculation.add(receipt, piece)
            missing += piece
            yield
        if receipt is not None and silent:
            self._silent[slot] = source
        elif receipt is not None:
            self._speculation.watch(receipt)
        return missing

    def _expired(self) -> None:
        self._ended("expired")

    def _confirmed(self, confirmed: Confirmed) -> None:
        self._ended("confirmed")
        source = self._registry.sources.get(confirmed.source)
        if source is not None:
            self._delays.seen(confirmed.source, source.descriptor.model, confirmed.seconds)
