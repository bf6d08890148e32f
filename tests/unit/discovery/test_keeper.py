"""A node without a store is brought to what a discoverer tells: from the picture to what a lookup says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from indexer.discovery import keeper, troubles
from indexer.discovery.in_memory import InMemory
from indexer.discovery.plan import GONE, plan, together
from indexer.model import Descriptor, SourceId
from tests.support.moved import OF_DISCOVERY, check_moved
from tests.support.steps import done
from tests.support.telling import Teller, found, picture
from tests.support.told_node import DEADLINE_S, Alone, alone

if TYPE_CHECKING:
    from indexer.discovery.keeper import Outcome
    from indexer.discovery.plan import Step
    from indexer.store.registered import Registered

A, B = SourceId("a", 0), SourceId("b", 0)


def test_a_pod_comes_is_not_ready_is_ready_and_goes() -> None:
    """What it holds is kept while it is not ready, and counts again at once."""

    async def body() -> None:
        teller = Teller()
        teller.tell(found("a", ready=False, why="starting"), found("b"))
        async with alone(teller) as of:
            await of.until(lambda: of.knows(A) and of.knows(B))
            assert of.node.readiness().detail["new"] == 1  # for whom is waited: not for the one that is not ready
            of.hold(A)
            of.hold(B)
            state, entries = of.ask()
            assert ("exact", "not_ready", 0.0) == (state, entries["a"].reason, entries["a"].score)
            (view, _) = await of.node.source_views()
            assert (False, "not ready: starting", "discovery") == (view.ready, view.why, view.origin)

            teller.tell(found("a"), found("b"))
            await of.until(lambda: of.is_ready(A))
            assert 8 == of.ask()[1]["a"].matched_tokens

            teller.tell(found("b"))
            await of.until(lambda: not of.knows(A))
            assert {"b"} == of.ask()[1].keys()

    asyncio.run(body())


def test_before_the_first_picture_nothing_is_touched_and_nobody_is_ready() -> None:
    """Sources of other origins are there all the time."""

    async def body() -> None:
        teller = Teller()
        async with alone(teller) as of:
            await of.until(lambda: teller.running)
            await of.node.add_source(Descriptor(pod="x", endpoint="tcp://127.0.0.1:1"))
            of.hold(SourceId("x", 0))
            assert not of.node.readiness().ready
            teller.tell()
            await of.until(lambda: of.node.readiness().ready)
            assert [SourceId("x", 0)] == list(of.node.registry.sources)

    asyncio.run(body())


def test_who_is_deleted_by_an_operator_comes_back_with_the_next_look() -> None:
    """It is there, so it is registered; what it held is forgotten."""

    async def body() -> None:
        teller = Teller()
        teller.tell(found("a"))
        async with alone(teller) as of:
            await of.until(lambda: of.knows(A))
            of.hold(A)
            await of.node.remove_source("a", None)
            assert not of.knows(A)
            teller.tell(found("a"))
            await of.until(lambda: of.knows(A))
            assert 0 == of.ask()[1]["a"].matched_tokens

    asyncio.run(body())


def test_removals_go_at_the_rate_of_the_limit_and_are_not_scored_meanwhile() -> None:
    """A discovery that has gone wrong does not empty the index, and is undone by the next picture."""

    async def body() -> None:
        teller = Teller()
        everybody = [found(f"p{number}") for number in range(5)]
        teller.tell(*everybody)
        async with alone(teller, limits__max_clears_per_minute=2) as of:
            await of.until(lambda: len(of.node.registry.sources) == 5)
            for source in list(of.node.registry.sources):
                of.hold(source)
            before = set(of.node.registry.sources)
            teller.tell(found("q"))
            await of.until(lambda: len(of.node.registry.sources) == 4)
            assert of.node.keeper is not None
            await of.until(lambda: of.node.keeper.health.waiting == 3)
            teller.heard_at = of.node.clock.now()
            teller.failures["refused"] += 1
            check_moved([await of.node.metrics_text()], OF_DISCOVERY)
            _, entries = of.ask()
            assert {"not_ready"} == {each.reason for pod, each in entries.items() if pod != "q"}
            whys = [each.facts.unready_why for each in of.node.registry.sources.values()]
            assert ["", GONE, GONE, GONE] == sorted(whys)

            teller.tell(*everybody)
            await of.until(lambda: len(of.node.registry.sources) == 5 and of.node.registry.sources.keys() == before)
            assert 3 == sum(each.matched_tokens == 8 for each in of.ask()[1].values())

    asyncio.run(body())


def test_a_model_learnt_late_and_a_new_alias_forget_nothing() -> None:
    """They are part of no hash."""

    async def body() -> None:
        teller = Teller()
        teller.tell(found("a"))
        async with alone(teller) as of:
            await of.until(lambda: of.knows(A))
            of.hold(A)
            generation = of.sink(A).source.facts.generation
            teller.tell(found("a", model="m", aliases=("vllm-0",), labels={"zone": "z"}))
            await of.until(lambda: of.sink(A).descriptor.model == "m")
            assert 8 == of.ask(model="m", pods=("vllm-0",))[1]["vllm-0"].matched_tokens
            assert generation == of.sink(A).source.facts.generation

    asyncio.run(body())


def test_another_life_is_a_new_generation() -> None:
    """Unless the stream showed that restart before; a life that nobody knew before is none."""

    async def body() -> None:
        teller = Teller()
        teller.tell(found("a"))
        async with alone(teller) as of:
            await of.until(lambda: of.knows(A))
            of.hold(A)
            source = of.sink(A).source

            teller.tell(found("a", life="1"))
            await of.until(lambda: source.life == "1")
            assert 8 == of.ask()[1]["a"].matched_tokens

            teller.tell(found("a", life="2"))
            await of.until(lambda: source.life == "2")
            assert 0 == of.ask()[1]["a"].matched_tokens
            of.hold(A)

            of.sink(A).restart("sequence_went_back")
            of.hold(A)
            generation = source.facts.generation
            teller.tell(found("a", life="3"))
            await of.until(lambda: source.life == "3")
            assert (generation, 8) == (source.facts.generation, of.ask()[1]["a"].matched_tokens)

            teller.tell(found("a", life="4"))
            await of.until(lambda: source.life == "4")
            assert 0 == of.ask()[1]["a"].matched_tokens
            causes = [each.cause for each in await of.history("a") if each.what == "restart"]
            assert ["life_differs", "sequence_went_back", "life_differs"] == causes

    asyncio.run(body())


class Fickle:
    """A ledger that is another's as soon as a test says so."""

    watches = True

    async def read(self) -> dict[SourceId, Registered]:
        return {}

    async def take(self, step: Step, *, counts: bool) -> Outcome:
        raise AssertionError((step, counts))

    def holds_blocks(self, _: SourceId) -> bool:
        return False


