"""From a `LookupRequest` to one `LookupQuery`. Pure.

The rules of a question, and the words in which they are told, are REST's: what is not plain is put as a MessagePack
body and read by the same reader. Plain is a prompt told by ids, with options that were read before: a router sends the
same ones again and again. No token is ever a Python object here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
import numpy as np
from google.protobuf.message import DecodeError, Message

from api.problems import RequestRefused
from indexer.errors import BadRequestError, FieldIssue
from indexer.model import TOKEN_BYTES
from schemas.rest import TEXT_MAX
from schemas.rpc.kvindexer.v1.kvindexer_pb2 import LookupRequest, ReuseReport, RoutedReport

if TYPE_CHECKING:
    from api.rest.lookup_request import LookupRequests
    from api.rest.request_ids import RequestIds
    from schemas.lookup import LookupQuery

KEPT_OPTIONS: Final = 256
KEPT_OPTIONS_MAX: Final = 1_024
"""Sets of options whose meaning is kept, and the longest of them, in bytes."""

_LE_U32: Final = np.dtype("<u4")
_LE_U64: Final = np.dtype("<u8")
_LISTS: Final = ("pods", "pod_roles")
_JSON: Final = {f"{name}_json": name for name in ("messages", "tools", "documents", "chat_template_kwargs")}
"""Fields that hold a part of a chat request as JSON, and what REST calls that part."""
_SCALARS: Final = tuple(
    field.name
    for field in LookupRequest.DESCRIPTOR.fields
    if field.has_presence and field.name not in {*_JSON, "token_bytes"}
)
_LABELS: Final = {"msgpack": "ids"}
_pack: Final = msgspec.msgpack.Encoder().encode
_decode_json: Final = msgspec.json.Decoder().decode

Parsed = TypeVar("Parsed", bound=Message)


class Questions:
    """Reads questions for one event loop."""

    def __init__(self, requests: LookupRequests, request_ids: RequestIds, tokens_max: int) -> None:
        self._requests = requests
        self._request_ids = request_ids
        self._image_max = tokens_max * TOKEN_BYTES
        self._options: Callable[[bytes], LookupQuery] = lru_cache(KEPT_OPTIONS)(self._options_of)

    def read(self, message: LookupRequest) -> tuple[LookupQuery, str]:
        """The question in a message, which is used up, and the form of its prompt as a metric's label.

        Raises `BadRequestError` and `RequestRefused`.
        """
        plain = self._plain(message)
        if plain is not None:
            return plain
        query, label = self._requests.parse_strictly("msgpack", _pack(_body(message)), b"", {})
        if query.request_id is None:
            query.request_id = self._request_ids.of(None)
        return query, _LABELS.get(label, label)

    def _plain(self, message: LookupRequest) -> tuple[LookupQuery, str] | None:
        """None: not plain, or not right, which is the strict way's to say."""
        label, tokens = _image(message)
        if tokens is None or len(tokens) % TOKEN_BYTES or len(tokens) > self._image_max:
            return None
        salt = message.cache_salt if message.HasField("cache_salt") else None
        if salt is not None and not 1 <= len(salt) <= TEXT_MAX:
            return None
        told = message.request_id.encode() if message.HasField("request_id") else None
        request_id = self._request_ids.of(told)
        if told is not None and request_id.encode() != told:
            return None
        for name in ("token_ids", "token_bytes", "cache_salt", "request_id"):
            message.ClearField(name)
        key = message.SerializeToString(deterministic=True)
        query = copy.copy((self._options if len(key) <= KEPT_OPTIONS_MAX else self._options_of)(key))
        query.tokens = tokens
        query.cache_salt = salt
        query.request_id = request_id
        return query, label

    def _options_of(self, options: bytes) -> LookupQuery:
        """A question with these options and no tokens."""
        body = _body(LookupRequest.FromString(options)) | {"token_ids": b""}
        return self._requests.parse_strictly("msgpack", _pack(body), b"", {}).query


def parsed(kind: type[Parsed], data: bytes) -> Parsed:
    """The message in these bytes. Raises `RequestRefused`."""
    try:
        return kind.FromString(data)
    except DecodeError:
        what = kind.DESCRIPTOR.name
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "body.not_protobuf", f"the message is no {what}") from None


def _image(message: LookupRequest | RoutedReport | ReuseReport) -> tuple[str, bytes | None]:
    """The tokens and the label of their form; None where they are not told by ids, or twice."""
    if message.HasField("token_bytes"):
        return "bytes", None if message.token_ids else message.token_bytes
    if not message.token_ids:
        return "ids", None
    return "ids", np.asarray(message.token_ids, _LE_U32).tobytes()  # copied as a whole: the list offers its memory


def _body(message: LookupRequest) -> dict[str, object]:
    """The message as REST has its bodies."""
    body: dict[str, object] = {name: getattr(message, name) for name in _SCALARS if message.HasField(name)}
    for name in _LISTS:
        if values := list(getattr(message, name)):
            body[name] = values
    if message.min_sequence:
        body["min_sequence"] = dict(message.min_sequence)
    body |= {part: _json(name, getattr(message, name)) for name, part in _JSON.items() if message.HasField(name)}
    return body | prompt_of(message)


def prompt_of(message: LookupRequest | RoutedReport | ReuseReport) -> dict[str, object]:
    """What tells the prompt, where that is no text, as REST has it. Raises `BadRequestError`."""
    body: dict[str, object] = {}
    if items := message.mm_items:
        body["mm_items"] = [{"hash": item.hash, "offset": item.offset, "length": item.length} for item in items]
    if message.block_hashes:
        body["block_hashes"] = np.asarray(message.block_hashes, _LE_U64).tobytes()
    if message.token_ids and message.HasField("token_bytes"):
        issue = FieldIssue("token_ids", "exactly one of token_ids, token_bytes", "both")
        raise BadRequestError("prompt.exactly_one", [issue])
    image = _image(message)[1]
    if image is not None:
        body["token_ids"] = image
    return body


def _json(name: str, text: str) -> object:
    try:
        return _decode_json(text)
    except (msgspec.DecodeError, RecursionError):
        raise BadRequestError(f"{name}.not_json", [FieldIssue(name, "JSON, as in a chat request")]) from None
