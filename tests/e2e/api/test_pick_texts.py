"""Picks for chats, with a tokenizer and a template of a model's own: whole, cut, and with an image in them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from api.demo.engine import EngineSimulator
from tests.support.core_events import BLOCK, payload, stored
from tests.support.core_service import RunningService, applied
from tests.support.text_models import published, small_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

POD: Final = "10.0.0.1:8000"
SYSTEM: Final = {"role": "system", "content": "The quick brown fox jumps over the lazy dog. " * 8}
HELLO: Final = {"role": "user", "content": 'Say "hé" to the token engine,\nplease. ' * 8}
IMAGE: Final = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]}


def _rendered(*messages: dict[str, Any]) -> str:
    return "".join(f"<|im_start|>{each['role']}\n{each['content']}<|im_end|>\n" for each in messages)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Of a service whose one engine holds the whole chat."""
    folder = published(tmp_path_factory.mktemp("model"))
    text = _rendered(SYSTEM, HELLO) + "<|im_start|>assistant\n"
    tokens = small_tokenizer().encode(text, add_special_tokens=False).ids
    blocks = len(tokens) // BLOCK
    engine = EngineSimulator()
    engine.start()
    with (
        RunningService(
            [f"{POD}={engine.endpoint},model=m"], server__grpc_port="0", models__tokenizer=str(folder)
        ) as service,
        httpx.Client(base_url=service.url, timeout=30) as made,
    ):
        engine.publish(payload(stored(range(1, blocks + 1), tokens[: blocks * BLOCK])))
        service.wait_for(lambda: applied(service, POD, 0), "the engine to be heard")
        yield made
    engine.close()


def _matched(client: httpx.Client, body: bytes, **headers: str) -> int:
    answer = client.post("/v1/pick", content=body, headers={"x-kvindexer-timeout-ms": "20000", **headers})
    assert answer.status_code in {200, 204}
    if answer.status_code == 204:
        assert "x-gateway-destination-endpoint" not in answer.headers
        return 0
    assert POD == answer.headers["x-gateway-destination-endpoint"]
    return int(answer.headers["x-kvindexer-matched-tokens"])


def _chat(*messages: dict[str, Any], **more: Any) -> bytes:  # noqa: ANN401 - whatever JSON can say
    return json.dumps({"model": "m", "messages": messages, "stream": True, **more}).encode()


def _length(text: str) -> int:
    return len(small_tokenizer().encode(text, add_special_tokens=False).ids)


def test_a_whole_chat_is_found(client: httpx.Client) -> None:
    """All of its whole blocks."""
    whole = _length(_rendered(SYSTEM, HELLO) + "<|im_start|>assistant\n")

    assert whole // BLOCK * BLOCK == _matched(client, _chat(SYSTEM, HELLO))


def test_a_chat_is_found_as_far_as_it_was_not_cut(client: httpx.Client) -> None:
    """Wherever that was: all but what the cut made other tokens of, and never more for less."""
    body = _chat(SYSTEM, HELLO)
    first = body.index(b'", "', body.index(b"quick"))  # the end of the first message's text
    found = [
        _matched(client, body[:end], **{"x-kvindexer-truncated": "true"})
        for end in range(body.index(b"quick"), len(body), 7)
    ]

    assert found == sorted(found)
    assert found[0] < found[len(found) // 2] < found[-1]
    behind_first = _matched(client, body[: first + 3], **{"x-kvindexer-truncated": "true"})
    assert behind_first >= _length(_rendered(SYSTEM)) - 2 * BLOCK


def test_an_image_ends_what_is_found(client: httpx.Client) -> None:
    """The messages before it are."""
    assert _length(_rendered(SYSTEM)) // BLOCK * BLOCK == _matched(client, _chat(SYSTEM, IMAGE, HELLO))


def test_another_model_is_not_known(client: httpx.Client) -> None:
    """No opinion."""
    assert 0 == _matched(client, _chat(SYSTEM, HELLO).replace(b'"m"', b'"n"'))
