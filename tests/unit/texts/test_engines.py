"""The engine's own `/tokenize`, on real sockets: engines that answer well, badly, slowly, and not at all."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest

from indexer.clock import SystemClock
from indexer.errors import BadRequestError
from indexer.texts.engines import FAILURES_MAX, REST_S, Engines, EnginesFailed, Patience
from indexer.texts.health import Health
from indexer.texts.local import TextLimits
from schemas.lookup import TextPrompt
from tests.support import nowhere
from tests.support.collecting import run_on, until
from tests.support.core import ManualClock
from tests.support.said import Said
from tests.support.tokenize_engine import Reply, engine, in_drops, never, saying, tokens_of, well, without_end

LIMITS = TextLimits(100_000, 1_000)
PROMPT = TextPrompt(prompt="é!")
LONG_S = 20.0
SOON_S = 0.3


@asynccontextmanager
async def _asking() -> AsyncIterator[tuple[Engines, SystemClock]]:
    clock = SystemClock()
    engines = Engines(clock, Health(clock, Said()))
    try:
        yield engines, clock
    finally:
        await engines.close()


async def _ask(urls: list[str], text: TextPrompt = PROMPT, within_s: float = LONG_S) -> list[int]:
    async with _asking() as (engines, clock):
        image = await engines.tokens(urls, "m", text, LIMITS, Patience(clock, clock.now() + within_s))
    tokens: list[int] = np.frombuffer(image, "<u4").tolist()
    return tokens


def _dead() -> str:
    """Nobody listens there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_a_prompt_is_asked_for_as_vllm_takes_it() -> None:
    """Special tokens are added as the engine would."""

    async def body() -> None:
        async with engine() as one:
            assert list("é!".encode()) == await _ask([one.url])
            assert [{"model": "m", "prompt": "é!", "add_special_tokens": True}] == one.asked
            assert ["/tokenize"] == one.paths

    run_on("asyncio", body())


def test_messages_are_asked_for_as_vllm_takes_them() -> None:
    """What it does not name itself is for the template."""
    messages: list[dict[str, object]] = [{"role": "user", "content": "a"}]
    args: dict[str, object] = {"documents": [{"t": 1}], "thinking": True}
    text = TextPrompt(messages=messages, tools=[{"type": "function"}], template_args=args)

    async def body() -> None:
        async with engine() as one:
            assert tokens_of({"messages": messages}) == await _ask([one.url], text)
            (asked,) = one.asked
        assert asked == {
            "model": "m",
            "messages": messages,
            "tools": [{"type": "function"}],
            "add_generation_prompt": True,
            "continue_final_message": False,
            "add_special_tokens": False,
            "chat_template_kwargs": args,
        }

    run_on("asyncio", body())


def test_a_connection_serves_many_questions() -> None:
    """One after the other."""

    async def body() -> None:
        async with engine() as one, _asking() as (engines, clock):
            for _ in range(5):
                await engines.tokens([one.url], None, PROMPT, LIMITS, Patience(clock, clock.now() + LONG_S))
            assert (5, 1) == (len(one.asked), one.connections)

    run_on("asyncio", body())


_BAD: dict[str, Reply] = {
    "never": never,
    "in drops": in_drops,
    "without end": without_end,
    "no JSON": saying("200 OK", b"hello"),
    "no tokens": saying("200 OK", b'{"count":1}'),
    "no ids": saying("200 OK", b'{"tokens":[-1]}'),
    "too large ids": saying("200 OK", b'{"tokens":[4294967296]}'),
    "a fault": saying("500 Internal Server Error", b"{}"),
    "unknown": saying("404 Not Found", b"{}"),
    "elsewhere": saying("307 Temporary Redirect", b"", "location: http://127.0.0.1:1/tokenize"),
    **{
        f"to {place}": saying("307 Temporary Redirect", b"", f"location: {place}", "set-cookie: a=b")
        for place in nowhere.LOCATIONS
    },
    "deep JSON": saying("200 OK", b'{"other":' + b"[" * 50_000),
    "no HTTP": saying("\r\n\r\n", b""),
    "compressed": saying("200 OK", b"\x1f\x8b\x08", "content-encoding: gzip"),
}


@pytest.mark.parametrize("bad", _BAD.values(), ids=_BAD)
def test_a_bad_engine_is_passed_over(bad: Reply) -> None:
    """The next one is asked, within the same deadline; with nobody else there are no tokens."""

    async def body() -> None:
        async with engine(bad) as one, engine(well) as other:
            for urls in ([one.url, other.url], [other.url, one.url]):
                assert list("é!".encode()) == await _ask(urls, within_s=2.0)
            with pytest.raises(EnginesFailed):
                await _ask([one.url], within_s=SOON_S)

    run_on("asyncio", body())


