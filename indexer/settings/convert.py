"""One value of the file, the environment or a flag → the type of its setting, or the rule that it breaks. Pure."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from typing import Annotated, Final, Literal, Union, get_args, get_origin

import msgspec

SHOWN_MAX: Final = 80
_TYPES: Final = re.compile(r"(?<=[Ee]xpected )`([a-z]+(?: \| [a-z]+)*)`|(?<=got )`([a-z]+)`")
_WORDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a map",
}


class Written(str):
    """A value from the environment: still text, to be read as YAML where the setting is no text."""

    __slots__ = ()


def converted(value: object, annotation: object) -> object:
    """The value as the setting's type. Raises ValueError with the rule."""
    if isinstance(value, Written):
        value = str(value) if is_text(annotation) else _as_yaml_of(value, annotation)
    if may_be_none(annotation) and (value is False or (_is_off(value) and not is_text(annotation))):
        value = None  # YAML reads `off` so, and leaves it alone between quotes
    if isinstance(value, str) and _items_choices(annotation):
        value = [part.strip() for part in value.split(",")]
    try:
        return msgspec.convert(value, annotation)  # bounds reject what is not finite, too
    except msgspec.ValidationError as error:
        raise ValueError(_rule_of_entry(value, annotation) or rule_of(error, annotation)) from error


def _as_yaml_of(text: str, annotation: object) -> object:
    try:
        return as_yaml(text)
    except ValueError:
        if secrecy(annotation) is None:
            raise
        raise ValueError("not YAML") from None  # what YAML says of it shows it


def _is_off(value: object) -> bool:
    return isinstance(value, str) and value in {"off", "Off", "OFF"}


def _rule_of_entry(value: object, annotation: object) -> str | None:
    """Of a map: which of its entries breaks the rule. The decoder's words do not name it."""
    if get_origin(annotation) is not dict or not isinstance(value, dict):
        return None
    of_entry = get_args(annotation)[1]
    for key, entry in value.items():
        try:
            msgspec.convert(entry, of_entry)
        except msgspec.ValidationError as error:
            return f"{shown(key)}: {rule_of(error, of_entry)}"
    return None


def unknown_of_entries(value: object, annotation: object) -> Iterator[tuple[tuple[str, str], tuple[str, ...]]]:
    """Of a map of sections: each key that its section does not know, as (entry, key), and those that it knows."""
    section = get_args(annotation)[1] if get_origin(annotation) is dict else None
    if not (isinstance(section, type) and issubclass(section, msgspec.Struct)):
        return
    if isinstance(value, Written):
        try:
            value = as_yaml(value)
        except ValueError:  # told where it is converted
            return
    known = tuple(field.name for field in msgspec.structs.fields(section))
    for name, entry in value.items() if isinstance(value, dict) else ():
        for key in entry if isinstance(entry, dict) else ():
            if key not in known:
                yield (str(name), str(key)), known


def as_yaml(text: str) -> object:
    """One YAML value. Raises ValueError."""
    from indexer.settings.documents import value_of  # noqa: PLC0415 - as said there

    return value_of(text)


def rule_of(error: msgspec.ValidationError, annotation: object) -> str:
    """What was wanted, in msgspec's words without its account of what it got: we show the value itself."""
    choices = [
        choice for member in members_of(annotation) if get_origin(member) is Literal for choice in get_args(member)
    ]
    if choices:
        return f"one of {', '.join(choices)} wanted"
    if choices := _items_choices(annotation):
        return f"one or more of {', '.join(choices)} wanted"
    text, _, where = str(error).partition(" - at ")
    if "matching regex" in text and (form := _form_of(annotation)) is not None:
        return f"{form} wanted"
    wanted = in_words(text.partition(", got ")[0])
    place = where.strip("`").removeprefix("$")
    return f"{wanted[:1].lower()}{wanted[1:]}".replace("`", "") + (f" at {place}" if place else "")


def in_words(rule: str) -> str:
    """A decoder's rule with the names of Python's types as people say them: `int | null` is a whole number or null."""
    return _TYPES.sub(
        lambda found: " or ".join(_WORDS.get(name, name) for name in (found[1] or found[2]).split(" | ")), rule
    )


def members_of(annotation: object) -> tuple[object, ...]:
    """The alternatives of a union, or the one type it is."""
    return get_args(annotation) if get_origin(annotation) in {Union, types.UnionType} else (annotation,)


def _items_choices(annotation: object) -> list[str]:
    """Of a list each of whose items is one of a few words: those words."""
    kind = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    item = get_args(kind)[0] if get_origin(kind) is tuple else None
    return [str(choice) for choice in get_args(item)] if get_origin(item) is Literal else []


def _form_of(annotation: object) -> str | None:
    """A pattern in words, where the setting has them."""
    metas = [meta for member in members_of(annotation) for meta in getattr(member, "__metadata__", ())]
    return next((meta.description for meta in metas if meta.description), None)


def may_be_none(annotation: object) -> bool:
    """Whether the setting can be switched off."""
    return types.NoneType in members_of(annotation)


def is_text(annotation: object) -> bool:
    """Whether the setting takes text as it is written."""
    wanted = {get_args(m)[0] if get_origin(m) is Annotated else m for m in members_of(annotation)}
    return str in wanted or any(get_origin(m) is Literal for m in wanted)


def secrecy(annotation: object) -> str | None:
    """What must never be shown of a value of this setting: `all` of it, the password in a `url`, or None.

    Of a map, what must not be shown of its entries.
    """
    if get_origin(annotation) is dict:
        return secrecy(get_args(annotation)[1])
    for member in members_of(annotation):
        for meta in get_args(member)[1:] if get_origin(member) is Annotated else ():
            if meta.extra and "secret" in meta.extra:
                return str(meta.extra["secret"])
    return None


def shown(value: object) -> str:
    """A value for a message: one line, cut short."""
    plain = isinstance(value, Written) and value.isprintable()
    text = str(value) if plain else repr(str(value) if isinstance(value, Written) else value)
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 3]}..."
