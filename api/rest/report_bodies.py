"""Bodies of what callers report: an array of reports, each still as it was sent, and one, decoded. Pure."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from api.rest.lookup_request import LookupRequests
from api.rest.media import BodyForm
from api.rest.prompt_text import TEXT_FIELDS
from api.rest.why_not import why_not
from indexer.errors import BadRequestError, FieldIssue
from schemas.receipts import REPORTS_MAX

Plain = TypeVar("Plain")
Packed = TypeVar("Packed")

_ABSENT: Final = msgspec.Raw()
_TOO_MANY: Final = "at most length"
_BLANK: Final = b" \t\r\n"
_MAP_MIN, _MAP_MAX, _MAPS = 0x80, 0x8F, (0xDE, 0xDF)
"""First bytes of maps in MessagePack."""


class _Decoders(NamedTuple):
    """Of an array of reports: as a struct with a field a report, whose decoder stops at the first one too many."""

    json: Callable[[bytes], Any]
    msgpack: Callable[[bytes], Any]


class Reports(NamedTuple):
    """What a body holds. `alone`: one report that is no array's, refused as a request is."""

    bodies: list[bytes]
    alone: bool


def reports_in(form: BodyForm, body: bytes) -> Reports:
    """In their order. Raises `BadRequestError`, and `RequestRefused` 400 for what is not its format."""
    if _is_alone(form, body):
        return Reports([body], alone=True)
    try:
        decoded: Any = _decoders().json(body) if form == "json" else _decoders().msgpack(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if isinstance(error, msgspec.ValidationError) and _TOO_MANY in str(error):
            hint = "send several requests"
            issue = FieldIssue("body", f"at most {REPORTS_MAX} reports", hint=hint)
            raise BadRequestError("reports.too_many", [issue]) from None
        raise why_not(list[dict[str, Any]], form, body, error) from None
    return Reports([bytes(each) for each in msgspec.structs.astuple(decoded) if each is not _ABSENT], alone=False)


def prepare() -> None:
    """Have at once what else the first array that comes has to wait for."""
    _decoders()


@functools.cache
def _decoders() -> _Decoders:
    """Half a megabyte, made in two milliseconds: see `prepare`."""
    fields = [(f"report_{i}", msgspec.Raw, _ABSENT) for i in range(REPORTS_MAX)]
    items = msgspec.defstruct("Reports", fields, array_like=True, forbid_unknown_fields=True)
    return _Decoders(msgspec.json.Decoder(items).decode, msgspec.msgpack.Decoder(items).decode)


def _is_alone(form: BodyForm, body: bytes) -> bool:
    if form == "json":
        return body[:64].lstrip(_BLANK)[:1] == b"{"
    return bool(body) and (_MAP_MIN <= body[0] <= _MAP_MAX or body[0] in _MAPS)


def report_decoder(
    plain: type[Plain], packed: type[Packed], instead: str
) -> Callable[[LookupRequests, BodyForm, bytes], Plain | Packed]:
    """What makes one report of its body: `plain` of JSON, `packed` of MessagePack. Raises as `reports_in`.

    `instead`: what to do for who tells a prompt as text, which no report takes.
    """
    hints = {name: FieldIssue(name, "no text is taken here", hint=instead) for name in TEXT_FIELDS}
    of_json, of_msgpack = msgspec.json.Decoder(plain).decode, msgspec.msgpack.Decoder(packed).decode

    def decode(requests: LookupRequests, form: BodyForm, body: bytes) -> Plain | Packed:
        requests.look_over(form, body)
        try:
            return of_json(body) if form == "json" else of_msgpack(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise why_not(plain if form == "json" else packed, form, body, error, hints) from None

    return decode
