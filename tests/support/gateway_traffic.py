"""What clients send to a gateway, of every kind, and whether each got what an engine says, no more, no less."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import random
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from tests.support.openai_engines import MODEL, answer_to

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Kind = Literal["whole", "stream", "chunked", "get", "garbage", "gives up sending", "gives up reading"]
KINDS: Final[tuple[Kind, ...]] = (
    *("whole", "whole", "stream", "stream", "chunked", "get", "garbage"),
    *("gives up sending", "gives up reading"),
)
SIZES: Final = (1, 100, 1_000, 10_000, 500_000)
"""Ids behind the prompt; the largest are some 3 MB."""
TIMEOUT_S: Final = 60.0
CHUNK: Final = 16_384


class Sent(NamedTuple):
    """One request. `request_id` is in its header, by which engines know it."""

    request_id: str
    kind: Kind
    path: str
    body: bytes

    @property
    def gives_up(self) -> bool:
        """Whether the client hangs up on the way: then nobody need answer."""
        return self.kind.startswith("gives up")


def mixed(count: int, seed: int, prompts: Sequence[list[int]]) -> Iterator[Sent]:
    """So many of every kind and size."""
    chance = random.Random(seed)
    for number in range(count):
        kind = chance.choice(KINDS)
        if kind == "get":
            yield Sent(f"r{number}", kind, chance.choice(["/v1/models", "/health", "/nowhere"]), b"")
        elif kind == "garbage":
            yield Sent(f"r{number}", kind, "/v1/completions", _garbage(chance, prompts))
        else:
            body = _asked(chance, prompts, stream=kind in {"stream", "gives up reading"})
            path = "/v1/chat/completions" if b'"messages"' in body else "/v1/completions"
            yield Sent(f"r{number}", kind, path, body)


def _asked(chance: random.Random, prompts: Sequence[list[int]], *, stream: bool) -> bytes:
    asked: dict[str, object] = {"model": MODEL, "max_tokens": chance.randint(1, 20)}
    if stream:
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
    if chance.random() < 0.3:
        asked["messages"] = [{"role": "user", "content": "what is it ✓ " * chance.choice([1, 200])}]
    else:
        rest = range(1_000_000, 1_000_000 + chance.choices(SIZES, (4, 4, 4, 2, 1))[0])
        asked["prompt"] = [*chance.choice(prompts), *rest]
    return json.dumps(asked).encode()


def _garbage(chance: random.Random, prompts: Sequence[list[int]]) -> bytes:
    """Bytes of any kind, an unfinished document, JSON that is no request."""
    whole = _asked(chance, prompts, stream=False)
    return chance.choice(
        [chance.randbytes(2_000), whole[: len(whole) // 2], b"[1, 2, 3]", b"{}", b"null", b'{"prompt": 7}', b""]
    )


def failures(port: int, requests: Iterable[Sent], clients: int) -> list[str]:
    """What was wrong with any of them, sent by so many clients at once, each one when a client is free for it."""
    found: list[str] = []
    waiting, turn = iter(requests), threading.Lock()

    def send() -> None:
        while True:
            with turn:
                sent = next(waiting, None)
            if sent is None:
                return
            failure = _failure_of(port, sent)
            if failure is not None:
                found.append(failure)

    with ThreadPoolExecutor(clients) as pool:
        for done in [pool.submit(send) for _ in range(clients)]:
            done.result()
    return found


def _failure_of(port: int, sent: Sent) -> str | None:
    """Send it to that port; what was wrong with what came of it, None where nothing was."""
    try:
        if sent.kind == "gives up sending":
            return _give_up(port, sent)
        return _ask(port, sent)
    except (OSError, http.client.HTTPException) as error:
        return f"{sent.request_id} {sent.kind}: {type(error).__name__} {error}"


def _give_up(port: int, sent: Sent) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        connection.sendall(_head(sent) + sent.body[: len(sent.body) // 2])


def _head(sent: Sent) -> bytes:
    lines = (
        f"POST {sent.path} HTTP/1.1",
        "host: a",
        f"x-request-id: {sent.request_id}",
        f"content-length: {len(sent.body)}",
    )
    return "\r\n".join((*lines, "", "")).encode()


def _ask(port: int, sent: Sent) -> str | None:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)) as connection:
        headers = {"x-request-id": sent.request_id, "content-type": "application/json"}
        if sent.kind == "get":
            connection.request("GET", sent.path, headers=headers)
        elif sent.kind == "chunked":
            parts = (sent.body[at : at + CHUNK] for at in range(0, len(sent.body), CHUNK))
            connection.request(
                "POST", sent.path, parts, headers | {"transfer-encoding": "chunked"}, encode_chunked=True
            )
        else:
            connection.request("POST", sent.path, sent.body, headers)
        answer = connection.getresponse()
        if sent.kind == "gives up reading":
            answer.read(10)
            return None
        return _wrong(sent, answer.status, answer.read(), answer.getheader("x-body-sha256"))


def _wrong(sent: Sent, status: int, content: bytes, came: str | None) -> str | None:
    """What an answer should have been and was not."""
    about = f"{sent.request_id} {sent.kind} of {len(sent.body)} bytes: {status} {content[:200]!r}"
    if hashlib.sha256(sent.body).hexdigest() != came:
        return f"{about}; no engine got it as it was"
    if sent.kind in {"get", "garbage"}:
        expected = {"/nowhere": 404, "/v1/completions": 400}.get(sent.path, 200)
        return None if status == expected else f"{about}; an engine says {expected}"
    asked = json.loads(sent.body)
    whole, chunks = answer_to(sent.path, asked, 0)
    told = (
        json.dumps(whole)
        if not asked.get("stream")
        else "".join(f"data: {c}\n\n" for c in [*map(json.dumps, chunks), "[DONE]"])
    )
    return None if (status, content) == (200, told.encode()) else f"{about}; an engine says something else"
