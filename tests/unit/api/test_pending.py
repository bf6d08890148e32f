"""Memory of a flood is given back once, behind the last of several that follow each other."""

from __future__ import annotations

import asyncio

import pytest

from api import pending
from api.pending import FLOOD_BYTES, Pending
from tests.support.collecting import until


def test_floods_that_follow_each_other_give_memory_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that comes later does again; what is no flood never."""
    monkeypatch.setattr(pending, "FLOOD_OVER_S", 0.01)

    async def body() -> None:
        returned: list[int] = []
        shares = Pending(4 * FLOOD_BYTES, return_memory=lambda: returned.append(shares.total))

        def flood(size: int) -> None:
            assert shares.take("a", size)
            shares.give_back("a", size)

        for count in (1, 2):
            for size in (FLOOD_BYTES, FLOOD_BYTES, 1):
                flood(size)
            await until(lambda wanted=count: len(returned) >= wanted, "the memory of a flood")  # type: ignore[misc]
        flood(FLOOD_BYTES - 1)
        flood(FLOOD_BYTES)
        await until(lambda: len(returned) >= 3, "that of the last")
        assert [0] * 3 == returned

    asyncio.run(body())
