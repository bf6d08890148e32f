"""Prompts whose first chunks are told by digests: the same answer as by tokens."""

from __future__ import annotations

import random

import pytest

from indexer.hashing.memo import CHUNK_TOKENS, chunk_digest
from schemas.lookup import LookupQuery
from tests.support.core import Core
from tests.support.core_events import stored, u32

_DRAW = random.Random(1)
TOKENS = [_DRAW.randrange(2**32) for _ in range(3 * CHUNK_TOKENS + 100)]


def told(core: Core, chunks: int, **query: object) -> LookupQuery:
    """The question by digests; `Core` has salt 0."""
    del core
    step = CHUNK_TOKENS
    start = tuple(chunk_digest(u32(TOKENS[i * step : (i + 1) * step]), 0) for i in range(chunks))
    return LookupQuery(tokens=u32(TOKENS[chunks * step :]), start=start, whole=lambda: u32(TOKENS), **query)  # type: ignore[arg-type]


@pytest.mark.parametrize("block_size", [8, 16, 48, 512, 1_024])
@pytest.mark.parametrize("query", [{}, {"cache_salt": "s"}, {"lora_name": "ad"}])
@pytest.mark.parametrize("asked_before", [False, True])
def test_an_answer_does_not_depend_on_how_the_prompt_is_told(
    block_size: int, query: dict[str, str], asked_before: bool
) -> None:
    """Whatever the block size, with salts and adapters, and where the chunks' hashes are remembered or not."""
    core = Core()
    blocks = 1_536 // block_size
    keys = [["s"], *[None] * (blocks - 1)] if "cache_salt" in query else None
    lora = query.get("lora_name")
    tokens = TOKENS[: blocks * block_size]
    core.engine().say(stored(range(1, blocks + 1), tokens, block_size=block_size, extra_keys=keys, lora_name=lora))
    expected = Core()
    expected.engine().say(stored(range(1, blocks + 1), tokens, block_size=block_size, extra_keys=keys, lora_name=lora))
    if asked_before:
        core.ask(TOKENS, **query)

    plain = expected.ask(TOKENS, **query)
    for chunks in (1, 3):
        answer = core.ask_as(told(core, chunks, **query))
        assert plain.prompt_tokens == answer.prompt_tokens
        assert plain.matched == answer.matched == {"pod": blocks * block_size}
        assert plain.pods[0].reusable_tokens == answer.pods[0].reusable_tokens


def test_the_order_of_those_that_hold_nothing_is_the_same_however_the_prompt_is_told() -> None:
    """Also where no source says what its blocks are."""
    core = Core()
    for pod in "abcdefgh":
        core.engine(pod)

    assert core.ask(TOKENS).order == core.ask_as(told(core, 3)).order
