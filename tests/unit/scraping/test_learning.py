"""Models of engines on real sockets: when they are asked, and what is learnt."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING

from indexer.clock import SystemClock
from indexer.loads.board import LoadBoard
from indexer.model import SourceId
from indexer.scraping import scraper
from indexer.scraping.scraper import MODELS_REMARK, Intervals, Scraper
from tests.support.busy_engine import BusyEngine, busy_engine, load_text, whole
from tests.support.collecting import until
from tests.support.core import Core

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from indexer.index.source import SourceIndex

PATH = "/v1/models"
LONG_S = 3_600.0


def listing(*names: str, adapters: tuple[str, ...] = (), status: str = "200 OK") -> bytes:
    """What an engine answers."""
    entries = [{"id": name, "root": names[0], "parent": None} for name in names]
    entries += [{"id": name, "root": "x", "parent": names[0]} for name in adapters]
    return whole(json.dumps({"object": "list", "data": entries}), status)


class Scene:
    """A core, and a scraper that learns; metrics are not read unless it is said."""

    def __init__(self, models_s: float = LONG_S, loads_s: float | None = None) -> None:
        self.core = Core()
        self.scraper = Scraper(
            self.core.registry,
            LoadBoard(_ignore, interval_s=1.0),
            SystemClock(),
            Intervals(loads_s, None, models_s),
            follows=lambda _: False,
            limit_reached=_ignore,
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

    def source(self, pod: str, dp_rank: int = 0) -> SourceIndex:
        """One of them."""
        return self.core.registry.sources[SourceId(pod, dp_rank)]


def _ignore(_: str) -> None:
    """Nobody counts."""


def asked(engine: BusyEngine) -> int:
    """How often for its models."""
    return engine.asked.count(PATH)


def test_asked_once_at_the_start_and_after_a_restart() -> None:
    """For all of its ranks together, whatever the interval is; a clear is no restart."""

    async def body() -> None:
        async with busy_engine() as engine:
            engine.answers[PATH] = listing("llama", "l3", adapters=("fr",))
            scene = Scene()
            scene.core.engine("a", address=engine.address)
            scene.core.engine("a", dp_rank=1, address=engine.address)
            async with scene.reading():
                await until(lambda: scene.source("a", 1).model == "llama", "its model")
                assert ("llama", "a") == (scene.source("a").model, scene.source("a").descriptor.pod)
                assert "alias" == scene.core.registry.resolve("l3", "default").resolved_by
                assert "fr" == scene.core.registry.resolve("fr", "default").lora_name
                assert [PATH] == engine.asked
                scene.source("a").begin_generation(scene.core.mirror, 50, same_engine=True)
                engine.answers[PATH] = listing("qwen")
                scene.source("a").begin_generation(scene.core.mirror, 51, same_engine=False)
                assert None is scene.source("a").model
                await until(lambda: scene.source("a").model == "qwen", "its new model")
                await until(lambda: scene.source("a", 1).model == "qwen", "of the other rank, too")
                assert 2 == asked(engine)

    asyncio.run(body())


def test_another_source_at_the_same_place_is_told_at_once() -> None:
    """A changed registration: what its engine serves is not waited for until the next turn."""

    async def body() -> None:
        async with busy_engine() as engine:
            engine.answers[PATH] = listing("m")
            scene = Scene()
            scene.core.engine("a", address=engine.address)
            async with scene.reading():
                await until(lambda: scene.source("a").model == "m", "its model")
                scene.core.engine("a", address=engine.address, labels={"a": "b"})
                assert None is scene.source("a").model
                await until(lambda: scene.source("a").model == "m", "of the new source, too")
                assert 2 == asked(engine)

    asyncio.run(body())


def test_an_engine_that_was_away_long_is_asked_once_it_is_back() -> None:
    """A restart that is known ends the rest after failures."""

    async def body() -> None:
        async with busy_engine() as engine:
            engine.answers[PATH] = listing("m", status="503 Service Unavailable")
            scene = Scene()
            scene.core.engine("a", address=engine.address)
            async with scene.reading():
                await until(lambda: asked(engine) == 1, "it is asked")
                (target,) = scene.scraper._targets.values()
                await until(lambda: target.models_failures == 1 and not target.is_asked, "it failed")
                target.models_failures = 12
                target.models_due += LONG_S
                scene.scraper._put(target, target.models_due)
                engine.answers[PATH] = listing("m")
                scene.source("a").begin_generation(scene.core.mirror, 50, same_engine=False)
                await until(lambda: scene.source("a").model == "m", "its model")

    asyncio.run(body())


def test_again_and_again_beside_metrics_over_one_connection() -> None:
    """Adapters come and go; loads are read as before."""

    async def body() -> None:
        async with busy_engine() as engine:
            engine.answer = whole(load_text(1))
            engine.answers[PATH] = listing("m", adapters=("fr",))
            scene = Scene(models_s=0.1, loads_s=0.05)
            scene.core.engine("a", model="m", address=engine.address)
            async with scene.reading():
                await until(lambda: scene.source("a").has_adapter("fr"), "an adapter")
                engine.answers[PATH] = listing("m", adapters=("de",))
                await until(lambda: scene.source("a").has_adapter("de"), "another adapter")
                assert not scene.source("a").has_adapter("fr")
                await until(lambda: scene.scraper.results["ok"] > 2, "loads")
                assert 1 == engine.connections

    asyncio.run(body())


def test_an_engine_that_tells_no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a key, without that path, or with nonsense: a remark, another try soon, and what was known stays."""
    monkeypatch.setattr(scraper, "MODELS_REST_S", 0.02)

    async def body() -> None:
        async with busy_engine() as engine:
            engine.answers[PATH] = listing("m", status="401 Unauthorized")
            scene = Scene(models_s=0.2)
            scene.core.engine("a", address=engine.address)

            def remark() -> str:
                return scene.source("a").warnings.get(MODELS_REMARK, "")

            async with scene.reading():
                await until(lambda: "status 401" in remark(), "a remark")
                engine.answers[PATH] = whole('{"data": 7}')
                await until(lambda: "no list" in remark(), "another")
                engine.answers[PATH] = listing("m")
                await until(lambda: scene.source("a").model == "m", "its model")
                await until(lambda: not remark(), "no remark any more")
                engine.answers[PATH] = whole("x", "302 Found", "location: http://127.0.0.1:1/")
                await until(lambda: "status 302" in remark(), "a remark again")
                assert "m" == scene.source("a").model

    asyncio.run(body())


def test_an_answer_of_a_process_that_ended_meanwhile_is_not_learnt() -> None:
    """It was asked before the restart was known: it is asked again."""

    async def body() -> None:
        async with busy_engine() as engine:
            engine.answers[PATH] = b""
            scene = Scene()
            scene.core.engine("a", address=engine.address)
            async with scene.reading():
                await until(lambda: asked(engine) == 1, "it is asked")
                scene.source("a").begin_generation(scene.core.mirror, 50, same_engine=False)
                engine.answers[PATH] = listing("new")
                for writer in list(engine.open):
                    writer.write(listing("old"))
                await until(lambda: scene.source("a").model is not None, "its model")
                assert ("new", 2) == (scene.source("a").model, asked(engine))

    asyncio.run(body())
