"""An engine's list of models (`GET /v1/models`, as OpenAI has it) → what it serves. Pure.

vLLM and SGLang list each served name of the model as an entry without `parent`, its `root` being where the model is
from, and each adapter that is loaded as an entry with a `parent`. Whatever else stands there is of no use, and costs
nothing but itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from indexer.index.served import ADAPTERS_MAX, NAME_MAX, NAMES_MAX, Served

if TYPE_CHECKING:
    from collections.abc import Iterable

PATH: Final = "/v1/models"
BYTES_MAX: Final = 1024**2
"""Of an answer."""
ENTRIES_MAX: Final = 4_096


class NoList(Exception):
    """Why an answer is no list of models, in words of ours."""


def read_models(content: bytes) -> Served:
    """What the list says. Raises `NoList`."""
    if len(content) > BYTES_MAX:
        raise NoList(f"more than {BYTES_MAX} bytes")
    try:
        said = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NoList("it is no JSON") from error
    listed = said.get("data") if isinstance(said, dict) else None
    if not isinstance(listed, list):
        raise NoList("it has no list of models")
    entries = [entry for entry in listed[:ENTRIES_MAX] if isinstance(entry, dict) and _is_name(entry.get("id"))]
    models = [entry for entry in entries if not _is_name(entry.get("parent"))]
    names = [entry["id"] for entry in models]
    if not names:
        raise NoList("it names no model")
    roots = [entry["root"] for entry in models if _is_name(entry.get("root"))]
    own = _each_once([*names, *roots])[:NAMES_MAX]
    adapters = _each_once(entry["id"] for entry in entries if _is_name(entry.get("parent")))
    return Served(own, tuple(name for name in adapters if name not in own)[:ADAPTERS_MAX])


def _each_once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _is_name(value: Any) -> bool:  # noqa: ANN401  whatever stands there
    return isinstance(value, str) and 0 < len(value) <= NAME_MAX and value.isprintable()
