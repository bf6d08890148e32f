"""What is loaded when it is first asked for."""

from __future__ import annotations

import asyncio
import threading

from indexer.later import loaded


def test_it_is_loaded_once_and_in_a_thread() -> None:
    """The loop turns meanwhile, and nobody waits for it again."""
    threads = []

    def load() -> str:
        threads.append(threading.current_thread())
        return "it"

    async def twice() -> list[str]:
        return [await loaded(load), await loaded(load)]

    assert ["it", "it"] == asyncio.run(twice())
    assert 1 == len(threads)
    assert threads[0] is not threading.main_thread()
