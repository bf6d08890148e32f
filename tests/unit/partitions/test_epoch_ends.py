"""The end of an epoch and a stop in one moment: the stop counts, else whoever is stopped would go on for ever."""

from __future__ import annotations

import asyncio

import pytest

from indexer.partitions.calls import EpochOver
from indexer.partitions.owner import until_either
from indexer.store.outcomes import Lost


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def _over_when_ended() -> None:
    """As a call whose refusal comes while it is cancelled."""
    try:
        await _for_ever()
    except asyncio.CancelledError:
        raise EpochOver(Lost("log")) from None


async def _over_by_itself() -> None:
    await asyncio.sleep(0)
    raise EpochOver(Lost("log"))


async def _handed_over() -> None:
    await asyncio.sleep(0)


def test_an_epoch_that_is_over_is_told() -> None:
    """Whoever owned it goes on, and may take it again."""

    async def body() -> None:
        with pytest.raises(EpochOver):
            await until_either(_over_by_itself(), _for_ever())
        task = asyncio.current_task()
        assert task is not None
        assert 0 == task.cancelling()

    asyncio.run(body())


def test_a_hand_over_ends_it() -> None:
    """Nothing is raised, and nothing goes on."""
    asyncio.run(until_either(_for_ever(), _handed_over()))


def test_an_epoch_that_is_over_by_a_hand_over_is_told_and_cancels_nobody() -> None:
    """The owner goes on, and looks who has the partition now."""

    async def body() -> None:
        with pytest.raises(EpochOver):
            await until_either(_over_when_ended(), _handed_over())
        task = asyncio.current_task()
        assert task is not None
        assert 0 == task.cancelling()

    asyncio.run(body())


@pytest.mark.parametrize("writing", [_for_ever, _over_when_ended])
def test_a_stop_is_not_lost(writing: object) -> None:
    """Whether the epoch ends by it or not."""
    assert callable(writing)

    async def body() -> None:
        task = asyncio.get_running_loop().create_task(until_either(writing(), _for_ever()))
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    asyncio.run(body())
