"""Engines' metrics read on real sockets: once for all that is made of them, whatever an engine answers."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from indexer.clock import SystemClock
from indexer.loads.board import LoadBoard
from indexer.model import SourceId
from indexer.scraping import scraper
from indexer.scraping.scraper import LIMIT, REMARK, Intervals, Scraper
from tests.support.busy_engine import BusyEngine, busy_engine, chunked, load_text, whole
from tests.support.collecting import until
from tests.support.core import Core
from tests.support.redis_servers import free_port
from tests.support.telling_engine import METRICS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

A = SourceId("a", 0)
INTERVAL_S = 0.1
"""Short, so that several readings fit into a test."""


class Scene:
    """A core with sources, what is known of their loads, and a scraper of them."""

    def __init__(self, *, facts_s: float | None = None, follows: Callable[[SourceId], bool] = lambda _: False) -> None:
        self.core = Core()
        self.limits: list[str] = []
        self.board = LoadBoard(self.limits.append, interval_s=INTERVAL_S)
        self.scraper = Scraper(
            self.core.registry,
            self.board,
            SystemClock(),
            Intervals(INTERVAL_S, facts_s),
            follows=follows,
            limit_reached=self.limits.append,
        )

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Until the block ends."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self.scraper.run(stop))
            yield
            stop.set()
            await running

    def running(self, source: SourceId = A) -> float | None:
        """As it was read last."""
        reading = self.board.readings.get(source)
        return None if reading is None else reading.load.running

    def remark(self, pod: str = "a") -> str:
        """On the pod's source, of its load."""
        return self.core.registry.sources[SourceId(pod, 0)].warnings.get(REMARK, "")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be read is remarked on at once, and tried again soon."""
    monkeypatch.setattr(scraper, "REMARK_AFTER_S", 0.0)
    monkeypatch.setattr(scraper, "REST_MAX_S", 0.1)


def test_loads_are_read_again_and_again_over_one_connection() -> None:
    """With nothing in the request that an engine could take for a caller's."""

    async def story() -> None:
        scene = Scene()
        async with busy_engine() as engine:
            scene.core.engine("a", address=engine.address)
            async with scene.reading():
                for number in range(3):
                    engine.answer = (whole, chunked)[number % 2](load_text(number, 2))
                    await until(lambda: scene.running() == number, "the load")  # noqa: B023
        assert 1 == engine.connections
        assert 3 <= len(engine.asked) <= scene.scraper.results["ok"] + 1
        assert {"/metrics"} == set(engine.asked)
        (head,) = {head.lower() for head in engine.heads}
        assert b"host: " + engine.address.encode() in head
        assert not any(word in head for word in (b"authorization", b"cookie", b"gzip"))

    asyncio.run(story())


def test_one_question_serves_all_ranks_and_readers() -> None:
    """Eight ranks at one address and what is said of caches: the engine is asked once in an interval."""

    async def story() -> None:
        scene = Scene(facts_s=60.0)
        async with busy_engine() as engine:
            texts = [load_text(rank, engine=rank) for rank in range(8)]
            engine.answer = whole("".join(texts) + METRICS.format(16, "True", 700))
            for rank in range(8):
                scene.core.engine("a", dp_rank=rank, address=engine.address)
            async with scene.reading():
                await until(lambda: scene.running(SourceId("a", 7)) is not None, "the loads")
                await until(lambda: scene.core.registry.sources[A].engine_blocks is not None, "the capacity")
                assert 2 >= len(engine.asked)
        sources = scene.core.registry.sources
        assert list(map(float, range(8))) == [scene.running(key) for key in sorted(sources)]
        assert {700} == {source.engine_blocks for source in sources.values()}

    asyncio.run(story())


def test_who_is_applied_elsewhere_is_not_asked() -> None:
    """Until it is applied here; and no more once it is gone."""

    async def story() -> None:
        followed = {"a"}
        scene = Scene(follows=lambda key: key.pod in followed)
        async with busy_engine() as engine, busy_engine() as other:
            for pod, address in (("a", engine.address), ("b", other.address)):
                scene.core.engine(pod, address=address)
            async with scene.reading():
                await until(lambda: scene.running(SourceId("b", 0)) is not None, "the other one")
                assert not engine.asked
                followed.clear()
                await until(lambda: bool(engine.asked), "a question")
                scene.core.registry.sources.pop(A)
                await until(lambda: not engine_is_held(scene, engine), "the connection's end")

    asyncio.run(story())


