"""What is told of engines that fail to make tokens: once, why, and when they are back."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from indexer.errors import BadRequestError
from indexer.texts.engines import Engines, EnginesFailed, Patience
from indexer.texts.health import AGAIN_AFTER_S, ENGINES_MAX, Health
from indexer.texts.local import TextLimits
from schemas.lookup import TextPrompt
from tests.support.collecting import run_on
from tests.support.core import ManualClock
from tests.support.said import Said
from tests.support.tokenize_engine import Reply, engine, never, saying, well, without_end

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = TextPrompt(prompt="planted")
LIMITS = TextLimits(100_000, 1_000)
BAD: list[tuple[Reply, str]] = [
    (saying("404 Not Found", b"planted"), "status 404"),
    (saying("500 planted", b"{}"), "status 500"),
    (saying("307 Temporary Redirect", b"", "location: http://127.0.0.1:1/planted"), "status 307"),
    (saying("200 OK", b'{"tokens": ["planted"]}'), "an answer that is no list of tokens"),
    (saying("200 OK", b"planted"), "an answer that is no list of tokens"),
    (without_end, "an answer longer than the tokens of a text can be"),
    (saying("planted\r\n\r\n", b""), "the connection ended, or it speaks no HTTP"),
    (never, "no answer in time"),
]


async def _asked(engines: Engines, clock: ManualClock, url: str) -> bool:
    """Whether tokens came."""
    try:
        await engines.tokens([url], "m", TEXT, LIMITS, Patience(clock, clock.now() + 0.5))
    except EnginesFailed:
        return False
    return True


@pytest.mark.parametrize(("bad", "cause"), BAD)
def test_a_failure_is_told_once_with_its_cause_and_its_end_once(bad: Reply, cause: str) -> None:
    """Without a word of the question or the answer."""

    async def body() -> None:
        clock, said = ManualClock(), Said()
        health = Health(clock, said)
        engines = Engines(clock, health)
        async with engine(bad) as one:
            for _ in range(2):
                assert not await _asked(engines, clock, one.url)
            assert cause == health.cause(one.url)
            assert [("WARNING", f"engine {one.url}: POST /tokenize fails: {cause}")] == said.lines
            one.reply = well
            for _ in range(2):
                assert await _asked(engines, clock, one.url)
            assert health.cause(one.url) is None
            assert [("INFO", f"engine {one.url}: POST /tokenize works again")] == said.lines[1:]
        await engines.close()

    run_on("asyncio", body())


def _dead() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize(
    ("url", "cause"),
    [(_dead, "connection refused"), (lambda: "http://no-such-host.invalid:80", "its name cannot be resolved")],
)
def test_why_an_engine_is_not_reached(url: Callable[[], str], cause: str) -> None:
    """In the system's words."""

    async def body() -> None:
        clock = ManualClock()
        health = Health(clock, Said())
        engines, at = Engines(clock, health), url()
        with pytest.raises(EnginesFailed):
            await engines.tokens([at], "m", TEXT, LIMITS, Patience(clock, clock.now() + 20))
        assert cause == health.cause(at)
        await engines.close()

    run_on("asyncio", body())


def test_a_refusal_is_an_answer() -> None:
    """An engine that refuses a text works."""

    async def body() -> None:
        clock, said = ManualClock(), Said()
        health = Health(clock, said)
        engines = Engines(clock, health)
        async with engine(saying("400 Bad Request", b"{}")) as one:
            health.failed(one.url, "x")
            with pytest.raises(BadRequestError):
                await _asked(engines, clock, one.url)
            assert health.cause(one.url) is None
        await engines.close()

    run_on("asyncio", body())


def test_an_engine_that_comes_and_goes_is_told_once_a_minute() -> None:
    """The cause is known all the time, and what is told ends as it is."""
    clock, said = ManualClock(), Said()
    health = Health(clock, said)
    for _ in range(10):
        health.failed("u", "c")
        assert "c" == health.cause("u")
        health.worked("u")
        clock.at += 1.0
    assert ["WARNING", "INFO"] == [level for level, _ in said.lines]
    health.failed("u", "c")
    clock.at += AGAIN_AFTER_S
    health.failed("u", "d")
    assert ("WARNING", "engine u: POST /tokenize fails: d") == said.lines[-1]
    clock.at += AGAIN_AFTER_S
    health.worked("u")

    assert {} == health._engines


def test_so_many_engines_are_remembered() -> None:
    """And names are cut."""
    said = Said()
    health = Health(ManualClock(), said)
    for number in range(ENGINES_MAX + 2):
        health.failed(f"http://{number:0200}", "c")

    assert ENGINES_MAX == len(health._engines)
    assert all(len(text) < 150 for _, text in said.lines)
