"""The short way for the common JSON lookup: token ids read without a Python object for each.

It only ever says "this is the request" or "not mine": everything unusual (unknown keys, multimodal items, hashes,
duplicate keys, anything wrong) is left to the strict decoder, which alone refuses and explains. So the two cannot
disagree about what is an error, and where both accept they give the same request (held by a property test). Pure but
for its reused buffers.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
import simdjson

from schemas.rest import U32_MAX, LookupOptions

BODY_MAX: Final = 4 * 2**20
"""A parser keeps buffers of several times its largest document: longer bodies (about 600,000 ids) go the strict way."""

_PLAIN_KEYS: Final = frozenset(LookupOptions.__struct_fields__) - {"mm_items", "min_sequence"}
_PROXIES: Final = (simdjson.Array, simdjson.Object)
_ARRAY_KEYS: Final = frozenset({"pods", "pod_roles"})


class PlainJson:
    """One reusable parser; not for two threads."""

    def __init__(self) -> None:
        self._parser = simdjson.Parser(max_capacity=BODY_MAX)

    def read(self, body: bytes) -> tuple[LookupOptions, bytes] | None:
        """Options and the little-endian u32 image of `token_ids`, or None when this body must go the strict way."""
        if not body.startswith(b"{"):
            return None  # the parser would pass over a byte order mark, which is no JSON
        try:
            found = self._members(body)
        except (ValueError, TypeError, RuntimeError, KeyError):
            # A refusal keeps no proxy alive, but were one kept the parser would refuse for ever after: take a new one.
            self._parser = simdjson.Parser(max_capacity=BODY_MAX)
            return None
        if found is None:
            return None
        members, image = found
        ids = np.frombuffer(image, dtype=np.uint64)
        if ids.size and int(ids.max()) > U32_MAX:
            return None
        try:
            options = msgspec.convert(members, LookupOptions)
        except msgspec.ValidationError:
            return None
        return options, ids.astype("<u4").tobytes()

    def _members(self, body: bytes) -> tuple[dict[str, object], bytes] | None:
        """Members but `token_ids` as Python values, and its ids as native u64.

        No proxy of the parser outlives this call.
        """
        document = self._parser.parse(body)
        if not isinstance(document, simdjson.Object):
            return None
        keys = list(document.keys())
        members: dict[str, object] = {}
        image: bytes | None = None
        for key in keys:
            value = document[key]
            if key == "token_ids" and isinstance(value, simdjson.Array):
                image = value.as_buffer(of_type="u")
            elif key in _ARRAY_KEYS and isinstance(value, simdjson.Array):
                members[key] = value.as_list()
            elif key in _PLAIN_KEYS and not isinstance(value, _PROXIES):
                members[key] = value
            else:
                return None
        if image is None or len(members) + 1 != len(keys) or _nested(body, members):
            return None
        return members, image


def _nested(body: bytes, members: dict[str, object]) -> bool:
    """Whether there may be an array inside `token_ids`, which the parser would flatten without a word.

    Counts opening brackets: every array accounts for one, and so does one inside a string unless it was written as an
    escape. More of them than that means nested, or at least not plain.
    """
    arrays, in_strings = 1, 0
    for value in members.values():
        if isinstance(value, list):
            arrays += 1
            in_strings += sum(text.count("[") for text in value if isinstance(text, str))
        elif isinstance(value, str):
            in_strings += value.count("[")
    if in_strings and b"\\" in body:
        return True  # one written as an escape would cover for one of a nested array
    at = -1
    for _ in range(arrays + in_strings):
        at = body.find(b"[", at + 1)
    return body.find(b"[", at + 1) >= 0
