"""YAML, of a file or of one value. Loaded where there is some: the library for it is 1 MB. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Hashable

_NAMELESS: Final = re.compile(r' in "<(?:byte|unicode) string>"')


def document_of(content: bytes) -> object:
    """What a file holds. Raises ValueError with what is wrong."""
    try:
        return yaml.load(content, Loader=_UniqueKeys)  # noqa: S506  a SafeLoader
    except _GivenTwice as error:
        raise ValueError(_one_line(error)) from error
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {_one_line(error)}") from error


def value_of(text: str) -> object:
    """One value. Raises ValueError with what is wrong."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML ({_one_line(error)})") from error


class _GivenTwice(yaml.constructor.ConstructorError):
    """A key stands twice in one map."""


class _UniqueKeys(yaml.SafeLoader):
    """YAML in which a key that stands twice is an error: the first would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002  the base's signature
        seen: set[str] = set()
        for key in (key_node for key_node, _ in node.value if isinstance(key_node, yaml.ScalarNode)):
            if key.value in seen:
                raise _GivenTwice(None, None, f"{key.value!r} is given twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _one_line(error: yaml.YAMLError) -> str:
    """YAML's message without its line breaks, and without a name for what was read, which has none."""
    return _NAMELESS.sub("", " ".join(str(error).split()))
