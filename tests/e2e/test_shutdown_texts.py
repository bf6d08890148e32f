"""SIGTERM while texts are being tokenized: they are answered like all that was let in, and what never ends is left."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import signal
import socket
from typing import TYPE_CHECKING, Any, Final

import grpc
import pytest

from schemas.rpc.kvindexer.v1.kvindexer_pb2 import LookupRequest
from schemas.rpc.kvindexer.v1.kvindexer_pb2_grpc import KvIndexerStub
from tests.support.core_service import DEADLINE_S, RunningService
from tests.support.text_models import published
from tests.support.tokenize_engine import TokenizeEngine, engine, never, well

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SOURCES: Final = ["a=tcp://127.0.0.1:9,model=m"]
PATIENT_MS: Final = 60_000
LONG: Final = "the quick brown fox " * 50_000
"""A megabyte, of which a thread has long."""
_SAID: Final = re.compile(" kvindexer.(sources|serve|texts): ")
SOON: Final = {"server__drain_s": "0.3", "server__ready_wait_s": "0.1"}


def _item(**question: object) -> dict[str, object]:
    """A question that has time."""
    return {"model": "m", "timeout_ms": PATIENT_MS, **question}


def _ask(service: RunningService, path: str = "/v1/lookup", **question: object) -> socket.socket:
    """The answer may take its time."""
    body = json.dumps(question if "items" in question else _item(**question)).encode()
    host, _, port = service.url.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)), timeout=DEADLINE_S)
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        f"x-kvindexer-timeout-ms: {PATIENT_MS}\r\n\r\n"
    )
    connection.sendall(head.encode() + body)
    return connection


def _reply(connection: socket.socket) -> tuple[int, bytes]:
    response = http.client.HTTPResponse(connection)
    response.begin()
    content = response.read()
    connection.close()
    return response.status, content


def _answer(connection: socket.socket) -> dict[str, Any]:
    status, content = _reply(connection)
    answer: dict[str, Any] = json.loads(content)
    assert 200 == status, answer
    return answer


@contextlib.contextmanager
def _stub(service: RunningService) -> Iterator[KvIndexerStub]:
    found = re.search(r"grpc://([0-9.:]+)", service.banner)
    assert found is not None, service.banner
    with grpc.insecure_channel(found[1]) as channel:
        yield KvIndexerStub(channel)


def _stopping(service: RunningService) -> bool:
    return service.call("GET", "/readyz").status_code == 503


def _quiet(service: RunningService) -> None:
    """It has ended well, and has nothing to say about it: only of sources, and that it was told to."""
    assert 0 == service.wait_ended(), service.log()
    assert [] == [line for line in service.log().splitlines() if not _SAID.search(line)]


def _at_an_engine(act: Callable[[Engine], None]) -> None:
    """Do it in a thread beside an engine that answers when it is let."""

    async def body() -> None:
        may_answer = asyncio.Event()

        async def when_let(one: TokenizeEngine, question: dict[str, Any], writer: asyncio.StreamWriter) -> None:
            await may_answer.wait()
            await well(one, question, writer)

        async with engine(when_let) as one:
            await asyncio.to_thread(act, Engine(one, asyncio.get_running_loop(), may_answer))

    asyncio.run(body())


class Engine:
    """The engine as another thread sees it."""

    def __init__(self, one: TokenizeEngine, loop: asyncio.AbstractEventLoop, may_answer: asyncio.Event) -> None:
        self.tokenizers = json.dumps({"m": {"engine": one.url}})
        self._one, self._loop, self._may_answer = one, loop, may_answer

    def asked(self) -> int:
        return len(self._one.asked)

    def answer(self) -> None:
        self._loop.call_soon_threadsafe(self._may_answer.set)


def _questions(prompts: list[str], service: RunningService, told: Callable[[int], bool]) -> Iterator[LookupRequest]:
    """Each once the ones before are `told`."""
    for index, prompt in enumerate(prompts):
        service.wait_for(lambda index=index: told(index), f"the question before {prompt}")  # type: ignore[misc]
        yield LookupRequest(prompt=prompt, model="m", timeout_ms=PATIENT_MS)


def test_engines_are_asked_until_the_last_is_answered() -> None:
    """What was under way is answered, and so is what comes while load balancers still send; then streams end."""

    def act(one: Engine) -> None:
        with RunningService(
            SOURCES,
            models__tokenizers=one.tokenizers,
            server__ready_wait_s="0.1",
            server__lame_duck_s="3",
            server__drain_s="30",
        ) as service:
            before = _ask(service, prompt="before")
            with _stub(service) as stub:
                stream = stub.LookupStream(iter([LookupRequest(prompt="stream", model="m", timeout_ms=PATIENT_MS)]))
                service.wait_for(lambda: one.asked() == 2, "both questions at the engine")
                service.wait_for(lambda: not _stopping(service), "/readyz says 200")
                service.send_signal(signal.SIGTERM)
                service.wait_for(lambda: _stopping(service), "/readyz says 503")
                after = _ask(service, prompt="after")
                called = stub.Lookup.future(LookupRequest(prompt="called", model="m", timeout_ms=PATIENT_MS))
                service.wait_for(lambda: one.asked() == 4, "the later ones, too")
                one.answer()

                assert [6, 5] == [_answer(each)["prompt_tokens"] for each in (before, after)]
                assert 6 == called.result().prompt_tokens
                assert [6] == [result.answer.prompt_tokens for result in stream]
            _quiet(service)

    _at_an_engine(act)


def test_a_stream_is_answered_and_then_ends() -> None:
    """Its question waits for an engine; no other is taken, and the caller learns that it should ask elsewhere."""

    def act(one: Engine) -> None:
        with (
            RunningService(
                SOURCES, models__tokenizers=one.tokenizers, server__ready_wait_s="0.1", server__drain_s="30"
            ) as service,
            _stub(service) as stub,
        ):
            over: list[int] = []
            stream = stub.LookupStream(_questions(["first", "never asked"], service, lambda at: not at or bool(over)))
            service.wait_for(lambda: one.asked() == 1, "the question at the engine")
            service.send_signal(signal.SIGTERM)
            one.answer()

            assert 5 == next(stream).answer.prompt_tokens
            with pytest.raises(grpc.RpcError) as ended:
                next(stream)
            over.append(1)
            assert grpc.StatusCode.UNAVAILABLE == ended.value.code()
            assert "server.stopping" == dict(ended.value.trailing_metadata())["kvindexer-code"]
            assert 1 == one.asked()
            _quiet(service)

    _at_an_engine(act)


def test_texts_at_work_and_behind_them_are_answered(tmp_path: Path) -> None:
    """By this machine's own threads: one is at work, others wait for it."""
    tokenizers = json.dumps({"m": {"file": str(published(tmp_path / "m"))}})
    with RunningService(
        SOURCES, models__tokenizers=tokenizers, limits__text_threads="1", server__drain_s="30"
    ) as service:
        asked = [_ask(service, prompt=f"{number} {LONG}") for number in range(4)]
        first = _answer(asked[0])
        service.send_signal(signal.SIGTERM)

        answers = [first, *(_answer(each) for each in asked[1:])]
        assert 1 == len({answer["prompt_tokens"] for answer in answers})
        assert {"file"} == {answer["tokenizer"]["source"] for answer in answers}
        _quiet(service)


