"""The short way for the common JSON lookup: token ids read without a Python object for each.

It only ever says "this is the question" or "not mine": everything unusual (unknown keys, multimodal items, hashes,
duplicate keys, anything wrong) is left to the strict decoder, which alone refuses and explains. So the two cannot
disagree about what is an error, and where both accept they give the same question (held by a property test). Pure but
for its reused buffers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
import simdjson

from indexer.hashing.memo import CHUNK_TOKENS
from indexer.hashing.texts import TEXT_BYTES_MIN, Beginning, TextMemo
from indexer.model import TOKEN_BYTES
from schemas.lookup import LookupQuery
from schemas.rest import U32_MAX, LookupOptions

BODY_MAX: Final = 4 * 2**20
"""A parser keeps buffers of several times its largest document: longer bodies (about 600,000 ids) go the strict way."""

SLICED_BYTES: Final = 2**20
"""Longer bodies are read in slices, by who can wait."""
SLICE_BYTES: Final = 2**16
"""Of a slice, with some ten thousand ids: a third of a millisecond."""
BRACKETS_MAX: Final = 256
"""In strings and lists; a body with more goes the strict way, which does not look for them one by one."""
TOKENS_KEY: Final = b'"token_ids"'
KEY_BYTES: Final = 40
"""The key, its colon and as much white space as anybody writes."""
_HASHES: Final = re.compile(rb'"block_hashes"\s*:\s*\[\Z')
_KEY: Final = re.compile(rb'"token_ids"\s*:\s*\[\Z')

_U64: Final = np.dtype(np.uint64)
_U32: Final = np.dtype("<u4")
_max: Final = np.maximum.reduce
_LISTS: Final = frozenset({"pods", "pod_roles"})
_PLAIN: Final = frozenset(LookupOptions.__struct_fields__) - {
    *("mm_items", "min_sequence"),  # of more than one level
    *("block_size", "prompt_tokens", "scheme"),  # not beside token ids
}

Options = Callable[[simdjson.Object], dict[str, Any] | None]


class PlainJson:
    """One reusable parser; not for two threads. `tokens_max` ids at most, more are the strict way's to refuse.

    `options`: what the members beside `token_ids` say, as fields of a `LookupQuery`; None where they are not plain.
    Each tuple among them stands for an array of the body, each string for one that stood there.
    """

    def __init__(self, tokens_max: int, texts: TextMemo, options: Options | None = None) -> None:
        self._parser = simdjson.Parser(max_capacity=BODY_MAX)
        self._tokens_max = tokens_max
        self._texts = texts
        self._options = options or _options

    def read(self, body: bytes) -> LookupQuery | None:
        """The question, or None when this body must go the strict way."""
        first = body.find(b"[") + 1
        if _HASHES.search(body, max(0, first - KEY_BYTES), first) is not None or TOKENS_KEY not in body:
            return None  # hashes or a text, or written as nobody writes it: told before the parser reads all of it
        begin, end = _text_of(body)
        if end - begin < TEXT_BYTES_MIN or len(body) > BODY_MAX:  # what is cut must be readable whole, too
            return self._parse(body)
        known = self._texts.beginning(body, begin, end)
        query = self._parse(body[:begin] + body[begin + known.resume :] if known.resume else body)
        if query is None or (known.digests and not self._begin_with(query, known, body)):
            return None
        self._texts.learn(body, begin, end, known, query.tokens or b"")
        return query

    def in_slices(self, body: bytes) -> Generator[None, None, LookupQuery | None]:
        """As `read`, of a body so long that the loop must not wait for it: others may run between two steps."""
        begin, end = _text_of(body)
        if end <= begin or body.find(b"[", begin, end) >= 0:
            return self.read(body)
        query = self._parse(body[:begin] + body[end:])
        parts: list[bytes] = []
        at, size = begin, 0
        while query is not None and at < end:
            cut = end if end - at <= SLICE_BYTES else body.rfind(b",", at, at + SLICE_BYTES)
            part = self._parse(b'{"token_ids":[%b]}' % body[at:cut]) if cut > at else None
            if part is None or not part.tokens:
                return None
            parts.append(part.tokens)
            size += len(part.tokens)
            if size > self._tokens_max * TOKEN_BYTES:
                return None
            at = cut + 1
            yield
        if query is not None:
            query.tokens = b"".join(parts)
        return query

    def _begin_with(self, query: LookupQuery, known: Beginning, body: bytes) -> bool:
        """Put the known beginning before the tokens; False for what the strict way refuses."""
        tokens = len(query.tokens or b"") // TOKEN_BYTES
        if not tokens or len(known.digests) * CHUNK_TOKENS + tokens > self._tokens_max:
            return False  # no number behind the last comma is no JSON, though the rest alone is
        query.start = tuple(known.digests)
        query.whole = partial(self._whole, body)
        return True

    def _whole(self, body: bytes) -> bytes:
        query = self._parse(body)
        assert query is not None  # noqa: S101  all its parts were accepted before
        return query.tokens or b""

    def _parse(self, body: bytes) -> LookupQuery | None:
        if body[:1] != b"{":
            return None  # the parser would pass over a byte order mark, which is no JSON
        try:
            # No proxy of the parser may outlive this call, or it refuses the next document.
            document = self._parser.parse(body)
            if not isinstance(document, simdjson.Object):
                return None
            array = document["token_ids"]
            if not isinstance(array, simdjson.Array):
                return None
            image = array.as_buffer(of_type="u")
            options = self._options(document)
        except (ValueError, TypeError, RuntimeError, KeyError):
            self._parser = simdjson.Parser(max_capacity=BODY_MAX)
            return None
        if options is None or _nested(body, options):
            return None
        ids = np.frombuffer(image, _U64)
        if ids.size and (ids.size > self._tokens_max or int(_max(ids)) > U32_MAX):
            return None
        return LookupQuery(tokens=ids.astype(_U32).tobytes(), **options)


def _text_of(body: bytes) -> tuple[int, int]:
    """Where the inside of `token_ids` begins and ends, if it is the body's first array; else (0, 0)."""
    begin = body.find(b"[") + 1
    if not begin or _KEY.search(body, max(0, begin - KEY_BYTES), begin) is None:
        return 0, 0
    return begin, body.find(b"]", begin)


