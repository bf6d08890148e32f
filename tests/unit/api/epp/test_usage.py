"""What is read of a response's end."""

from __future__ import annotations

import json

import pytest

from api.epp.usage import KEPT_BYTES, Usage, UsageTail

USAGE = {"prompt_tokens": 40, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 32}}
WHOLE = json.dumps(
    {"choices": [{"text": 'he said "usage": {"prompt_tokens": 9}'}], "usage": USAGE, "more": [1]}
).encode()
EVENTS = (
    b'data: {"choices": [{"text": "a"}], "usage": null}\n\n',
    b'data: {"choices": [], "usage": {"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 8}}}\n\n',
    b"data: " + json.dumps({"choices": [], "usage": USAGE}).encode() + b"\n\n",
    b"data: [DONE]\n\n",
)


def usage_of(*parts: bytes) -> Usage | None:
    """Of a response that came in these parts."""
    tail = UsageTail()
    for part in parts:
        tail.add(part)
    return tail.usage()


@pytest.mark.parametrize("content", [WHOLE, b"".join(EVENTS)])
def test_it_is_found_however_the_response_is_cut(content: bytes) -> None:
    """Of several the last counts; what a text says of usage is no usage."""
    assert Usage(40, 32) == usage_of(content)
    for cut in range(0, len(content), 7):
        assert Usage(40, 32) == usage_of(content[:cut], content[cut:])
    assert Usage(40, 32) == usage_of(*(content[i : i + 1] for i in range(len(content))))


def test_only_the_end_is_kept() -> None:
    """Whatever came before it, and however much."""
    tail = UsageTail()
    for _ in range(10):
        tail.add(b"x" * 10_000)
    tail.add(WHOLE)
    assert Usage(40, 32) == tail.usage()
    tail.add(b" " * KEPT_BYTES)
    assert None is tail.usage()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"usage": null}',
        b'{"usage": {"prompt_tokens": 40}}',
        b'{"usage": {"prompt_tokens": 40, "prompt_tokens_details": null}}',
        b'{"usage": {"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 41}}}',
        b'{"usage": {"prompt_tokens": %b, "prompt_tokens_details": {"cached_tokens": 1}}}' % (b"9" * 30),
        b'{"usage": {"prompt_tokens": "40", "prompt_tokens_details": {"cached_tokens": 1}}}',
        b'{"usage": {"prompt_tokens": 40, "prompt_tokens_details": {"cached_tok',
        b'{"usage": ' + b'{"a":' * 3_000,
        b'{"usage": {"\xff": 1, "prompt_tokens": 40}}',
    ],
)
def test_what_says_nothing_of_reuse_is_nothing(content: bytes) -> None:
    """Also where it is none of OpenAI's."""
    assert None is usage_of(content)
