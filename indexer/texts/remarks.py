"""What an operator should know of a source whose engine is to make the tokens of texts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from indexer.texts.addresses import engine_url
from indexer.texts.engines import EngineTokenizer

if TYPE_CHECKING:
    from indexer.index.source import SourceIndex
    from indexer.texts.choice import Tokenizers
    from indexer.texts.health import Health

_NO_ADDRESS: Final = (
    "its engine is not asked for the tokens of texts (models.tokenizer, models.tokenizers): nothing says where its API "
    "is; give it address=HOST:PORT"
)


class TextRemarks:
    """By source."""

    def __init__(self, tokenizers: Tokenizers, health: Health) -> None:
        self._tokenizers = tokenizers
        self._health = health

    def standing(self, source: SourceIndex) -> dict[str, str]:
        """What stays so until somebody changes it, by a key."""
        asked = self._asks_engine(source)
        lacks = asked is not None and asked.url is None and engine_url(source.descriptor) is None
        return {"tokenizer_address": _NO_ADDRESS} if lacks else {}

    def of(self, source: SourceIndex) -> list[str]:
        """All of them, with how the engine did when it was asked last."""
        asked = self._asks_engine(source)
        url = None if asked is None else asked.url or engine_url(source.descriptor)
        cause = None if url is None else self._health.cause(url)
        failed = [] if cause is None else [f"POST /tokenize failed when its engine was asked last: {cause}"]
        return [*self.standing(source).values(), *failed]

    def _asks_engine(self, source: SourceIndex) -> EngineTokenizer | None:
        chosen = self._tokenizers.of(source.model)
        return chosen.maker if chosen is not None and isinstance(chosen.maker, EngineTokenizer) else None