def engine_is_held(scene: Scene, engine: BusyEngine) -> bool:
    """Whether it is among those that are asked."""
    return engine.address in scene.scraper._targets


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("answer", "ends", "cause"),
    [
        (whole("", "302 Found", "location: http://127.0.0.1:1/"), False, "could not be read: status 302"),
        (whole("no", "404 Not Found"), True, "could not be read: status 404"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", False, "could not be read: it speaks no HTTP"),
        (b"", True, "could not be read: the connection ended, or it speaks no HTTP"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nvllm:", True, "could not be read: the connection ended"),
        (whole(b"\x1f\x8b", "200 OK", "content-encoding: gzip"), False, "could not be read: it speaks no HTTP"),
        (whole("up 1\n"), False, "tell no load"),
        (whole(load_text(1, engine=1) + load_text(1, engine=2)), False, "tell no load"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + whole("up 1\n"), False, "tell no load"),
    ],
)
def test_what_cannot_be_read_is_said(answer: bytes, cause: str, *, ends: bool) -> None:
    """Each with its cause; nothing is known then, and it goes once the engine answers well."""

    async def story() -> None:
        scene = Scene()
        async with busy_engine() as engine:
            scene.core.engine("a", address=engine.address)
            engine.answer, engine.ends = answer, ends
            async with scene.reading():
                await until(lambda: bool(scene.remark()), "a remark")
                assert f"its metrics at {engine.address} {cause}" in scene.remark()
                assert scene.running() is None
                engine.answer, engine.ends = whole(load_text(5)), False
                await until(lambda: scene.running() == 5, "the load")
                assert not scene.remark()

    asyncio.run(story())


@pytest.mark.usefixtures("at_once")
def test_an_answer_without_length_ends_with_its_connection() -> None:
    """As an old server sends it."""

    async def story() -> None:
        scene = Scene()
        async with busy_engine() as engine:
            engine.answer, engine.ends = b"HTTP/1.0 200 OK\r\n\r\n" + load_text(3).encode(), True
            scene.core.engine("a", address=engine.address)
            async with scene.reading():
                await until(lambda: scene.scraper.results["ok"] >= 2, "two readings")
        assert 3 == scene.running()
        assert len(engine.asked) == engine.connections

    asyncio.run(story())


@pytest.mark.usefixtures("at_once")
def test_slow_and_endless_answers_hold_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one is given up in time, the other by its size, and counted."""
    monkeypatch.setattr(scraper, "ANSWER_BYTES_MAX", 100_000)
    monkeypatch.setattr(scraper, "PATIENCE_S", 0.3)

    async def story() -> None:
        scene = Scene()
        async with busy_engine() as slow, busy_engine() as endless, busy_engine() as well:
            slow.answer = b"HTTP/1.1 200 OK\r\n"
            endless.answer, endless.without_end = b"HTTP/1.1 200 OK\r\n\r\n", True
            well.answer = whole(load_text(1))
            places = (("slow", slow.address), ("endless", endless.address), ("a", well.address))
            for pod, address in (*places, ("nobody", f"127.0.0.1:{free_port()}")):
                scene.core.engine(pod, address=address)
            async with scene.reading():
                for pod in ("slow", "endless", "nobody"):
                    await until(lambda: bool(scene.remark(pod)), "a remark")  # noqa: B023
                read = scene.scraper.results["ok"]
                await until(lambda: scene.scraper.results["ok"] > read, "another reading")
        assert "no answer in time" in scene.remark("slow")
        assert "more than 100000 bytes" in scene.remark("endless")
        assert "connection refused" in scene.remark("nobody")
        assert {LIMIT} == set(scene.limits)
        assert {"ok", "failed"} == set(scene.scraper.results)

    asyncio.run(story())


@pytest.mark.usefixtures("at_once")
def test_tensorrt_llm_is_asked_where_its_text_is() -> None:
    """Its `/metrics` is another thing, or nothing."""

    async def story() -> None:
        for other in (whole('[{"iter": 1}]'), whole("", "404 Not Found")):
            scene = Scene()
            async with busy_engine() as engine:
                engine.answer = other
                engine.answers["/prometheus/metrics"] = whole("trtllm_num_requests_running 4\n")
                scene.core.engine("a", address=engine.address)
                async with scene.reading():
                    await until(lambda: scene.running() == 4, "the load")  # noqa: B023
                    await until(lambda: len(engine.asked) >= 3, "another question")
            assert 1 == engine.asked.count("/metrics")

    asyncio.run(story())


def test_a_connection_that_ended_between_two_questions_is_no_failure() -> None:
    """Servers close what is idle."""

    async def story() -> None:
        scene = Scene()
        async with busy_engine() as engine:
            engine.ends = True
            scene.core.engine("a", address=engine.address)
            async with scene.reading():
                await until(lambda: scene.scraper.results["ok"] >= 3, "three readings")
        assert {"ok"} == set(scene.scraper.results)

    asyncio.run(story())


def test_a_name_that_is_a_place_is_asked_and_not_remarked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody said that metrics are there."""
    monkeypatch.setattr(scraper, "REMARK_AFTER_S", 0.0)

    async def story() -> None:
        scene = Scene()
        async with busy_engine() as engine:
            engine.answer = whole("", "404 Not Found")
            scene.core.engine(engine.address, endpoint="tcp://127.0.0.1:1")
            async with scene.reading():
                await until(lambda: scene.scraper.results["failed"] >= 1, "a question")
        assert not scene.remark(engine.address)

    asyncio.run(story())
