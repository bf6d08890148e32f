"""YAML < environment < flags, read into `Settings`.

Environment: `KVINDEXER_SECTION__KEY=value`, deeper keys with `__` again: `KVINDEXER_STALENESS__ENTRY_TTL_S__STORAGE`.
The value is written as in YAML, text as it is; an empty one leaves the setting alone. `KVINDEXER_SOURCES` holds entries
in the grammar of `--source`, separated by white space, and `KVINDEXER_ROLES` what `--roles` takes. Other names without
`__` change nothing: Kubernetes invents such ones (`KVINDEXER_PORT`) for every service called kvindexer, so what is left
is a remark (remarks.py).

An unknown key is an error that names the nearest known one. All errors are found before any is raised.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from indexer.errors import IndexerError, SettingsError, SourceConflictError
from indexer.index.registry import NameBook
from indexer.model import Descriptor, SourceId
from indexer.settings.convert import Written, converted, secrecy, shown, unknown_of_entries
from indexer.settings.forms import Section
from indexer.settings.relations import contradictions
from indexer.settings.sections import Settings
from indexer.settings.source_entry import descriptor_of
from indexer.settings.source_flag import check_bind, nearest, parse_source_flag
from indexer.store.address import BadAddress, parse

PREFIX: Final = "KVINDEXER_"
FILE_BYTES_MAX: Final = 16 * 1024 * 1024

_SEPARATOR: Final = "__"
_SOURCES_VARIABLE: Final = "KVINDEXER_SOURCES"
_ROLES_VARIABLE: Final = "KVINDEXER_ROLES"
_FLAGS: Final = {"redis.url": "--redis-url"}
"""Where a flag is not called as the last part of its setting."""


class BadSettings(IndexerError):
    """The operator must change the settings named in `errors`, one a line in the message."""

    def __init__(self, errors: Sequence[SettingsError]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = tuple(errors)


def load(
    config: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
    source_flags: Sequence[str] = (),
) -> Settings:
    """The effective settings. `flags` maps dotted keys (`server.port`) to values, None for a flag that was not given.

    Raises `BadSettings` with everything that is wrong.
    """
    reader = _Reader()
    if config is not None:
        reader.add_file(config)
    reader.add_environment(os.environ if environment is None else environment)
    for key, value in (flags or {}).items():
        if value is not None:
            reader.put(key.split("."), value, _FLAGS.get(key) or f"--{key.rpartition('.')[2].replace('_', '-')}")
    reader.add_source_flags(source_flags)
    return reader.settings()


class _Reader:
    """Collects the layers, then converts key by key; keeps every error on the way."""

    def __init__(self) -> None:
        self._errors: list[SettingsError] = []
        self._values: dict[tuple[str, ...], tuple[object, str]] = {}
        self._sources: dict[SourceId, Descriptor] = {}

    def add_file(self, path: Path) -> None:
        from indexer.settings.documents import document_of  # noqa: PLC0415 - as said there

        try:
            if path.stat().st_size > FILE_BYTES_MAX:
                raise BadSettings([SettingsError(str(path), f"a configuration has at most {FILE_BYTES_MAX} bytes")])
            document = document_of(path.read_bytes())
        except OSError as error:
            raise BadSettings([SettingsError(str(path), error.strerror or str(error))]) from error
        except ValueError as error:
            raise BadSettings([SettingsError(str(path), str(error))]) from error
        if document is None:
            return
        if not isinstance(document, dict):
            raise BadSettings([SettingsError(str(path), "the top level is a map of sections")])
        sources = document.pop("sources", None)
        self._add_tree(document, (), str(path))
        self._add_source_entries(sources, str(path))

    def add_environment(self, environment: Mapping[str, str]) -> None:
        for name in sorted(environment):
            value = environment[name]
            if not name.startswith(PREFIX) or not value:
                continue
            if name == _SOURCES_VARIABLE:
                for entry in value.split():
                    self._add_source(entry, name)
            elif name == _ROLES_VARIABLE:
                self.put(("server", "roles"), Written(value), name)
            elif _SEPARATOR in name:
                path = [part.lower() for part in name.removeprefix(PREFIX).split(_SEPARATOR)]
                self.put(path, Written(value), name)

    def add_source_flags(self, entries: Sequence[str]) -> None:
        seen: set[SourceId] = set()
        for entry in entries:
            try:
                descriptors = parse_source_flag(entry)
            except SettingsError as error:
                self._errors.append(error)
                continue
            for descriptor in descriptors:
                if descriptor.id in seen:
                    self._errors.append(SettingsError("--source", f"{descriptor.id} is given twice"))
                seen.add(descriptor.id)
                self._sources[descriptor.id] = descriptor  # a flag wins over the file

    def put(self, path: Sequence[str], value: object, origin: str) -> None:
        """A value for one key; a later layer replaces it. Unknown keys are errors."""
        problem = _unknown(path)
        if problem is not None:
            self._errors.append(SettingsError(".".join(path), f"unknown key in {origin} ({problem})"))
            return
        self._values[tuple(path)] = (value, origin)

    def settings(self) -> Settings:
        sections = self._build(Settings, ())
        if self._errors:
            raise BadSettings(self._errors)
        settings: Settings = msgspec.structs.replace(sections, sources=tuple(self._sources.values()))
        self._errors.extend(SettingsError(key, rule) for key, rule in contradictions(settings))
        self._check_names(settings.sources)
        self._check_binds(settings.events.source_bind)
        self._check_store(settings.redis.url)
        if self._errors:
            raise BadSettings(self._errors)
        return settings

    def _check_names(self, sources: Sequence[Descriptor]) -> None:
        """The rule of every registration: a name belongs to one pod."""
        names = NameBook()
        for descriptor in sources:
            try:
                names.check(descriptor)
            except SourceConflictError as error:
                self._errors.append(SettingsError(f"sources: {descriptor.id}", str(error)))
            names.enter(descriptor)

    def _check_binds(self, endpoints: Sequence[str]) -> None:
        for index, endpoint in enumerate(endpoints):
            try:
                check_bind(endpoint, "events.source_bind")
            except SettingsError as error:
                self._errors.append(error)
            if endpoint in endpoints[:index]:
                self._errors.append(SettingsError("events.source_bind", f"{endpoint} is given twice"))

    def _check_store(self, url: str | None) -> None:
        """Told without the address: it may hold a password."""
        try:
            if url is not None:
                parse(url)
        except BadAddress as error:
            hint = "; in user and password / ? # [ ] are percent-encoded" if url is not None and "@" in url else ""
            self._errors.append(SettingsError("redis.url", f"an address {error}{hint}"))

    def _add_tree(self, tree: Mapping[object, object], above: tuple[str, ...], origin: str) -> None:
        for name, value in tree.items():
            path = (*above, str(name))
            if isinstance(value, dict) and _section_at(path) is not None:
                self._add_tree(value, path, origin)
            elif value is not None or _section_at(path) is None:  # an empty section is no error
                self.put(path, value, origin)

    def _build(self, section: type[Section], above: tuple[str, ...]) -> Any:  # noqa: ANN401  any section
        given: dict[str, object] = {}
        for field in msgspec.structs.fields(section):
            path = (*above, field.name)
            inner = _section_of(field.type)
            if inner is not None:
                given[field.name] = self._build(inner, path)
            if path in self._values:
                value, origin = self._values[path]
                unknown = list(unknown_of_entries(value, field.type))
                self._errors += [
                    SettingsError(".".join((*path, *below)), f"unknown key in {origin} ({nearest(below[-1], known)})")
                    for below, known in unknown
                ]
                if unknown:
                    continue
                try:
                    given[field.name] = converted(value, field.type)
                except ValueError as error:
                    got = "***" if secrecy(field.type) else shown(value)
                    key = ".".join(path)
                    self._errors.append(SettingsError(key, f"{error}, got {got} ({origin})"))
        return section(**given)

    def _add_source_entries(self, entries: object, origin: str) -> None:
        if entries is None:
            return
        if not isinstance(entries, list):
            self._errors.append(SettingsError("sources", f"a list wanted ({origin})"))
            return
        before = len(self._errors)
        for index, entry in enumerate(entries):
            self._add_source(entry, f"sources[{index}]")
        self._errors[before:] = [SettingsError(e.key, f"{e.rule} ({origin})") for e in self._errors[before:]]

    def _add_source(self, entry: object, key: str) -> None:
        descriptors: Sequence[Descriptor] = ()
        if isinstance(entry, str):
            try:
                descriptors = parse_source_flag(entry, key=key, origin="config")
            except SettingsError as error:
                self._errors.append(error)
        elif (described := descriptor_of(entry, key, self._errors)) is not None:
            descriptors = (described,)
        for descriptor in descriptors:
            if descriptor.id in self._sources:
                self._errors.append(SettingsError(key, f"{descriptor.id} is given twice"))
            self._sources[descriptor.id] = descriptor


def _section_of(annotation: object) -> type[Section] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, Section) else None


def _field(section: type[Section], name: str) -> msgspec.structs.FieldInfo | None:
    return next((field for field in msgspec.structs.fields(section) if field.name == name), None)


def _section_at(path: Sequence[str]) -> type[Section] | None:
    section: type[Section] | None = Settings
    for name in path:
        field = None if section is None else _field(section, name)
        section = None if field is None else _section_of(field.type)
    return section


def _unknown(path: Sequence[str]) -> str | None:
    """What to say about a path that names no setting; None for one that does."""
    for depth, name in enumerate(path):
        section = _section_at(path[:depth])
        if section is None:
            return f"{'.'.join(path[:depth])} has no keys below it"
        if _field(section, name) is None or (depth == 0 and name == "sources"):
            return nearest(name, tuple(f.name for f in msgspec.structs.fields(section) if f.name != "sources"))
    if _section_at(path) is not None:
        return f"{'.'.join(path)} is a section, its keys are wanted"
    return None
