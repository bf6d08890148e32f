"""From a request as a gateway tells it to a question."""

from __future__ import annotations

import json
from typing import Final

import pytest

from api.epp.conversation import Wanted
from api.epp.question import WHOLE_BYTES_MAX, is_about_load, question_of
from api.pick.openai_body import CUT_BYTES_MAX

TOKENS: Final = 1_000_000
IDS: Final = list(range(100_000, 100_000 + WHOLE_BYTES_MAX // 8))


def _wanted(body: bytes, pieces: int = 1, **headers: str) -> Wanted:
    size = len(body) // pieces + 1
    told = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    return Wanted(told, tuple(body[i : i + size] for i in range(0, len(body), size)), cut=False, subset=None)


@pytest.mark.parametrize("pieces", [1, 7])
def test_a_body_is_read_whole_up_to_a_bound(pieces: int) -> None:
    """Beyond, its beginning: what is complete of it, and more tokens follow."""
    whole = json.dumps({"model": "m", "prompt": IDS[:-10]}).encode()
    beyond = json.dumps({"model": "m", "prompt": IDS + IDS}).encode()
    assert len(whole) <= WHOLE_BYTES_MAX < len(beyond)
    asked, begun = (question_of(_wanted(body, pieces), TOKENS) for body in (whole, beyond))
    assert (4 * len(IDS[:-10]), "m", False) == (len(asked.tokens or b""), asked.model, asked.partial)
    assert (CUT_BYTES_MAX // 8 - 10) * 4 < len(begun.tokens or b"") < CUT_BYTES_MAX // 2
    assert ("m", True) == (begun.model, begun.partial)


@pytest.mark.parametrize(
    ("path", "prompt"),
    [
        ("/v1/completions", True),
        ("/v1/completions/?stream=1", True),
        ("/openai/deployments/x/completions", True),
        ("/v1/embeddings", False),
        ("/v1/responses", False),
        ("/", False),
    ],
)
def test_only_completions_tell_a_prompt(path: str, prompt: bool) -> None:
    """By the end of their path, whatever a gateway puts before it; the model counts in any case."""
    asked = question_of(_wanted(b'{"model": "m", "prompt": [1, 2]}', **{":path": path}), TOKENS)
    assert (prompt, "m") == (not is_about_load(asked), asked.model)


@pytest.mark.parametrize(
    ("body", "headers", "model"),
    [
        (b"{}", {"x_gateway_model_name": "n"}, "n"),
        (b'{"model": "m"}', {"x_gateway_model_name": "n"}, "m"),
        (b'{"model": 5}', {"x_gateway_model_name_rewrite": "r", "x_gateway_model_name": "n"}, "r"),
        (b'{"model": ""}', {}, None),
        (b"\xff", {"x_gateway_model_name": "n" * 5_000}, None),
    ],
)
def test_the_model_is_the_bodys_else_what_a_gateway_read_there(
    body: bytes, headers: dict[str, str], model: str | None
) -> None:
    """One that is no name is none."""
    assert model == question_of(_wanted(body, **headers), TOKENS).model


def test_where_a_header_contradicts_the_body_counts() -> None:
    """Engines read that, and no header of ours."""
    asked = question_of(_wanted(b'{"prompt": [1], "cache_salt": "a"}', x_kvindexer_cache_salt="b"), TOKENS)
    assert ("a", b"\1\0\0\0") == (asked.cache_salt, asked.tokens)
