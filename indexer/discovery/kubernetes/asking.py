"""[I/O] Engines are asked where they publish, where neither annotations nor arguments say it.

Once a process of an engine, which keeps its ports while it lives. One that does not answer is waited for while its pod
is not ready, as it may be loading its model for minutes and publishes nothing meanwhile; of one that is ready and still
does not answer, the settings' ports are taken. Bounded in questions at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Literal, Protocol

from indexer.discovery.event_endpoints import NotTold

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping

    from indexer.discovery.event_endpoints import Endpoints
    from indexer.discovery.kubernetes.picture import Answered
    from indexer.discovery.kubernetes.reading import Offer, Reading

AT_ONCE: Final = 16
TRIES: Final = 3
"""Of an engine whose pod is ready."""
REST_S: Final = 1.0
REST_MAX_S: Final = 15.0


class Ask(Protocol):
    """Where an engine publishes."""

    async def __call__(self, address: str) -> Mapping[int, Endpoints]:
        """By rank. Raises `NotTold`."""
        ...


class _Question:
    """To one process of an engine."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task
        self.answer: Answered = "waited for"
        self.is_ready = False


class Asking:
    """Asks in `tasks`, and sets `dirty` when something new is known."""

    def __init__(self, ask: Ask, tasks: asyncio.TaskGroup, dirty: asyncio.Event, chance: random.Random) -> None:
        self._ask = ask
        self._tasks = tasks
        self._dirty = dirty
        self._chance = chance
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._questions: dict[tuple[str, str], _Question] = {}

    def follow(self, readings: Iterable[Reading]) -> None:
        """These are the pods now: ask whom must be asked, and forget who is gone."""
        wanted = {
            _key(reading.offer): reading.offer for reading in readings if reading.offer and reading.offer.must_ask
        }
        for key in self._questions.keys() - wanted.keys():
            self._questions.pop(key).task.cancel()
        for key, offer in wanted.items():
            question = self._questions.get(key)
            if question is None:
                task = self._tasks.create_task(self._go_on(key), name=f"asking {offer.asked_at} where it publishes")
                question = self._questions[key] = _Question(task)
            question.is_ready = offer.ready

    def answered(self, offer: Offer) -> Mapping[int, Endpoints] | Literal["waited for"] | None:
        """What is known of it."""
        question = self._questions.get(_key(offer))
        return None if question is None else question.answer

    async def _go_on(self, key: tuple[str, str]) -> None:
        tries_ready, rest_s = 0, REST_S
        while True:
            question = self._questions[key]
            was_ready = question.is_ready
            try:
                async with self._turn:
                    question.answer = await self._ask(key[1])
                break
            except NotTold:
                tries_ready += was_ready
            if tries_ready >= TRIES:
                question.answer = None
                break
            await asyncio.sleep(rest_s * self._chance.uniform(0.5, 1.0))
            rest_s = min(2 * rest_s, REST_MAX_S)
        self._dirty.set()


def _key(offer: Offer) -> tuple[str, str]:
    return offer.life, offer.asked_at
