"""Prompts as request bodies in every form, and whether an answer to one is right. Pure."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from indexer.hashing.chain import hash_prompt, local_hashes
from loadtest.content import BLOCK
from loadtest.service import MODEL, pod

if TYPE_CHECKING:
    from loadtest.traffic import Prompt


_msgpack: Final = msgspec.msgpack.Encoder().encode


class Form(msgspec.Struct, frozen=True):
    """One way to ask: name, path with parameters, content type, and the body of a prompt."""

    name: str
    target: str
    content_type: str
    body: Callable[[Prompt], bytes]


def _as_ids(prompt: Prompt) -> bytes:
    return msgspec.json.encode({"model": MODEL, "token_ids": prompt.tokens.tolist()})


def _as_bytes(prompt: Prompt) -> bytes:
    return prompt.tokens.astype("<u4").tobytes()


def _as_packed_ids(prompt: Prompt) -> bytes:
    return _msgpack({"model": MODEL, "token_ids": _as_bytes(prompt)})


def _as_listed_ids(prompt: Prompt) -> bytes:
    return _msgpack({"model": MODEL, "token_ids": prompt.tokens.tolist()})


def _as_hashes(prompt: Prompt) -> bytes:
    hashes = [f"{token_hash:016x}" for token_hash in hash_prompt(_as_bytes(prompt), BLOCK)]
    return msgspec.json.encode(_by_hashes(prompt, hashes))


def _as_packed_hashes(prompt: Prompt) -> bytes:
    hashes = hash_prompt(_as_bytes(prompt), BLOCK)
    return _msgpack(_by_hashes(prompt, struct.pack(f"<{len(hashes)}Q", *hashes)))


def _by_hashes(prompt: Prompt, hashes: object) -> dict[str, object]:
    return {"model": MODEL, "block_hashes": hashes, "block_size": BLOCK, "prompt_tokens": len(prompt.tokens)}


def _as_dynamos_ids(prompt: Prompt) -> bytes:
    return msgspec.json.encode({"model_name": MODEL, "token_ids": prompt.tokens.tolist()})


def _as_dynamos_hashes(prompt: Prompt) -> bytes:
    """Local hashes as signed numbers, which is all that Dynamo takes."""
    locals_ = b"".join(local_hashes(_as_bytes(prompt), BLOCK))
    hashes: list[int] = np.frombuffer(locals_, ">u8").astype(np.uint64).view(np.int64).tolist()
    return msgspec.json.encode({"model_name": MODEL, "block_hashes": hashes})


JSON_IDS: Final = Form("JSON ids", "/v1/lookup", "application/json", _as_ids)
OCTETS: Final = Form("octet-stream", f"/v1/lookup?model={MODEL}", "application/octet-stream", _as_bytes)
HASHES: Final = Form("block hashes", "/v1/lookup", "application/json", _as_hashes)
FORMS: Final = (JSON_IDS, OCTETS, HASHES)
_MSGPACK: Final = "application/msgpack"
LISTED_IDS: Final = Form("MessagePack ids", "/v1/lookup", _MSGPACK, _as_listed_ids)
PACKED_IDS: Final = Form("MessagePack ids, packed", "/v1/lookup", _MSGPACK, _as_packed_ids)
PACKED_HASHES: Final = Form("block hashes, packed", "/v1/lookup", _MSGPACK, _as_packed_hashes)
MORE_FORMS: Final = (LISTED_IDS, PACKED_IDS, PACKED_HASHES)
DYNAMO_IDS: Final = Form("/query", "/query", "application/json", _as_dynamos_ids)
DYNAMO_HASHES: Final = Form("/query_by_hash", "/query_by_hash", "application/json", _as_dynamos_hashes)
"""As clients of Dynamo's indexer ask."""


class _Entry(msgspec.Struct):
    pod: str
    matched_tokens: int
    score: float


class _Answer(msgspec.Struct):
    state: str
    prompt_tokens: int
    pods: list[_Entry]


def wrong(prompt: Prompt, answer: bytes, sources: int, content_type: str = "application/json") -> str | None:
    """What is wrong with the answer to a prompt, of which the type is as asked; None where all sources are right."""
    decode = msgspec.msgpack.decode if content_type == _MSGPACK else msgspec.json.decode
    told = decode(answer, type=_Answer)
    if len(told.pods) != sources or told.prompt_tokens != len(prompt.tokens) or told.state != "exact":
        return f"{len(told.pods)} pods, {told.prompt_tokens} tokens, state {told.state}"
    matched: Mapping[str, int] = {entry.pod: entry.matched_tokens for entry in told.pods if entry.matched_tokens}
    expected = {pod(engine): blocks * BLOCK for engine, blocks in prompt.held.items()}
    if matched != expected:
        return f"matched {matched}, expected {expected}"
    scores = [entry.score for entry in told.pods]
    return None if scores == sorted(scores, reverse=True) else "not best first"
