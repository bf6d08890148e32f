"""Which tokenizer a model has: the one configured for it, else the one for all. Built once, at the start."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from indexer.errors import SettingsError
from indexer.ports import Clock
from indexer.settings.sections import Models, TokenizerEntry
from indexer.texts.engines import EngineTokenizer
from indexer.texts.local import LocalTokenizer

ENGINE: Final = "engine"
"""As `models.tokenizer`: the engines' own."""
DEFAULT_NAME: Final = "default"


_URL: Final = re.compile(r"https?://[A-Za-z0-9._\[\]:-]+(/[A-Za-z0-9._~-]+)*")


class Chosen(NamedTuple):
    """A tokenizer and the name that answers give it."""

    name: str
    maker: LocalTokenizer | EngineTokenizer


class Tokenizers:
    """All of a deployment."""

    def __init__(self, by_model: dict[str, Chosen], default: Chosen | None = None) -> None:
        self._by_model = by_model
        self._default = default

    def of(self, model: str | None) -> Chosen | None:
        """The tokenizer for a base model; None: there is none."""
        return self._default if model is None else self._by_model.get(model, self._default)

    @property
    def ask_engines(self) -> bool:
        """Whether any of them is the engines' own."""
        return any(each and each.maker.source == "engine" for each in (self._default, *self._by_model.values()))

    def of_all(self, models: Iterable[str | None]) -> set[Chosen | None]:
        """The different ones among those of several models."""
        return {self.of(model) for model in models}


def read_tokenizers(models: Models, clock: Clock) -> Tokenizers:
    """[I/O] Those that the settings name. Raises `SettingsError` with the key to change."""
    read: dict[tuple[str, str | None], LocalTokenizer] = {}

    def local(key: str, file: str, template: str | None) -> LocalTokenizer:
        from indexer.texts.files import read_tokenizer  # noqa: PLC0415 - 5 MB, only where a file is named

        if (file, template) not in read:
            read[file, template] = read_tokenizer(key, file, template, clock)
        return read[file, template]

    by_model = {}
    for model, entry in models.tokenizers.items():
        key = f"models.tokenizers.{model}"
        _check(key, entry)
        by_model[model] = Chosen(
            model,
            EngineTokenizer(entry.engine if isinstance(entry.engine, str) else None)
            if entry.file is None
            else local(f"{key}.file", entry.file, entry.template),
        )
    told = models.tokenizer
    if told is None:
        return Tokenizers(by_model)
    maker = EngineTokenizer() if told == ENGINE else local("models.tokenizer", told, None)
    return Tokenizers(by_model, Chosen(DEFAULT_NAME, maker))


def _check(key: str, entry: TokenizerEntry) -> None:
    if (entry.file is None) == (entry.engine is False):
        raise SettingsError(key, "either file (a tokenizer.json, or the folder of one) or engine: true")
    if isinstance(entry.engine, str) and _URL.fullmatch(entry.engine) is None:
        raise SettingsError(f"{key}.engine", "true, or a URL http://HOST:PORT without user, query and fragment")
    if entry.template is not None and entry.file is None:
        raise SettingsError(f"{key}.template", "only beside file: an engine has its own")