def _options(document: simdjson.Object) -> dict[str, Any] | None:
    """The members beside `token_ids` that are not null, as the strict decoder would give them; None: not plain."""
    options: dict[str, Any] = {}
    members = 0
    for key in document:
        members += 1
        if key == "token_ids":
            continue
        if key not in _PLAIN:
            return None
        value = document[key]
        options[key] = value.as_list() if isinstance(value, simdjson.Array) else value
    if len(options) + 1 != members:
        return None  # a key stands twice
    if options:
        msgspec.convert(options, LookupOptions)  # raises ValidationError, a ValueError, for what breaks a rule
        if not _LISTS.isdisjoint(options) or None in options.values():
            return {k: tuple(v) if k in _LISTS else v for k, v in options.items() if v is not None}
    return options


def _nested(body: bytes, options: dict[str, Any]) -> bool:
    """Whether there may be an array inside `token_ids`, which the parser would flatten without a word.

    Counts opening brackets: every array accounts for one, and so does one inside a string unless it was written as an
    escape. More of them than that means nested, or at least not plain.
    """
    at = body.find(b"[")
    if body.find(b"[", at + 1) < 0:
        return False
    arrays, in_strings = 0, 0
    for value in options.values():
        if isinstance(value, tuple):
            arrays += 1
            in_strings += sum(text.count("[") for text in value)
        elif isinstance(value, str):
            in_strings += value.count("[")
    if arrays + in_strings > BRACKETS_MAX or (in_strings and b"\\" in body):
        return True  # one written as an escape would cover for one of a nested array
    for _ in range(arrays + in_strings):
        at = body.find(b"[", at + 1)
    return body.find(b"[", at + 1) >= 0
