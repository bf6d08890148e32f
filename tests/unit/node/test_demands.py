"""Who waits for which sequence, and who is woken: on one loop, event by event."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from indexer.demands import SequenceWaits, tell_unmet, unmet
from schemas.lookup import LookupQuery
from tests.support.core import Answer, Core, reasons
from tests.support.core_events import prompt, stored, u32

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

FOREVER_S = 3_600.0


class Waits:
    """A core whose batches wake waiters, as the node joins them."""

    def __init__(self) -> None:
        self.core = Core()
        self.watching: list[bool] = []
        self.waits = SequenceWaits(self.core.registry, self._watched)
        self.core.ingest.touched = self.waits.applied

    def _watched(self, *, waited_for: bool) -> None:
        self.watching.append(waited_for)

    def ask(self, tasks: asyncio.TaskGroup, timeout_s: float = FOREVER_S, **sequences: int) -> asyncio.Task[None]:
        return tasks.create_task(self.waits.until_applied(LookupQuery(min_sequence=sequences), timeout_s))


async def _settled() -> None:
    """What was made ready has run: waking takes a few turns of the loop and no time."""
    for _ in range(5):
        await asyncio.sleep(0)


def _run(scenario: Callable[[Waits, asyncio.TaskGroup], Awaitable[None]]) -> Waits:
    waits = Waits()

    async def run() -> None:
        async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
            await scenario(waits, tasks)

    asyncio.run(run())
    return waits


def test_each_is_woken_by_its_own_sequence() -> None:
    """In any order of asking; nothing is kept of those that have gone."""

    async def scenario(waits: Waits, tasks: asyncio.TaskGroup) -> None:
        engine = waits.core.engine("a")
        asked = [waits.ask(tasks, a=sequence) for sequence in (2, 0, 1, 0)]
        for done in ([0, 1, 0, 1], [0, 1, 1, 1], [1, 1, 1, 1]):
            await _settled()
            engine.say()
            await _settled()
            assert done == [task.done() for task in asked]

    assert 0 == len(waits := _run(scenario).waits)
    assert not waits.watched_sources


def test_all_demands_and_all_ranks_must_be_met() -> None:
    """The last one wakes."""

    async def scenario(waits: Waits, tasks: asyncio.TaskGroup) -> None:
        first, second, other = (waits.core.engine(pod, dp_rank=rank) for pod, rank in (("a", 0), ("a", 1), ("b", 0)))
        asked = waits.ask(tasks, a=0, b=1)
        await _settled()
        for engine in (first, other, second):
            engine.say()
            await _settled()
            assert not asked.done()
        other.say()
        await _settled()
        assert asked.done()

    _run(scenario)


def test_an_engine_that_restarts_meanwhile_has_not_applied_it() -> None:
    """What was met before another demand was is looked at once more."""

    async def scenario(waits: Waits, tasks: asyncio.TaskGroup) -> None:
        a, b = waits.core.engine("a"), waits.core.engine("b")
        asked = waits.ask(tasks, a=0, b=0)
        await _settled()
        a.say()
        a.restart()
        b.say()
        await _settled()
        assert not asked.done()
        a.say()
        await _settled()
        assert asked.done()

    _run(scenario)


def test_a_pod_that_appears_is_waited_for_from_then_on() -> None:
    """And one that leaves and comes back."""

    async def scenario(waits: Waits, tasks: asyncio.TaskGroup) -> None:
        asked = waits.ask(tasks, late=1)
        await _settled()
        engine = waits.core.engine("late")
        engine.say()
        waits.waits.reshaped()
        await _settled()
        assert not asked.done()
        waits.core.remove("late")
        waits.waits.reshaped()
        again = waits.core.engine("late")
        waits.waits.reshaped()
        again.say()
        await _settled()
        assert not asked.done()
        again.say()
        await _settled()
        assert asked.done()

    _run(scenario)


def test_the_deadline_and_a_caller_that_gives_up_end_a_wait() -> None:
    """Nothing of either is kept, and batches cost nothing more."""

    async def scenario(waits: Waits, tasks: asyncio.TaskGroup) -> None:
        waits.core.engine("a")
        late, given_up = waits.ask(tasks, 0.0, a=1), waits.ask(tasks, a=1)
        await _settled()
        given_up.cancel()
        await late

    waits = _run(scenario)
    assert 0 == len(waits.waits)
    assert not waits.waits.watched_sources
    assert [True, False] == waits.watching


def test_what_was_not_met_is_said() -> None:
    """Of pods that the answer lists, does not list, and that nobody has; a limit on entries holds."""
    core = Core()
    core.engine("a", model="m").say(stored([1], prompt(1)))
    core.engine("b", model="other").say()

    def told(limit: int = 0) -> tuple[str, dict[str, str | None]]:
        query = LookupQuery(tokens=u32(prompt(1)), model="m", min_sequence={"a": 0, "b": 7, "nobody": 0}, limit=limit)
        answer = core.lookup.answer(query)
        tell_unmet(core.registry, query, answer, core.lookup.view, core.clock.now())
        sent = msgspec.json.decode(msgspec.json.encode(answer), type=Answer)
        return sent.state, reasons(sent)

    assert ("degraded", {"a": None, "b": "deadline", "nobody": "deadline"}) == told()
    assert ("degraded", {"a": None}) == told(limit=1)
    assert [] == unmet(core.registry, LookupQuery(min_sequence={"a": 0}))


def test_a_pod_asked_for_as_one_is_told_once() -> None:
    """However many ranks and names it has."""
    core = Core()
    for rank in range(2):
        core.engine("a", dp_rank=rank, aliases=("alias",))
    query = LookupQuery(tokens=u32(prompt(1)), group="pod", min_sequence={"a": 5, "alias": 6})
    answer = core.lookup.answer(query)

    tell_unmet(core.registry, query, answer, core.lookup.view, core.clock.at)

    assert ["a"] == [entry.pod for entry in answer.pods if not isinstance(entry, msgspec.Raw)]
