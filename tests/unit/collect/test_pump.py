"""The line of sources that have something to read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from indexer.collect.pump import Pump


class StepClock:
    """Every look at it takes a quarter of a slice."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        self.at += 0.25
        return self.at

    def wall_us(self) -> int:
        return 0


class Reader:
    """Has so much to read; notes each turn."""

    def __init__(self, name: str, work: int, turns: list[str]) -> None:
        self.name, self.work, self.turns = name, work, turns

    def drain(self) -> bool:
        self.turns.append(self.name)
        self.work -= 1
        return self.work > 0


class FailingReader(Reader):
    def drain(self) -> bool:
        self.turns.append(self.name)
        raise LookupError(self.name)


def test_turns_are_taken_in_line() -> None:
    """Whoever has more goes to the end of the line; waking one that waits changes nothing."""

    async def main() -> None:
        turns: list[str] = []
        pump = Pump(StepClock(), slice_s=100.0)
        for reader in (Reader("a", 3, turns), Reader("b", 1, turns), Reader("c", 2, turns)):
            pump.wake(reader)
            pump.wake(reader)
        assert not turns
        pump.start()
        await asyncio.sleep(0)
        assert list("abcaca") == turns

    asyncio.run(main())


def test_the_loop_gets_its_turn_after_each_slice() -> None:
    """Three looks at the clock fill a slice, whatever is waiting."""

    async def main() -> None:
        turns: list[str] = []
        seen: list[int] = []
        pump = Pump(StepClock(), slice_s=0.75)
        pump.start()
        pump.wake(Reader("a", 8, turns))
        while len(turns) < 8:
            await asyncio.sleep(0)
            seen.append(len(turns))
        assert [3, 6, 8] == seen

    asyncio.run(main())


def test_one_that_fails_does_not_stop_the_others() -> None:
    """The loop is told; the rest of the line goes on."""

    async def main() -> None:
        turns: list[str] = []
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        pump = Pump(StepClock(), slice_s=100.0)
        pump.start()
        pump.wake(FailingReader("bad", 1, turns))
        pump.wake(Reader("good", 2, turns))
        for _ in range(3):
            await asyncio.sleep(0)
        assert ["bad", "good", "good"] == turns
        assert ["bad"] == [str(error) for error in told]

    asyncio.run(main())


@pytest.mark.parametrize("wake_late", [False, True])
def test_after_the_stop_nothing_is_drained(wake_late: bool) -> None:
    """Neither who waited nor who comes later."""

    async def main() -> None:
        turns: list[str] = []
        pump = Pump(StepClock(), slice_s=100.0)
        pump.start()
        actions: list[Callable[[], None]] = [lambda: pump.wake(Reader("a", 1, turns)), pump.stop]
        for action in reversed(actions) if wake_late else actions:
            action()
        for _ in range(3):
            await asyncio.sleep(0)
        assert [] == turns

    asyncio.run(main())
