"""What engines' metrics say, read on real sockets: what it fills in, what it remarks on, what it leaves."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from indexer.clock import SystemClock
from indexer.doctor.cache_config import CacheConfig
from indexer.loads.board import LoadBoard
from indexer.model import GroupInfo
from indexer.scraping import scraper
from indexer.scraping.cache_facts import contradictions
from indexer.scraping.scraper import Intervals, Scraper
from tests.support import nowhere
from tests.support.collecting import until
from tests.support.core import Core
from tests.support.core_events import prompt, stored
from tests.support.redis_servers import free_port
from tests.support.telling_engine import METRICS, NO_END, telling, tells

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from indexer.index.source import SourceIndex


@contextlib.asynccontextmanager
async def watching(
    core: Core, *, every_s: float | None = 1.0, follows: str = "", limits: list[str] | None = None
) -> AsyncIterator[None]:
    """It asks until the block ends. `follows`: that pod's events are applied elsewhere."""
    reached = limits.append if limits is not None else lambda _: None
    watch = Scraper(
        core.registry,
        LoadBoard(reached, interval_s=None),
        SystemClock(),
        Intervals(None, every_s),
        follows=lambda key: key.pod == follows,
        limit_reached=reached,
    )
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watch.run(stop))
        yield
        stop.set()


def source_of(core: Core, pod: str) -> SourceIndex:
    """As the registry has it."""
    return next(source for key, source in core.registry.sources.items() if key.pod == pod)


def test_a_capacity_that_nobody_gave_is_filled_in() -> None:
    """And one that was given wins; without an address nobody is asked, nor where another replica applies the events."""

    async def story() -> None:
        core = Core()
        with telling(tells(blocks=500)) as address, telling(tells(blocks=500)) as other:
            core.engine("a", address=address)
            core.engine("b")
            core.engine("c", address=other)
            async with watching(core, follows="c"):
                await until(lambda: source_of(core, "a").engine_blocks is not None, "the engine's word")
                assert 500 == source_of(core, "a").capacity

        assert [None, None] == [source_of(core, pod).engine_blocks for pod in ("b", "c")]
        assert {} == source_of(core, "a").warnings

    asyncio.run(story())


def test_what_it_says_is_read_again_and_again() -> None:
    """A remark stands as long as its cause does."""

    async def story() -> None:
        core = Core()
        answers = tells(caching=False)
        with telling(answers) as address:
            source = core.engine("a", address=address, blocks_total=400).source
            async with watching(core):
                await until(lambda: bool(source.warnings), "a remark")
                assert {"engine_caching", "engine_blocks"} == set(source.warnings)
                assert 400 == source.capacity
                answers.update(tells(blocks=400))
                await until(lambda: not source.warnings, "the remarks to go")
                answers.clear()
                await until(lambda: bool(source.warnings), "another remark")

        assert {"engine_metrics": f"its metrics at {address} could not be read: status 404"} == source.warnings

    asyncio.run(story())


def test_engines_that_do_not_answer_hold_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody there, an answer without end, a redirect: each is told with its cause, and all are asked at once."""

    async def story() -> None:
        monkeypatch.setattr(scraper, "ANSWER_BYTES_MAX", 100_000)
        core, limits = Core(), list[str]()
        with telling({"/metrics": NO_END}) as endless, telling({"/metrics": "http://127.0.0.1:1/"}) as moved:
            for pod, address in (("gone", f"127.0.0.1:{free_port()}"), ("endless", endless), ("moved", moved)):
                core.engine(pod, address=address)
            sources = [source_of(core, pod) for pod in ("gone", "endless", "moved")]
            async with watching(core, limits=limits):
                await until(lambda: all(source.warnings for source in sources), "a remark on each")

        causes = [source.warnings["engine_metrics"].rpartition(": ")[2] for source in sources]
        assert ["connection refused", "more than 100000 bytes", "status 302"] == causes
        assert ["engine_metrics.bytes"] == limits

    asyncio.run(story())


def test_no_engine_ends_the_asking() -> None:
    """Wherever one sends, whatever its address is, and whatever number it gives: the others are asked again."""
    odd = [METRICS.format("000000000016" + "0" * 5_000, "True", "1e400").encode(), b"\xff" * 100]

    async def story() -> None:
        core = Core()
        with contextlib.ExitStack() as stack:
            moved = [stack.enter_context(telling({"/metrics": place})) for place in nowhere.LOCATIONS]
            queer = [stack.enter_context(telling({"/metrics": answer})) for answer in odd]
            last = stack.enter_context(telling(tells(blocks=500)))
            for number, address in enumerate([*moved, *(f"{host}:80" for host in nowhere.HOSTS), *queer, last]):
                core.engine(f"e{number}", address=address)
            async with watching(core):
                await until(lambda: list(core.registry.sources.values())[-1].engine_blocks == 500, "the last engine")
        causes = [
            source.warnings.get("engine_metrics", "").rpartition(": ")[2] for source in core.registry.sources.values()
        ]

        assert ["status 302"] * len(moved) == causes[: len(moved)]
        named = causes[len(moved) :][: len(nowhere.HOSTS)]
        assert {"its address is none", "its name cannot be resolved"} >= set(named)
        assert [""] * 3 == causes[-3:]

    asyncio.run(story())


def test_nobody_is_asked_unless_it_is_set() -> None:
    """The default."""

    async def story() -> None:
        core = Core()
        with telling(tells()) as address:
            core.engine("a", address=address)
            async with watching(core, every_s=None):
                pass

        assert None is source_of(core, "a").engine_blocks

    asyncio.run(story())


def test_a_block_size_is_compared_where_there_is_one() -> None:
    """Of several cache groups the metric is that of the smallest."""
    core = Core()
    engine = core.engine("a")
    assert {} == contradictions(engine.source, CacheConfig(block_size=16))
    engine.say(stored([1], prompt(1)))

    (remark,) = contradictions(engine.source, CacheConfig(block_size=16)).values()
    assert "its events have blocks of 4 tokens, its metrics say 16" in remark
    assert {} == contradictions(engine.source, CacheConfig(block_size=4))
    engine.source.groups[1] = GroupInfo("mamba", None, 16)
    assert {} == contradictions(engine.source, CacheConfig(block_size=16))
