"""What a body, or a query string, says beside a lookup's question: taken out first; the rest is read as a lookup is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from api.rest.explain import UNKNOWN_FIELD, explain, nearest
from api.rest.media import BodyForm
from api.rest.query_options import options_from_query
from api.rest.why_not import why_not
from indexer.errors import BadRequestError

Options = TypeVar("Options", bound=msgspec.Struct)

_CODECS: Final[Mapping[BodyForm, tuple[Callable[[bytes], dict[str, msgspec.Raw]], Callable[[object], bytes]]]] = {
    "json": (msgspec.json.Decoder(dict[str, msgspec.Raw]).decode, msgspec.json.encode),
    "msgpack": (msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode, msgspec.msgpack.encode),
}


class Taken(NamedTuple, Generic[Options]):
    """What was said, and what is left of body and query string."""

    options: Options
    body: bytes
    query_string: bytes


class Beside(Generic[Options]):
    """Of one path. All fields of `options` have None for what is not said."""

    def __init__(self, options: type[Options]) -> None:
        self._options = options
        self._names = options.__struct_fields__
        self._marks: Mapping[BodyForm, tuple[bytes, ...]] = {
            "json": tuple(b'"%b"' % name.encode() for name in self._names),
            "msgpack": tuple(msgspec.msgpack.encode(name) for name in self._names),
        }
        """What stands in a body that may say so: others need not be taken apart."""

    def take(self, form: BodyForm, body: bytes, query_string: bytes) -> Taken[Options]:
        """Of an option that is given twice the body's counts. Raises `BadRequestError`, and `RequestRefused` 400."""
        parts = query_string.split(b"&") if query_string else []
        mine = [part for part in parts if part.partition(b"=")[0].decode("latin-1") in self._names]
        options = options_from_query(b"&".join(mine), self._options)
        rest = b"&".join(part for part in parts if part not in mine)
        if form == "ids":
            return Taken(options, body, rest)
        told, body = self._taken_out(form, body)
        for name in self._names:
            if getattr(told, name) is not None:
                setattr(options, name, getattr(told, name))
        return Taken(options, body, rest)

    def hinted(self, error: BadRequestError) -> BadRequestError:
        """The same; a name that a lookup does not know may have been meant to be one of these."""
        issues = [
            msgspec.structs.replace(issue, hint=nearest(issue.field, list(self._names)))
            if issue.rule == UNKNOWN_FIELD and issue.hint is None
            else issue
            for issue in error.issues
        ]
        return BadRequestError(error.code, issues)

    def _taken_out(self, form: BodyForm, body: bytes) -> tuple[Options, bytes]:
        """What the body says of it, and the body without. One that says nothing of it, or is none, stays as it is."""
        decode, encode = _CODECS[form]
        if not any(mark in body for mark in self._marks[form]):
            return self._options(), body
        try:
            members = decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._options(), body  # what reads a lookup says what is wrong
        mine = {name: members.pop(name) for name in self._names if name in members}
        if not mine:
            return self._options(), body
        read = msgspec.json.decode if form == "json" else msgspec.msgpack.decode
        try:  # a member that nobody looked into yet
            values: dict[str, object] = {name: read(bytes(raw)) for name, raw in mine.items()}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise why_not(self._options, form, body, error) from None
        try:
            return msgspec.convert(values, self._options), encode(members)
        except msgspec.ValidationError as error:
            raise explain(self._options, values, error, {}) from None
