"""From the bytes of a request to one `LookupQuery`, whichever form they came in. Pure.

A prompt told as text stays one (`query.text`): the node makes tokens of it.

Three forms: JSON, MessagePack, and bare token bytes with the options in the query string. Where an
option is given twice the body counts before the query string, and that before a header; of several deadlines the
smallest holds.
"""

from __future__ import annotations

import binascii
import contextlib
import copy
import re
import struct
from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, cast, get_type_hints

import msgspec

from api.rest.explain import got_of
from api.rest.hash_texts import MARKER, hashes_of, hashes_taken_out
from api.rest.header_options import SALT_HEADER, add_header_options
from api.rest.items import items_of
from api.rest.media import BodyForm
from api.rest.plain_json import SLICED_BYTES, PlainJson
from api.rest.prompt_text import ONLY_WITH_TEXT, TEXT_FIELDS, text_of
from api.rest.query_options import options_from_query
from api.rest.why_not import why_not
from indexer.clock import SystemClock
from indexer.decode.envelope import array_length
from indexer.errors import BadRequestError, FieldIssue
from indexer.hashing.texts import TextMemo
from indexer.slices import Slices
from schemas.lookup import LookupQuery, TextPrompt
from schemas.rest import U64_MAX, LookupBody, LookupOptions, PackedLookupBody

KEPT_QUERIES: Final = 256
KEPT_QUERY_MAX: Final = 1_024
"""Query strings whose meaning is kept, and the longest of them, in bytes."""
HASH_BLOCKS_MAX: Final = 262_144
"""Of one answer of `/v1/hash`: several objects each, made while the event loop waits. A 4 M-token prompt at 16."""
QUERY_HASHES_MAX: Final = 131_072
"""Of one question, each an object that is read one by one: the longest prompt by default, at block size 16."""
LOOKED_AT_BYTES: Final = 2**20
"""Longer bodies are looked over for far too many numbers before they are decoded, which takes a tenth of the time."""
OTHER_COMMAS_MAX: Final = 200_000
"""In a JSON body beside those between token ids: hashes, names, multimodal items."""
PROMPT_FIELDS: Final = ("token_ids", "block_hashes", "prompt", "messages")
"""Exactly one of them tells the prompt."""
HASH_DIGITS: Final = 16
HASH_BYTES: Final = 8
TOKEN_BYTES: Final = 4

_SEND_ALL_IDS: Final = "send token_ids: they are cheaper at this length"
_QUERY_HINTS: Final = {
    **{name: FieldIssue(name, "never in a URL, which is logged", hint="send it as JSON") for name in TEXT_FIELDS},
    "cache_salt": FieldIssue(
        field="cache_salt", rule="never in a URL, which is logged", hint=f"send the header {SALT_HEADER.decode()}"
    ),
    "token_ids": FieldIssue(field="token_ids", rule="not in the query string", hint="the body carries the ids"),
    "block_hashes": FieldIssue(field="block_hashes", rule="not in the query string", hint="send them as JSON"),
}

_NOT_IN_QUERY: Final = {
    False: frozenset({"cache_salt", "block_size", "prompt_tokens", "scheme"}),
    True: frozenset({"cache_salt", "prompt_tokens", "scheme"}),
}
"""By `hashing`: options that only make sense beside `block_hashes`, and the one that is never in a URL."""


def _parameters(hashing: bool) -> type[msgspec.Struct]:  # noqa: FBT001 - the key of a table
    hints = get_type_hints(LookupOptions, include_extras=True)
    fields = [(name, kind, None) for name, kind in hints.items() if name not in _NOT_IN_QUERY[hashing]]
    name = "HashParameters" if hashing else "LookupParameters"
    return msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)


PARAMETERS: Final = {hashing: _parameters(hashing) for hashing in (False, True)}
"""By `hashing`: the struct of what the query string may carry."""

_LABELS: Final[dict[BodyForm, str]] = {"json": "json", "msgpack": "msgpack", "ids": "bytes"}
_decode_json = msgspec.json.Decoder(LookupBody).decode
_decode_msgpack = msgspec.msgpack.Decoder(PackedLookupBody).decode


class LookupRequest(NamedTuple):
    """The question, and the form it came in as a metric's label."""

    query: LookupQuery
    input: str


