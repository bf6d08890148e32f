"""Prompts told as text, from outside: the running service, an engine's events, a model's published files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from api.demo.engine import EngineSimulator
from tests.support.core import Answer
from tests.support.core_events import payload, stored
from tests.support.core_service import RunningService, applied
from tests.support.moved import ASKED_IN_TEXT, check_moved
from tests.support.text_models import EOS, published, small_tokenizer

BLOCK = 4
PLANTED = "planted quick brown fox jumps over the lazy dog"
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be planted."},
    {"role": "user", "content": [{"type": "text", "text": PLANTED}]},
]
RENDERED = f"<|im_start|>system\nBe planted.<|im_end|>\n<|im_start|>user\n{PLANTED}<|im_end|>\n<|im_start|>assistant\n"


def _ids(text: str, *, special: bool) -> list[int]:
    return list(small_tokenizer().encode(text, add_special_tokens=special).ids)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """Its one engine holds the planted prompt and the planted chat, but for their ends."""
    folder = published(tmp_path_factory.mktemp("models") / "m")
    events = []
    for base, ids in ((100, _ids(PLANTED, special=True)), (200, _ids(RENDERED, special=False))):
        blocks = len(ids) // BLOCK - 1
        events.append(stored([base + i for i in range(blocks)], ids[: blocks * BLOCK], block_size=BLOCK))
    with (
        EngineSimulator() as engine,
        RunningService(
            [f"pod={engine.endpoint},model=m"],
            models__tokenizers=json.dumps({"m": {"file": str(folder)}}),
            server__grpc_port="0",
            models__aliases=json.dumps({"short": "m"}),
        ) as running,
    ):
        engine.wait_subscribers()
        engine.publish(payload(*events))
        running.wait_for(lambda: applied(running, "pod", 0), "the blocks")
        yield running


def _answer(service: RunningService, packed: bool, **question: Any) -> Answer:  # noqa: ANN401 - the request's fields
    if not packed:
        return msgspec.json.decode(_asked(service, question), type=Answer)
    return msgspec.msgpack.decode(_asked(service, question, packed=True), type=Answer)


def _asked(service: RunningService, question: dict[str, Any], *, packed: bool = False) -> bytes:
    kind = "msgpack" if packed else "json"
    content = msgspec.msgpack.encode(question) if packed else msgspec.json.encode(question)
    answered = service._client.post("/v1/lookup", content=content, headers={"content-type": f"application/{kind}"})
    assert 200 == answered.status_code, answered.text
    return answered.content


def _plain(answer: Answer) -> dict[str, Any]:
    """What does not differ from one moment to the next."""
    told: dict[str, Any] = msgspec.to_builtins(answer)
    for name in ("took_us", "request_id", "tokenizer"):
        told.pop(name, None)
    for entry in told["pods"]:
        entry.pop("lag_ms")
        entry.pop("event_age_ms")
    return told


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("model", ["m", "short", None])
def test_a_text_is_answered_as_its_ids(service: RunningService, packed: bool, model: str | None) -> None:
    """Prompt or messages, by any name of the model, in either encoding."""
    for told, ids in (
        ({"prompt": PLANTED}, _ids(PLANTED, special=True)),
        ({"messages": CHAT}, _ids(RENDERED, special=False)),
        ({"messages": CHAT, "add_special_tokens": True}, _ids(RENDERED, special=True)),
        ({"prompt": PLANTED, "add_special_tokens": False}, _ids(PLANTED, special=False)),
        ({"prompt": ""}, _ids("", special=True)),
    ):
        by_text = _answer(service, packed, model=model, **told)
        by_ids = _answer(service, packed, model=model, token_ids=ids)
        assert _plain(by_ids) == _plain(by_text)
        assert not isinstance(by_text.tokenizer, msgspec.UnsetType)
        assert ("file", "m", len(ids)) == (by_text.tokenizer.source, by_text.tokenizer.name, by_text.tokenizer.tokens)
    held = len(_ids(PLANTED, special=True)) // BLOCK - 1
    assert held * BLOCK == _answer(service, packed, prompt=PLANTED)["pod"].matched_tokens


def test_hashes_of_a_text_are_those_of_its_ids(service: RunningService) -> None:
    """Beside them what tokenized it."""
    by_text, by_ids = (
        service.call("POST", "/v1/hash", {"block_size": BLOCK, "model": "m", **told}).json()
        for told in ({"prompt": PLANTED}, {"token_ids": _ids(PLANTED, special=True)})
    )

    assert by_ids["hashes"] == by_text["hashes"]
    assert "m" == by_text["tokenizer"]["name"]
    refused = service.call("POST", "/v1/hash", {"block_size": BLOCK, "model": "none", "prompt": PLANTED})
    assert (422, "model.unknown") == (refused.status_code, refused.json()["code"])


@pytest.mark.parametrize(("option", "headers"), [({"timeout_ms": 0}, {}), ({}, {"x-kvindexer-timeout-ms": "0"})])
def test_hashes_that_come_too_late_are_a_problem(
    service: RunningService, option: dict[str, int], headers: dict[str, str]
) -> None:
    """A lookup would be answered with what is known: here nothing is. It is there for who asks again."""
    told = {"block_size": BLOCK, "model": "m", "prompt": f"{PLANTED} {option}"}
    late = service._client.post("/v1/hash", json=told | option, headers=headers)

    assert (504, "prompt.deadline") == (late.status_code, late.json()["code"])
    assert "application/problem+json" == late.headers["content-type"]
    assert PLANTED not in late.text
    assert 200 == service.call("POST", "/v1/hash", told).status_code


@pytest.mark.parametrize(
    ("question", "status", "code"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "planted": 1}]}]}, 422, "messages.not_text"),
        ({"messages": [{"content": "planted"}]}, 422, "messages.wrong_type"),
        ({"messages": [{"role": "user", "planted": 1}]}, 422, "messages.wrong_type"),
        (
            {"messages": [{"role": "user", "content": "a", "planted": 1}], "tools": [{"planted": 1}]},
            422,
            "tools.wrong_type",
        ),
        ({"prompt": "planted " * 600_000}, 422, "prompt.too_long"),
        ({"prompt": ["planted"]}, 422, "prompt.wrong_type"),
    ],
)
def test_a_refusal_repeats_nothing(service: RunningService, question: dict[str, Any], status: int, code: str) -> None:
    """Field and rule, as ever."""
    answered = service.call("POST", "/v1/lookup", {"model": "m", **question})

    assert (status, code) == (answered.status_code, answered.json()["code"])
    assert "planted" not in answered.text


def test_a_lone_surrogate_is_refused(service: RunningService) -> None:
    """As what is no JSON."""
    answered = service._client.post("/v1/lookup", content=b'{"prompt":"planted \\ud800"}')

    assert 400 == answered.status_code
    assert "planted" not in answered.text


def test_texts_are_counted_and_never_shown(service: RunningService) -> None:
    """By who tokenizes, and what came of it."""
    before = service.metrics()
    for _ in range(2):
        _answer(service, packed=False, model="m", prompt=PLANTED + EOS)
    late = _answer(service, packed=False, model="m", prompt=PLANTED + "late", timeout_ms=0)
    after = service.metrics()

    assert ("no_signal", "deadline") == (late.state, late.reason)
    for result in ("made", "cached", "late"):
        name = f'kvindexer_texts_total{{result="{result}",source="file"}}'
        assert 1 == after[name] - before.get(name, 0), name
    shown = service._client.get("/metrics").text
    check_moved([shown.encode()], ASKED_IN_TEXT)
    assert re.search(r'kvindexer_lookup_duration_seconds_count\{api="rest",code="200",input="text"\}', shown)
    assert "planted" not in shown + service.log()


def test_the_command_takes_texts(service: RunningService, tmp_path: Path) -> None:
    """Typed, in a file, on standard input; a chat request as it goes to the engine."""
    (tmp_path / "p.txt").write_text(PLANTED)
    (tmp_path / "c.json").write_text(json.dumps({"model": "m", "messages": CHAT, "stream": True}))
    prompt, chat = (len(_ids(PLANTED, special=True)), len(_ids(RENDERED, special=False)))
    for arguments, given, tokens in (
        (["--prompt", PLANTED], "", prompt),
        (["--prompt", f"@{tmp_path}/p.txt"], "", prompt),
        (["--prompt", "@-"], PLANTED, prompt),
        (["--messages", f"@{tmp_path}/c.json"], "", chat),
        (["--messages", "@-"], json.dumps(CHAT), chat),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "indexer", "lookup", "--url", service.url, "--json", *arguments],
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (0, "") == (done.returncode, done.stderr)
        assert tokens == json.loads(done.stdout)["prompt_tokens"]
