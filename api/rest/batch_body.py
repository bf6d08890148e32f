"""From the body of `POST /v1/lookup/batch` to its items, each still as it was sent. Pure.

An item is read by the same `LookupRequests` as a lookup's body is, so that the two cannot differ in what they take.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from api.rest.media import BodyForm
from api.rest.why_not import why_not
from indexer.errors import BadRequestError, FieldIssue

_ABSENT: Final = msgspec.Raw()
_TOO_MANY: Final = "at most length"


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    """As the decoder that explains sees it."""

    items: list[Any]


class BatchBodies:
    """`items_max`: lookups in one batch."""

    def __init__(self, items_max: int) -> None:
        self._items_max = items_max
        # As an array-like struct with a field an item: unlike that of a list, its decoder stops at the first item too
        # many, and millions of them cost nothing.
        fields = [(f"item_{i}", msgspec.Raw, _ABSENT) for i in range(items_max)]
        items = msgspec.defstruct("Items", fields, array_like=True, forbid_unknown_fields=True)
        body = msgspec.defstruct("Batch", [("items", items)], forbid_unknown_fields=True)
        self._decode_json = msgspec.json.Decoder(body).decode
        self._decode_msgpack = msgspec.msgpack.Decoder(body).decode

    def items(self, form: BodyForm, body: bytes) -> list[bytes]:
        """The items in their order. Raises `BadRequestError`, and `RequestRefused` 400 for what is not its format."""
        try:
            decoded: Any = self._decode_json(body) if form == "json" else self._decode_msgpack(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if isinstance(error, msgspec.ValidationError) and _TOO_MANY in str(error):
                raise self._too_many() from None
            raise why_not(_Body, form, body, error) from None
        return [bytes(item) for item in msgspec.structs.astuple(decoded.items) if item is not _ABSENT]

    def _too_many(self) -> BadRequestError:
        rule = f"at most {self._items_max} lookups (limits.batch)"
        return BadRequestError("batch.too_many", [FieldIssue("items", rule, hint="send several batches")])