def test_an_engine_that_never_answers_holds_no_stop() -> None:
    """Callers that wait for it are answered in time, whichever door they came by; one that has left counts nothing."""

    async def body() -> None:
        async with engine(never) as one:
            await asyncio.to_thread(act, one)

    def act(one: TokenizeEngine) -> None:
        with (
            RunningService(SOURCES, models__tokenizers=json.dumps({"m": {"engine": one.url}}), **SOON) as service,
            _stub(service) as stub,
        ):
            assert "deadline" == _answer(_ask(service, prompt="in a hurry", timeout_ms=0))["reason"]
            alone = _ask(service, prompt="a")
            several = _ask(service, "/v1/lookup/batch", items=[_item(prompt="b"), _item(token_ids=[1, 2, 3])])
            hashes = _ask(service, "/v1/hash", prompt="c", block_size=16)
            pick = _ask(service, "/v1/pick", prompt="d")
            called = stub.Lookup.future(LookupRequest(prompt="e", model="m", timeout_ms=PATIENT_MS))
            service.wait_for(lambda: len(one.asked) == 6, "the questions at the engine")
            service.send_signal(signal.SIGTERM)

            assert "deadline" == _answer(alone)["reason"]
            assert ["deadline", "no_events_yet"] == [answer["reason"] for answer in _answer(several)["items"]]
            assert 504 == _reply(hashes)[0]
            assert 204 == _reply(pick)[0]
            assert "deadline" == called.result().reason
            _quiet(service)

    asyncio.run(body())


def test_texts_that_take_longer_than_the_drain_are_left(tmp_path: Path) -> None:
    """Those that no thread has begun: their callers hear of it before they are cut."""
    tokenizers = json.dumps({"m": {"file": str(published(tmp_path / "m"))}})
    with RunningService(SOURCES, models__tokenizers=tokenizers, limits__text_threads="1", **SOON) as service:
        asked = [_ask(service, prompt=f"{number} {LONG}") for number in range(40)]
        _answer(asked[0])
        service.send_signal(signal.SIGTERM)
        assert "deadline" in {_answer(each)["reason"] for each in asked[1:]}
        _quiet(service)