@pytest.mark.parametrize("host", nowhere.HOSTS)
def test_an_engine_whose_name_is_none_is_passed_over(host: str) -> None:
    """As one that is not there."""

    async def body() -> None:
        async with engine() as other:
            for _ in range(2):
                assert list("é!".encode()) == await _ask([f"http://{host}:80", other.url])
            with pytest.raises(EnginesFailed):
                await _ask([f"http://{host}:80"])

    run_on("asyncio", body())


def test_no_cookie_is_kept() -> None:
    """An engine could have as many kept as it likes."""

    async def body() -> None:
        async with engine(saying("200 OK", b'{"tokens":[1]}', "set-cookie: a=b")) as one, _asking() as (engines, clock):
            for _ in range(2):
                await engines.tokens([one.url], None, PROMPT, LIMITS, Patience(clock, clock.now() + LONG_S))
            assert [] == one.cookies

    run_on("asyncio", body())


def test_dead_engines_are_two_at_most() -> None:
    """So long a caller does not wait."""

    async def body() -> None:
        async with engine() as third, _asking() as (engines, clock):
            urls = [_dead(), _dead(), third.url]
            # The first one asked moves on by one each time: of three, one time begins with the dead two.
            outcomes = []
            for _ in range(3):
                try:
                    outcomes.append(
                        await engines.tokens(urls, "m", PROMPT, LIMITS, Patience(clock, clock.now() + LONG_S))
                    )
                except EnginesFailed:
                    outcomes.append(b"")
            assert 1 == outcomes.count(b"")

    run_on("asyncio", body())


def test_an_engine_that_fails_again_and_again_rests() -> None:
    """Then it is tried again; nobody waits for it meanwhile."""

    async def body() -> None:
        clock = ManualClock()
        engines = Engines(clock, Health(clock, Said()))
        async with engine(saying("500 No", b"")) as one:
            for _ in range(FAILURES_MAX + 2):
                with pytest.raises(EnginesFailed):
                    await engines.tokens([one.url], "m", PROMPT, LIMITS, Patience(clock, clock.now() + LONG_S))
            assert FAILURES_MAX == len(one.asked)
            clock.at += REST_S
            one.reply = well
            for _ in range(2):
                await engines.tokens([one.url], "m", PROMPT, LIMITS, Patience(clock, clock.now() + LONG_S))
            assert FAILURES_MAX + 2 == len(one.asked)
        await engines.close()

    run_on("asyncio", body())


def test_a_text_that_the_engine_refuses_is_the_callers_error() -> None:
    """And no failure of the engine's; nothing that it says is repeated."""

    async def body() -> None:
        refusal = saying("400 Bad Request", json.dumps({"message": "planted"}).encode())
        async with engine(refusal) as one, _asking() as (engines, clock):
            for _ in range(2 * FAILURES_MAX):
                with pytest.raises(BadRequestError) as caught:
                    await engines.tokens([one.url], "m", PROMPT, LIMITS, Patience(clock, clock.now() + LONG_S))
            assert 2 * FAILURES_MAX == len(one.asked)
        assert "prompt.refused" == caught.value.code
        assert "planted" not in f"{caught.value} {caught.value.issues}"

    run_on("asyncio", body())


def test_more_tokens_than_a_prompt_may_have_are_refused() -> None:
    """Here as everywhere."""

    async def body() -> None:
        async with engine() as one:
            with pytest.raises(BadRequestError) as caught:
                await _ask([one.url], TextPrompt(prompt="x" * 1_001))
        assert "prompt.too_many_tokens" == caught.value.code

    run_on("asyncio", body())


def test_no_proxy_of_the_environment_sees_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the variables say."""

    async def body() -> None:
        async with engine() as proxy, engine() as one:
            for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
                monkeypatch.setenv(name, proxy.url)
            await _ask([one.url])
            assert (0, 1) == (proxy.connections, len(one.asked))

    run_on("asyncio", body())


def test_a_question_that_is_given_up_leaves_nothing_behind() -> None:
    """Not even a failure."""

    async def body() -> None:
        async with engine(never) as one, _asking() as (engines, clock):
            asking = asyncio.Task(engines.tokens([one.url], "m", PROMPT, LIMITS, Patience(clock, clock.now() + LONG_S)))
            await until(lambda: bool(one.asked), "the question")
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            one.reply = well
            assert await engines.tokens([one.url], "m", PROMPT, LIMITS, Patience(clock, clock.now() + LONG_S))

    run_on("asyncio", body())