class LookupRequests:
    """Parses requests for one event loop."""

    def __init__(self, tokens_max: int, texts: TextMemo | None = None) -> None:
        self._plain = PlainJson(tokens_max, texts or TextMemo())
        self._tokens_max = tokens_max
        self._clock = SystemClock()

    def parse(
        self, form: BodyForm, body: bytes, query_string: bytes, headers: Mapping[bytes, bytes], *, hashing: bool = False
    ) -> LookupRequest:
        """The question in `body`; with `hashing` by the rules of `/v1/hash`.

        Raises `BadRequestError` and `RequestRefused`.
        """
        query = None
        if form == "json" and not query_string and not hashing:
            query = self._plain.read(body)
        elif form == "ids" and not hashing:
            query = self._bare(body, query_string)
        if query is None:
            return self.parse_strictly(form, body, query_string, headers, hashing=hashing)
        add_header_options(query, headers)
        return LookupRequest(query, _LABELS[form])

    async def parse_long(
        self, form: BodyForm, body: bytes, query_string: bytes, headers: Mapping[bytes, bytes]
    ) -> LookupRequest:
        """As `parse`. A long list of ids in JSON is read in slices, between which others have the loop."""
        if form == "json" and not query_string and len(body) > SLICED_BYTES:
            query = await Slices(self._clock).run(self._plain.in_slices(body))
            if query is not None:
                add_header_options(query, headers)
                return LookupRequest(query, _LABELS[form])
        return self.parse(form, body, query_string, headers)

    def _bare(self, body: bytes, query_string: bytes) -> LookupQuery | None:
        """The question around bare token bytes; None where they are the strict way's to refuse."""
        if len(body) % TOKEN_BYTES or len(body) > self._tokens_max * TOKEN_BYTES:
            return None
        if len(query_string) > KEPT_QUERY_MAX:
            return None
        query = copy.copy(_without_tokens(query_string))
        query.tokens = body
        return query

    def parse_strictly(
        self, form: BodyForm, body: bytes, query_string: bytes, headers: Mapping[bytes, bytes], *, hashing: bool = False
    ) -> LookupRequest:
        """As `parse`, by the decoder that takes everything and explains what it refuses."""
        if form != "ids":
            self.look_over(form, body)
        prompt = _bytes(body) if form == "ids" else _strict(form, body)
        options = prompt.options
        if len(prompt.tokens or b"") > self._tokens_max * TOKEN_BYTES:
            raise _too_many(self._tokens_max)
        check = _check_hashing if hashing else _check_lookup
        if form != "ids":
            check(prompt)  # a body is whole by itself, whatever the query string adds
        if query_string:
            _fill(options, options_from_query(query_string, PARAMETERS[hashing], _QUERY_HINTS))
        if form == "ids":
            check(prompt)
        query = _query(prompt)
        add_header_options(query, headers)
        return LookupRequest(query, prompt.label or _LABELS[form])

    def look_over(self, form: BodyForm, body: bytes) -> None:
        """Refuse what no decoding could make good: each number is an object, made while the event loop waits."""
        if len(body) <= LOOKED_AT_BYTES:
            return
        if form == "json":
            if body.count(b",") > self._tokens_max + OTHER_COMMAS_MAX:
                raise _too_many(self._tokens_max)
            return
        try:
            lists = _lists(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return  # the decoder will say what is wrong
        if array_length(lists.token_ids) > self._tokens_max:
            raise _too_many(self._tokens_max)
        if array_length(lists.block_hashes) > QUERY_HASHES_MAX:
            raise _too_many_hashes(array_length(lists.block_hashes))


class _Lists(msgspec.Struct):
    token_ids: msgspec.Raw = msgspec.Raw()
    block_hashes: msgspec.Raw = msgspec.Raw()


_lists: Final = msgspec.msgpack.Decoder(_Lists).decode


@lru_cache(maxsize=KEPT_QUERIES)
def _without_tokens(query_string: bytes) -> LookupQuery:
    """Everything but the tokens of a question in bare bytes. A router sends the same options again and again."""
    options = LookupOptions()
    if query_string:
        _fill(options, options_from_query(query_string, PARAMETERS[False], _QUERY_HINTS))
    return _query(_Prompt(options))


class _Prompt(NamedTuple):
    """A request as it was decoded: its options, and the prompt in whatever forms it came."""

    options: LookupOptions
    tokens: bytes | None = None
    hashes: Sequence[int] | None = None
    text: TextPrompt | None = None
    given: tuple[str, ...] = ()
    """Names of the fields that tell the prompt."""

    @property
    def label(self) -> str | None:
        """The metric's label where the media type does not say it."""
        return "hashes" if self.hashes is not None else "text" if self.text is not None else None


def _bytes(body: bytes) -> _Prompt:
    return _Prompt(LookupOptions(), token_image(body, "body"), given=("token_ids",))


def _strict(form: BodyForm, body: bytes) -> _Prompt:
    """A JSON or MessagePack body, by the decoder that explains what it refuses."""
    hashes: Sequence[int] | None
    try:
        request, hashes = _decoded(form, body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise why_not(LookupBody if form == "json" else PackedLookupBody, form, body, error) from None
    tokens = None if request.token_ids is None else token_image(request.token_ids, "token_ids")
    if hashes is None and request.block_hashes is not None:
        hashes = told_hashes(request.block_hashes)
    if hashes is not None and len(hashes) > QUERY_HASHES_MAX:
        raise _too_many_hashes(len(hashes))
    named = tuple(name for name in PROMPT_FIELDS if getattr(request, name) is not None)
    return _Prompt(request, tokens, hashes, text_of(request), named)


def _decoded(form: BodyForm, body: bytes) -> tuple[LookupBody | PackedLookupBody, array[int] | None]:
    """The body, and its hashes where they were read at once."""
    if form == "msgpack":
        return _decode_msgpack(body), None
    taken = hashes_taken_out(body)
    if taken is not None:
        rest, hashes = taken
        try:
            request = _decode_json(rest)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _decode_json(body), None  # which names what is wrong where it stands
        if request.block_hashes == [MARKER]:
            return request, hashes
    return _decode_json(body), None


def told_hashes(given: bytes | list[int | str]) -> Sequence[int]:
    """Hashes as a body tells them, as u64. Raises `BadRequestError`."""
    if isinstance(given, bytes) and len(given) % HASH_BYTES:
        rule = f"little-endian u64 hashes: a length divisible by {HASH_BYTES}"
        raise BadRequestError("block_hashes.bad_length", [FieldIssue("block_hashes", rule, f"{len(given)} bytes")])
    count = len(given) // HASH_BYTES if isinstance(given, bytes) else len(given)
    if count > QUERY_HASHES_MAX:
        raise _too_many_hashes(count)
    return hashes_of(given, "<u8") if isinstance(given, bytes) else _hash_values(given)


def _too_many(tokens_max: int) -> BadRequestError:
    rule = f"a prompt of at most {tokens_max} tokens (limits.tokens)"
    return BadRequestError("token_ids.too_many", [FieldIssue("token_ids", rule)])


def _too_many_hashes(count: int) -> BadRequestError:
    issue = FieldIssue("block_hashes", f"at most {QUERY_HASHES_MAX} hashes", f"{count}", _SEND_ALL_IDS)
    return BadRequestError("block_hashes.too_many", [issue])


def token_image(given: bytes | list[int], field: str) -> bytes:
    """Token ids as a body tells them, as bytes (or another buffer of bytes). Raises `BadRequestError`."""
    if isinstance(given, list):
        return struct.pack(f"<{len(given)}I", *given)
    if len(given) % TOKEN_BYTES:
        rule = f"little-endian u32 token ids: a length divisible by {TOKEN_BYTES}"
        raise BadRequestError("token_ids.bad_length", [FieldIssue(field=field, rule=rule, got=f"{len(given)} bytes")])
    return given


_HASH_RULE: Final = "a whole number, -2^63..2^64-1 or 1..16 hexadecimal digits"
_HEX_HASH: Final = re.compile(r"(?:0[xX])?([0-9a-fA-F]{1,16})")


def _hash_values(hashes: list[int | str]) -> Sequence[int]:
    """The hashes as u64. Full-width hex digits, which is what this service hands out, are read all at once."""
    if {str} == set(map(type, hashes)):
        texts = cast("list[str]", hashes)
        if {HASH_DIGITS} == set(map(len, texts)):
            with contextlib.suppress(ValueError):  # one is prefixed, or wrong: that is told by its place
                return hashes_of(binascii.unhexlify("".join(texts)), ">u8")
    return array("Q", [_hash_value(i, value) for i, value in enumerate(hashes)])


def _hash_value(i: int, value: int | str) -> int:
    if isinstance(value, int):
        if -(2**63) <= value <= U64_MAX:
            return value & U64_MAX
    elif found := _HEX_HASH.fullmatch(value):
        return int(found[1], 16)
    issue = FieldIssue(f"block_hashes[{i}]", _HASH_RULE, got_of(value, "block_hashes"))
    raise BadRequestError("block_hashes.not_allowed", [issue])


def _fill(options: LookupOptions, further: msgspec.Struct) -> None:
    """Set what `options` leaves open from `further`."""
    for name in further.__struct_fields__:
        if getattr(options, name) is None:
            setattr(options, name, getattr(further, name))


def _check_one(given: tuple[str, ...], wanted: tuple[str, ...]) -> None:
    if len(given) != 1:
        issue = FieldIssue(wanted[0], f"exactly one of {', '.join(wanted)}", ", ".join(given) or "none")
        raise BadRequestError("prompt.exactly_one", [issue])


def _check_text_options(prompt: _Prompt) -> None:
    """What says how to read a text stands beside one."""
    for name, wanted in ONLY_WITH_TEXT.items():
        if getattr(prompt.options, name, None) is not None and wanted.isdisjoint(prompt.given):
            rule = f"only together with {' or '.join(sorted(wanted))}"
            raise BadRequestError(f"{name}.not_allowed", [FieldIssue(name, rule)])


def _check_lookup(prompt: _Prompt) -> None:
    _check_one(prompt.given, PROMPT_FIELDS)
    _check_text_options(prompt)
    options, hashes = prompt.options, prompt.hashes
    if hashes is not None:
        if options.block_size is None:
            raise BadRequestError("block_size.missing", [FieldIssue("block_size", "required with block_hashes")])
        least = len(hashes) * options.block_size
        if options.prompt_tokens is not None and options.prompt_tokens < least:
            rule = f"at least {least}: each block hash stands for a whole block"
            raise BadRequestError(
                "prompt_tokens.not_allowed", [FieldIssue("prompt_tokens", rule, str(options.prompt_tokens))]
            )
        return
    for name in ("block_size", "prompt_tokens", "scheme"):
        if getattr(options, name) is not None:
            issue = FieldIssue(name, "only together with block_hashes", hint="the sources' own block sizes are used")
            raise BadRequestError(f"{name}.not_allowed", [issue])


def _check_hashing(prompt: _Prompt) -> None:
    options, hashable = prompt.options, tuple(name for name in PROMPT_FIELDS if name != "block_hashes")
    if prompt.hashes is not None or not prompt.given:
        rule = f"required: the tokens to hash, or {' or '.join(hashable[1:])}"
        raise BadRequestError("token_ids.missing", [FieldIssue("token_ids", rule)])
    _check_one(prompt.given, hashable)
    _check_text_options(prompt)
    if options.block_size is None:
        raise BadRequestError("block_size.missing", [FieldIssue("block_size", "required: a whole number, 1..65536")])
    check_hashed_blocks(prompt.tokens, options.block_size)
    for name in ("prompt_tokens", "scheme"):
        if getattr(options, name) is not None:
            raise BadRequestError(f"{name}.not_allowed", [FieldIssue(name, "not in a request to hash")])


def check_hashed_blocks(tokens: bytes | None, block_size: int | None) -> None:
    """Raise where one answer would hold too many hashes. A text's tokens are counted once they are known."""
    blocks = len(tokens or b"") // (TOKEN_BYTES * (block_size or 1))
    if blocks > HASH_BLOCKS_MAX:
        rule = f"at most {HASH_BLOCKS_MAX} blocks are hashed at once"
        issue = FieldIssue("block_size", rule, f"{blocks} blocks", "hash at the block size of your engines")
        raise BadRequestError("block_size.too_many_blocks", [issue])


def _query(prompt: _Prompt) -> LookupQuery:
    """The question with defaults filled in; `request_id` may still be open."""
    options = prompt.options
    return LookupQuery(
        tokens=prompt.tokens,
        block_hashes=prompt.hashes,
        text=prompt.text,
        block_size=options.block_size,
        prompt_tokens=options.prompt_tokens,
        scheme=options.scheme,
        model=options.model,
        lora_name=options.lora_name,
        cache_salt=options.cache_salt,
        tenant=options.tenant,
        mm_items=items_of(options.mm_items),
        pods=None if options.pods is None else tuple(options.pods),
        pod_roles=None if options.pod_roles is None else tuple(options.pod_roles),
        max_lag_ms=options.max_lag_ms,
        partial=bool(options.partial),
        limit=options.limit or 0,
        group=options.group or "rank",
        min_sequence=options.min_sequence,
        request_id=options.request_id,
        timeout_ms=options.timeout_ms,
    )
