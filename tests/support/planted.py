"""Secrets to plant, bodies that carry them through every door, and the search for them in what comes out. No I/O."""

from __future__ import annotations

import base64
import gzip
import json
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

MARK: Final = "s3cr3t"
"""In every planted text."""
PROMPT: Final = f"{MARK} prompt of somebody"
SALT: Final = f"{MARK}-salt"
BEARER: Final = f"{MARK}-bearer-that-is-known"
STRANGER: Final = f"{MARK}-bearer-that-is-not"
HASH_SECRET: Final = f"{MARK}-hash-key"
STORE_PASSWORD: Final = f"{MARK}-store-password"
COLLECTOR_KEY: Final = f"{MARK}-key-of-a-collector"
TOKENS: Final = [1_912_345_600 + number for number in range(64)]
IMAGE: Final = struct.pack(f"<{len(TOKENS)}I", *TOKENS)

_FORMS: Final = (
    MARK.encode(),
    MARK.encode()[::-1],
    base64.b64encode(MARK.encode()),
    MARK.encode("utf-16-le"),
    b"19123456",  # of every token, in digits
    IMAGE[1:8],  # two in a row, in bytes of either order
    struct.pack(">2I", *TOKENS[:2])[:7],
    f"{TOKENS[0]:x}"[:6].encode(),
)


def found_in(content: bytes) -> list[bytes]:
    """What of the planted stands there, in one form or another."""
    return [form for form in _FORMS if form in content]


class Sent(NamedTuple):
    """One body of a request, with the headers that belong to it."""

    content: bytes
    headers: dict[str, str]
    query: str = ""


def _fields() -> dict[str, Any]:
    """Every field that may carry something secret, well-formed."""
    return {
        "token_ids": TOKENS,
        "prompt": PROMPT,
        "messages": [{"role": "user", "content": PROMPT}],
        "cache_salt": SALT,
    }


def documents() -> Iterator[object]:
    """Of all shapes: what a lookup, a batch, a face or a pick takes, and what none does."""
    told = _fields()
    salted = {"model": "m", "cache_salt": SALT}
    for name in ("token_ids", "prompt", "messages"):
        yield salted | {name: told[name]}
        yield salted | {name: told[name], "block_size": 16}
        yield {"items": [salted | {name: told[name]}, {name: told[name], "limit": -1}]}
        yield {"model_name": "m", name: told[name], "salt": SALT}
    yield {"model": "m", "token_ids": TOKENS, "block_size": 16, "salt": SALT}
    yield {"model": "m", "prompt": TOKENS}
    yield told
    yield {"model": "m", "prompt": [PROMPT, PROMPT]}
    for wrong in (PROMPT, [PROMPT], [*TOKENS, -1], [[*TOKENS]], {"a": TOKENS}, [*TOKENS, 0.5], 5, [*TOKENS, 2**32]):
        yield salted | {"token_ids": wrong}
        yield {"items": [{"token_ids": wrong}]}
        yield {"model_name": "m", "token_ids": wrong}
    for wrong in (
        [TOKENS[0]],
        {"x": PROMPT},
        TOKENS[0],
        [{"role": PROMPT}],
        [PROMPT],
        [{"role": "user", "content": TOKENS}],
    ):
        yield salted | {"messages": wrong}
        yield salted | {"prompt": wrong}
        yield {"model": "m", "token_ids": [1], "cache_salt": wrong}
        yield {"items": [{"token_ids": [1], "cache_salt": wrong}]}
    yield salted | {"messages": told["messages"], "tools": [{"x": PROMPT}], "chat_template_kwargs": {"x": PROMPT}}
    yield salted | {"token_ids": TOKENS, "mm_items": [{"hash": "h", "offset": 10**6, "length": 5}]}
    yield {"token_ids": TOKENS, "cache_salt": SALT * 1_000}
    yield [told, PROMPT]
    yield PROMPT
    yield TOKENS


def bodies() -> Iterator[Sent]:
    """The documents in every form, whole and broken, and bytes that are no document."""
    for document in documents():
        plain = json.dumps(document).encode()
        yield Sent(plain, {"content-type": "application/json"})
        yield Sent(plain[:-3], {"content-type": "application/json"})
        yield Sent(plain.replace(b'"', b"'"), {"content-type": "application/json"})
        yield Sent(msgspec.msgpack.encode(document), {"content-type": "application/msgpack"})
    first = json.dumps(_fields()).encode()
    yield Sent(gzip.compress(first), {"content-type": "application/json", "content-encoding": "gzip"})
    for coding in ("gzip", "zstd"):
        yield Sent(first, {"content-type": "application/json", "content-encoding": coding})
    for query in ("", "model=m&block_size=16", f"cache_salt={quote(SALT)}", f"token_ids={TOKENS[0]}", "limit=-1"):
        for content in (IMAGE, IMAGE[:-1], first):
            headers = {"content-type": "application/octet-stream", "x-kvindexer-cache-salt": SALT}
            yield Sent(content, headers, query)
    yield Sent(first, {"content-type": "application/json", "x-kvindexer-cache-salt": f"other-{SALT}"})
    yield Sent(first + b"\xff" + first, {"content-type": "application/json"})
    yield Sent(b"\xc1" + msgspec.msgpack.encode(_fields()), {"content-type": "application/msgpack"})
