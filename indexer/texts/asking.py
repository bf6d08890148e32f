"""A question told as text becomes one told by tokens: what a node does for its faces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from indexer.errors import BadRequestError, FieldIssue
from indexer.model import DEFAULT_TENANT, TOKEN_BYTES, SourceState
from indexer.texts.addresses import engine_url
from schemas.lookup import TokenizerUsed

if TYPE_CHECKING:
    from indexer.candidates import Candidates
    from indexer.index.source import SourceIndex
    from indexer.ports import Clock
    from indexer.texts.choice import Chosen, Tokenizers
    from indexer.texts.making import Made, Making
    from schemas.lookup import LookupQuery, TextPrompt

WAIT_MS_MAX: Final = 60_000
"""However long a caller is willing to wait."""
_NONE_CONFIGURED: Final = "send token_ids, or block_hashes with block_size; or configure models.tokenizer"
_BEST_FIRST: Final = ("live", "suspect", "stale", "syncing", "new")


class Asking:
    """Chooses the tokenizer by the sources that a question is about, and keeps its deadline.

    `candidates` of a question; `state` of a source now.
    """

    def __init__(
        self,
        clock: Clock,
        tokenizers: Tokenizers,
        making: Making,
        *,
        candidates: Callable[[LookupQuery], Candidates],
        state: Callable[[SourceIndex], SourceState],
        timeout_ms: int,
    ) -> None:
        self._clock = clock
        self._tokenizers = tokenizers
        self._making = making
        self._candidates = candidates
        self._state = state
        self._timeout_ms = timeout_ms

    async def tokenized(self, query: LookupQuery) -> LookupQuery:
        """The same question with `tokens` in the place of `text` (api/ports.py has the contract)."""
        text = query.text
        if text is None:
            return query
        started = self._clock.now()
        who = self._who(query, text)
        if who is None:
            return msgspec.structs.replace(query, text=None)
        chosen, engines = who
        wait_ms = self._timeout_ms if query.timeout_ms is None else min(query.timeout_ms, WAIT_MS_MAX)
        made = await self._making.make(chosen, text, started + wait_ms / 1000, engines)
        left_ms = None
        if query.timeout_ms is not None:
            left_ms = max(0, query.timeout_ms - int((self._clock.now() - started) * 1000))
        if made is None:
            return msgspec.structs.replace(query, text=None, timeout_ms=left_ms, overdue=True)
        return _told(query, chosen, made, left_ms)

    def known(self, query: LookupQuery) -> LookupQuery | None:
        """The same without waiting; None where the text is not known, or is about to be."""
        text = query.text
        if text is None:
            return query
        who = self._who(query, text)
        if who is None:
            return msgspec.structs.replace(query, text=None)
        made = self._making.known(who[0], text, who[1])
        return None if made is None else _told(query, who[0], made, query.timeout_ms)

    def _who(self, query: LookupQuery, text: TextPrompt) -> tuple[Chosen, _Engines] | None:
        """Who is to read the text, and where the engines are; None where there is nothing to tokenize for."""
        candidates = self._candidates(query)
        models = self._models(candidates, query, hashing=query.block_size is not None)
        if not models:
            return None
        chosen = self._chosen(models, "messages" if text.prompt is None else "prompt")
        return chosen, _Engines(candidates, query, self._state)

    def _models(self, candidates: Candidates, query: LookupQuery, *, hashing: bool) -> set[str | None]:
        """Base models whose tokenizers the text is for; empty: there is nothing to tokenize for.

        To hash, no source need be there: a model that has a tokenizer is enough.
        """
        resolved = candidates.resolved
        if not resolved.known:
            return {query.model} if hashing and self._tokenizers.of(query.model) is not None else set()
        if resolved.model is not None:
            asked = hashing or any(candidate.excluded is None for candidate in candidates.listed)
            return {resolved.model} if asked else set()
        models = {each.source.model for each in candidates.listed if each.excluded is None}
        return models or ({None} if hashing else set())

    def _chosen(self, models: set[str | None], field: str) -> Chosen:
        found = self._tokenizers.of_all(models)
        if len(found) > 1 or (len(models) > 1 and any(each and each.maker.source == "engine" for each in found)):
            rule = "required with a text: the sources are of several models"
            raise BadRequestError("model.missing", [FieldIssue("model", rule)])
        chosen = found.pop()
        if chosen is None:
            issue = FieldIssue(field, "no tokenizer is configured for this model", hint=_NONE_CONFIGURED)
            raise BadRequestError("prompt.no_tokenizer", [issue])
        return chosen


def _told(query: LookupQuery, chosen: Chosen, made: Made, timeout_ms: int | None) -> LookupQuery:
    used = TokenizerUsed(
        source=chosen.maker.source, name=chosen.name, tokens=len(made.image) // TOKEN_BYTES, cached=made.cached
    )
    return msgspec.structs.replace(query, text=None, tokens=made.image, tokenizer=used, timeout_ms=timeout_ms)


class _Engines:
    """Where the engines of a question are."""

    def __init__(self, candidates: Candidates, query: LookupQuery, state: Callable[[SourceIndex], SourceState]) -> None:
        self._sources = candidates.resolved.sources
        self._state = state
        self.tenant = query.tenant or DEFAULT_TENANT
        self.model = candidates.resolved.model
        if self.model is None:
            models = {source.model for source in self._sources}
            self.model = models.pop() if len(models) == 1 else None

    def urls(self) -> Sequence[str]:
        """Of every engine of the model that is not down, the surest first."""
        found: dict[str, int] = {}
        for source in self._sources:
            url = engine_url(source.descriptor)
            state = self._state(source)
            if url is not None and state in _BEST_FIRST:
                rank = _BEST_FIRST.index(state)
                found[url] = min(rank, found.get(url, rank))
        best = min(found.values(), default=0)
        return [url for url, rank in found.items() if rank == best]
