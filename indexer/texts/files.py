"""[I/O] Reading a tokenizer and its chat templates, once, at the start: what is wrong there must stop it.

A folder is laid out as models are published: `tokenizer.json`, `tokenizer_config.json` with the special tokens and
perhaps the chat template, `chat_template.jinja`, which then counts, and further ones in `additional_chat_templates`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import jinja2
import msgspec
from tokenizers import Tokenizer

from indexer.errors import SettingsError
from indexer.ports import Clock
from indexer.texts.local import DEFAULT_TEMPLATE, LocalTokenizer
from indexer.texts.template import ChatTemplate

FILE_BYTES_MAX: Final = 256 * 2**20
TEMPLATE_BYTES_MAX: Final = 2**20
TOKENIZER_FILE: Final = "tokenizer.json"
CONFIG_FILE: Final = "tokenizer_config.json"
TEMPLATE_FILE: Final = "chat_template.jinja"
FURTHER_FOLDER: Final = "additional_chat_templates"
_SPECIAL_END: Final = "_token"


class _Content(msgspec.Struct):
    content: str


class _Named(msgspec.Struct):
    name: str
    template: str


class _Config(msgspec.Struct):
    chat_template: str | list[_Named] | None = None


def read_tokenizer(key: str, file: str, template: str | None, clock: Clock) -> LocalTokenizer:
    """The tokenizer that a setting names: a `tokenizer.json` or a folder. Raises `SettingsError` with `key`."""
    path = Path(file)
    folder = path if path.is_dir() else path.parent
    path = path / TOKENIZER_FILE if path.is_dir() else path
    raw = _read(key, path, FILE_BYTES_MAX)
    try:
        tokenizer = Tokenizer.from_buffer(raw)
    except Exception as error:  # noqa: BLE001 - the library raises bare exceptions
        raise SettingsError(key, f"{path}: no tokenizer.json of the tokenizers library ({_short(error)})") from None
    config = folder / CONFIG_FILE
    variables: dict[str, object] = {}
    sources: dict[str, str] = {}
    if config.exists():
        sources, variables = _of_config(key, config)
    sources |= _of_folder(key, folder)
    if template is not None:
        sources = {DEFAULT_TEMPLATE: _text(f"{key.removesuffix('.file')}.template", Path(template))}
    templates = {name: _compiled(key, name, source, variables, clock) for name, source in sources.items()}
    return LocalTokenizer(tokenizer, templates)


def _of_config(key: str, path: Path) -> tuple[dict[str, str], dict[str, object]]:
    """Chat templates by name, and the special tokens by their names."""
    raw = _read(key, path, FILE_BYTES_MAX)
    try:
        told = msgspec.json.decode(raw, type=_Config).chat_template
        members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(key, f"{path}: not read ({_short(error)})") from None
    variables: dict[str, object] = {}
    for name, value in members.items():
        if name.endswith(_SPECIAL_END) and (token := _special(value)) is not None:
            variables[name] = token
    if isinstance(told, str):
        return {DEFAULT_TEMPLATE: told}, variables
    return {each.name: each.template for each in told or []}, variables


def _special(value: msgspec.Raw) -> str | None:
    """A special token: text, or an object that holds it. None for what is none."""
    try:
        told = msgspec.json.decode(value, type=str | _Content | None)
    except msgspec.DecodeError:
        return None
    return told.content if isinstance(told, _Content) else told


def _of_folder(key: str, folder: Path) -> dict[str, str]:
    paths = {path.stem: path for path in sorted((folder / FURTHER_FOLDER).glob("*.jinja"))}
    if (folder / TEMPLATE_FILE).exists():
        paths[DEFAULT_TEMPLATE] = folder / TEMPLATE_FILE
    return {name: _text(key, path) for name, path in paths.items()}


def _compiled(key: str, name: str, source: str, variables: dict[str, object], clock: Clock) -> ChatTemplate:
    try:
        return ChatTemplate(source, variables, clock)
    except (jinja2.TemplateError, RecursionError) as error:
        line = error.lineno if isinstance(error, jinja2.TemplateSyntaxError) else "?"
        raise SettingsError(key, f"chat template {name}, line {line}: {_short(error)}") from None


def _text(key: str, path: Path) -> str:
    try:
        return _read(key, path, TEMPLATE_BYTES_MAX).decode()
    except UnicodeDecodeError:
        raise SettingsError(key, f"{path}: text in UTF-8 wanted") from None


def _read(key: str, path: Path, bytes_max: int) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(bytes_max + 1)
    except OSError as error:
        raise SettingsError(key, f"{path}: {error.strerror}") from error
    if len(raw) > bytes_max:
        raise SettingsError(key, f"{path}: at most {bytes_max} bytes")
    return raw


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:120]
