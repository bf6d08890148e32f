"""Prompts as request bodies in the three forms, and whether an answer to one is right. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from indexer.hashing.chain import hash_prompt
from loadtest.content import BLOCK
from loadtest.service import MODEL, pod

if TYPE_CHECKING:
    from loadtest.traffic import Prompt


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


def _as_hashes(prompt: Prompt) -> bytes:
    hashes = [f"{token_hash:016x}" for token_hash in hash_prompt(_as_bytes(prompt), BLOCK)]
    return msgspec.json.encode(
        {"model": MODEL, "block_hashes": hashes, "block_size": BLOCK, "prompt_tokens": len(prompt.tokens)}
    )


JSON_IDS: Final = Form("JSON ids", "/v1/lookup", "application/json", _as_ids)
OCTETS: Final = Form("octet-stream", f"/v1/lookup?model={MODEL}", "application/octet-stream", _as_bytes)
HASHES: Final = Form("block hashes", "/v1/lookup", "application/json", _as_hashes)
FORMS: Final = (JSON_IDS, OCTETS, HASHES)


class _Entry(msgspec.Struct):
    pod: str
    matched_tokens: int
    score: float


class _Answer(msgspec.Struct):
    state: str
    prompt_tokens: int
    pods: list[_Entry]


def wrong(prompt: Prompt, answer: bytes, sources: int) -> str | None:
    """What is wrong with the answer to a prompt; None where it is right for every source."""
    told = msgspec.json.decode(answer, type=_Answer)
    if len(told.pods) != sources or told.prompt_tokens != len(prompt.tokens) or told.state != "exact":
        return f"{len(told.pods)} pods, {told.prompt_tokens} tokens, state {told.state}"
    matched: Mapping[str, int] = {entry.pod: entry.matched_tokens for entry in told.pods if entry.matched_tokens}
    expected = {pod(engine): blocks * BLOCK for engine, blocks in prompt.held.items()}
    if matched != expected:
        return f"matched {matched}, expected {expected}"
    scores = [entry.score for entry in told.pods]
    return None if scores == sorted(scores, reverse=True) else "not best first"