@pytest.mark.parametrize("turns", range(12))
def test_a_stop_in_the_moment_in_which_the_watch_is_lost_ends_it(monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
    """As after a pause: the lease is over, and a signal has come. No turn of the loop between swallows the stop."""
    monkeypatch.setattr(keeper, "WATCH_LOOK_S", 0.0)

    async def body() -> None:
        of, ledger, teller = Alone(), Fickle(), Teller()
        node = of.node
        watching = keeper.Keeper(
            (teller,), ledger, node.clock, clears=node.roster.clears, log=node.source_log, sources_max=9
        )
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
            stop = asyncio.Event()
            tasks.create_task(node.run(stop))
            task = tasks.create_task(watching.run())
            await of.until(lambda: teller.running)
            ledger.watches = False
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            stop.set()

    asyncio.run(body())


def test_who_is_heard_vouches_for_the_processes_that_it_told_of() -> None:
    """As often as it says anything; not for one whose restart the stream has shown."""

    async def body() -> None:
        teller = Teller()
        teller.tell(found("a", life="1"), found("b"))
        async with alone(teller) as of:
            vouched = of.node.roster.fleet.vouched  # type: ignore[attr-defined]  # handed in
            await of.until(lambda: of.knows(A) and of.knows(B))
            assert {} == vouched
            for heard_at in (5.0, 6.0):
                teller.heard_at = heard_at
                await of.until(lambda at=heard_at: vouched == {A: at})  # type: ignore[misc]
            of.sink(A).restart("sequence_went_back")
            teller.tell(found("a", life="1"), found("c"))
            teller.heard_at = 7.0
            await of.until(lambda: of.knows(SourceId("c", 0)) and not of.knows(B))
            assert {A: 6.0} == vouched

    asyncio.run(body())


def test_what_is_done_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A line a change, in plain words; a remark once."""
    caplog.set_level("INFO", logger="kvindexer.sources")

    async def body() -> None:
        teller = Teller()
        teller.tell(found("a", ready=False, why="starting", life="1"), remarks={"c": "no port"})
        async with alone(teller) as of:
            await of.until(lambda: of.knows(A))
            teller.tell(found("a", life="1"), remarks={"c": "no port"})
            await of.until(lambda: of.is_ready(A))
            teller.tell(found("a", life="2", model="m"))
            await of.until(lambda: of.sink(A).source.life == "2")
            teller.tell(found("a", life="2", model="m", endpoint="tcp://127.0.0.1:2"))
            await of.until(lambda: of.sink(A).descriptor.endpoint == "tcp://127.0.0.1:2")
            teller.tell()
            await of.until(lambda: not of.knows(A))

    asyncio.run(body())
    said = [record.getMessage() for record in caplog.records]
    assert [
        "discovery: this process watches from here on",
        "discovery: c: no port",
        "source a: discovered, not ready: starting",
        "source a: ready",
        "source a: another process of its engine lives, described otherwise",
        "source a: discovered otherwise: begun anew",
        f"source a: not ready: {GONE}",
        "source a: removed, as nobody tells of it any more",
    ] == [line for line in said if "restarted" not in line and "bound" not in line]


def test_a_trouble_that_lasts_is_told_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its own words, again when they change, and when it is over; one that is over soon is none."""
    caplog.set_level("INFO", logger="kvindexer.sources")
    monkeypatch.setattr(troubles, "LASTS_S", 0.0)

    def said() -> list[str]:
        return [record.getMessage() for record in caplog.records if "heard" in record.getMessage()]

    async def body() -> None:
        teller = Teller()
        teller.tell()
        async with alone(teller) as of:
            for count, trouble in enumerate(("no token", "forbidden", ""), start=1):
                teller.trouble = trouble
                await of.until(lambda count=count: len(said()) == count)

    asyncio.run(body())
    assert [
        "discovery: teller cannot be heard: no token",
        "discovery: teller cannot be heard: forbidden",
        "discovery: teller is heard again",
    ] == said()


def test_what_two_discoverers_tell_is_told_of() -> None:
    """And nobody is removed before both have told."""

    async def body() -> None:
        one, two = Teller("one"), Teller("two")
        one.tell(found("a", model="m"))
        async with alone(one, two) as of:
            await of.until(lambda: of.knows(A))
            one.tell()
            two_tells = found("a"), found("b")
            assert of.node.keeper is not None
            await of.until(lambda: of.node.keeper.health.sources["one"] == 0)
            assert of.is_ready(A)
            two.tell(*two_tells)
            await of.until(lambda: of.knows(B) and of.sink(A).descriptor.model is None)
            one.tell(found("a", model="m"))
            await of.until(lambda: of.sink(A).descriptor.model == "m")
            assert "two tells of it, too" in of.node.keeper.health.remarks["a"]
            (view, _) = await of.node.source_views()
            assert "discovery: two tells of it, too: it is as one says" in view.warnings

    asyncio.run(body())


def test_many_changes_are_taken_in_turns() -> None:
    """Between them lookups are answered: a thousand pods that come at once took 40 ms in one step."""

    async def body() -> None:
        teller = Teller()
        async with alone(teller) as of:
            await of.until(lambda: teller.running)
            many = [found(f"p{number:03}") for number in range(300)]
            for those, names in ((many, 300), ([], 0)):
                teller.tell(*those)
                before, most = len(of.node.registry.sources), 0
                while before != names:
                    await asyncio.sleep(0)
                    now = len(of.node.registry.sources)
                    before, most = now, max(most, abs(now - before))
                assert 0 < most <= 2 * keeper.STEPS_A_TURN

    asyncio.run(body())


def test_what_came_meanwhile_is_planned_for() -> None:
    """A caller's source may have a name that was another's when it was planned."""

    async def body() -> None:
        async with alone(Teller()) as of:
            ledger = InMemory(of.node.roster, of.node.registry)
            told = together([("one", picture(found("a", aliases=("x",))))])
            made = done(plan(await ledger.read() or {}, told, sources_max=9))
            of.node.roster.add(Descriptor(pod="x", endpoint="tcp://127.0.0.1:1"))
            assert ["changed"] == [await ledger.take(step, counts=False) for step in made.steps]

            standing = await ledger.read() or {}
            told = together([("one", picture(found("a", aliases=("x",)), found("b")))])
            made = done(plan(standing, told, sources_max=9))
            assert ["done", "done"] == [await ledger.take(step, counts=False) for step in made.steps]
            assert () == of.sink(A).descriptor.aliases

    asyncio.run(body())
