"""[I/O] Reads the metrics of engines whose events are applied here, each once for all of its ranks and all readers.

Only `GET /metrics`, and `GET /v1/models` where names are learnt, at registered places (loads/asked.py), each in its own
turn, so that a thousand are spread over the interval. Bounded in requests at once, bytes and time. An engine that does
not answer is asked less and less often, and holds up no other. TensorRT-LLM alone has its text at another path, and is
asked there once that shows.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.http_clients import why_not_connected
from indexer.loads.asked import place_of
from indexer.loads.engine_metrics import Ranks, read_loads
from indexer.scraping.cache_facts import note_unread, take_facts
from indexer.scraping.connection import EngineConnection, TooLong, Unusable, connect
from indexer.scraping.models_list import PATH as MODELS_PATH
from indexer.scraping.models_list import NoList, read_models
from indexer.slices import Slices

if TYPE_CHECKING:
    from collections.abc import Callable

    from indexer.index.registry import Registry
    from indexer.index.source import SourceIndex
    from indexer.loads.board import LoadBoard
    from indexer.model import SourceId
    from indexer.ports import Clock

AT_ONCE: Final = 64
"""Engines that are being asked."""
STARTED_AT_ONCE: Final = 8
"""In one turn: half a millisecond."""
FIRST_A_SECOND: Final = 1_000
"""Engines that are asked for the first time."""
TURN_S: Final = 0.005
BUSY_S: Final = 0.02
LOOK_S: Final = 0.5
"""So often it is looked who there is."""
PATIENCE_S: Final = 4.0
"""For one answer, whatever it does."""
ANSWER_BYTES_MAX: Final = 8 * 1024**2
AT_HOME_BYTES: Final = 256 * 1024
"""A longer answer is looked through in a thread."""
REST_MAX_S: Final = 30.0
"""Between two tries of an engine that does not answer."""
REMARK_AFTER_S: Final = 10.0
"""An engine of which nothing can be read for so long is remarked on: one that restarts is none."""
LIMIT: Final = "engine_metrics.bytes"
REMARK: Final = "engine_loads"
"""Key of a source's warning."""
PATHS: Final = ("/metrics", "/prometheus/metrics")
MODELS_REMARK: Final = "engine_models"
"""Key of a source's warning: its names are not known, and why."""
MODELS_REST_S: Final = 1.0
"""After a list of models that could not be read; it doubles up to the interval."""


class Intervals(NamedTuple):
    """Between two readings: of loads, of what is said of caches, and of models. None: not read."""

    loads_s: float | None
    facts_s: float | None
    models_s: float | None = None

    @property
    def metrics_s(self) -> float | None:
        """Between two readings of metrics."""
        return min((each for each in (self.loads_s, self.facts_s) if each is not None), default=None)

    @property
    def least_s(self) -> float | None:
        """Between two questions."""
        return min((each for each in self if each is not None), default=None)


class Target:
    """One place, and the sources that are there."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.early_s = 0.0
        """The second question comes so much earlier than in an interval: who came together is spread over it."""
        self.sources: list[SourceIndex] = []
        self.is_given = False
        self.is_gone = False
        self.path = 0
        self.connection: EngineConnection | None = None
        self.facts_at = float("-inf")
        self.failures = 0
        self.silent_since: float | None = None
        self.turn = 0
        """Number of its place in the order of turns; of others that it had before nothing comes."""
        self.is_asked = False
        self.metrics_due = self.models_due = float("-inf")
        self.models_failures = 0
        self.lives: list[int] | None = None
        """Of its sources, when it was asked for its models last."""

    def close(self) -> None:
        """Nobody asks there any more."""
        self.is_gone = True
        if self.connection is not None:
            self.connection.close()


class Scraper:
    """One a process. `follows`: whether another replica applies a source's events."""

    def __init__(
        self,
        registry: Registry,
        board: LoadBoard,
        clock: Clock,
        intervals: Intervals,
        *,
        follows: Callable[[SourceId], bool],
        limit_reached: Callable[[str], None],
    ) -> None:
        self._learns = intervals.models_s is not None
        self._registry = registry
        self._board = board
        self._clock = clock
        self._intervals = intervals
        self._follows = follows
        self._limit_reached = limit_reached
        self._targets: dict[str, Target] = {}
        self._due: list[tuple[float, int, Target]] = []
        self._numbers = 0
        self._asking = 0
        self.results: Counter[str] = Counter()
        """Questions by what came of them: `ok`, `no_load` (an answer that tells none), `failed`."""

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set."""
        every_s = self._intervals.least_s
        if every_s is None:
            return
        try:
            async with asyncio.TaskGroup() as tasks:
                going_on = tasks.create_task(self._go_on(every_s), name="asking engines")
                await stop.wait()
                going_on.cancel()
        finally:
            for target in self._targets.values():
                target.close()

    # -- whose turn it is ---------------------------------------------------------------------------------------------

    async def _go_on(self, every_s: float) -> None:
        look_at = self._clock.now()
        async with asyncio.TaskGroup() as tasks:
            while True:
                now = self._clock.now()
                if now >= look_at:
                    await self._look(every_s)
                    look_at = now + LOOK_S
                for _ in range(STARTED_AT_ONCE):
                    target = self._next_due(now)
                    if target is None:
                        break
                    self._asking += 1
                    tasks.create_task(self._ask(target, every_s), name=f"metrics at {target.address}")
                soon = self._due[0][0] - self._clock.now() if self._due else LOOK_S
                most_s = BUSY_S if self._asking else look_at - now  # who is being asked has no turn yet
                await asyncio.sleep(min(max(soon, TURN_S), most_s))

    def _next_due(self, now: float) -> Target | None:
        while self._due and self._due[0][0] <= now and self._asking < AT_ONCE:
            _, turn, target = heappop(self._due)
            if not target.is_gone and turn == target.turn:
                return target
        return None

    def _put(self, target: Target, due_at: float) -> None:
        self._numbers += 1
        target.turn = self._numbers
        heappush(self._due, (due_at, self._numbers, target))

    async def _look(self, every_s: float) -> None:
        """Who there is, by place."""
        slices = Slices(self._clock)
        here: dict[str, list[SourceIndex]] = {}
        given: set[str] = set()
        for key, source in list(self._registry.sources.items()):
            await slices.turn()
            place = None if self._follows(key) else place_of(source.descriptor)
            if place is not None and (place.is_given or self._intervals.loads_s is not None or self._learns):
                here.setdefault(place.address, []).append(source)
                if place.is_given:
                    given.add(place.address)
        for address in [address for address in self._targets if address not in here]:
            target = self._targets.pop(address)
            target.close()
            _remark(target.sources, None)
            _remark(target.sources, None, MODELS_REMARK)
        fresh, now = [address for address in here if address not in self._targets], self._clock.now()
        for nth, address in enumerate(fresh):
            await slices.turn()
            target = self._targets[address] = Target(address)
            target.early_s = nth * every_s / len(fresh)
            self._put(target, now + min(nth / FIRST_A_SECOND, target.early_s))
        for address, sources in here.items():
            await slices.turn()
            target = self._targets[address]
            target.sources, target.is_given = sources, address in given
            if self._learns and not target.is_asked and target.lives is not None and _is_new_there(target):
                target.models_due = now
                self._put(target, now)

    # -- one engine ---------------------------------------------------------------------------------------------------

    async def _ask(self, target: Target, every_s: float) -> None:
        asked_at, target.is_asked = self._clock.now(), True
        dues: list[float] = []
        try:
            if self._intervals.models_s is not None:
                if asked_at >= target.models_due:
                    await self._ask_models(target, self._intervals.models_s)
                dues.append(target.models_due)
            metrics_s = self._intervals.metrics_s
            if metrics_s is not None:
                if asked_at >= target.metrics_due:
                    await self._ask_metrics(target, metrics_s)
                dues.append(target.metrics_due)
        finally:
            self._asking -= 1
            target.is_asked = False
            if target.is_gone:
                target.close()
            else:
                self._put(target, max(min(dues, default=asked_at + every_s), self._clock.now()))

    async def _ask_metrics(self, target: Target, every_s: float) -> None:
        asked_at = self._clock.now()
        try:
            async with asyncio.timeout(PATIENCE_S):
                content = await self._content(target, PATHS[target.path])
            await self._take(target, content, asked_at)
        except Exception as error:  # noqa: BLE001  of whatever an engine is at, the asking of others must go on
            if not target.is_gone:
                self._failed(target, error, asked_at)
        rest_s = min(every_s * 2.0 ** min(target.failures, 16), max(every_s, REST_MAX_S)) - target.early_s
        target.early_s = 0.0
        target.metrics_due = asked_at + rest_s

    async def _ask_models(self, target: Target, every_s: float) -> None:
        sources = list(target.sources)
        lives, asked_at = _lives(sources), self._clock.now()
        try:
            async with asyncio.timeout(PATIENCE_S):
                content = await self._content(target, MODELS_PATH)
            is_long = len(content) > AT_HOME_BYTES
            served = await asyncio.to_thread(read_models, content) if is_long else read_models(content)
        except Exception as error:  # noqa: BLE001  as for metrics
            if not target.is_gone:
                if isinstance(error, TooLong):
                    self._limit_reached(LIMIT)
                why = str(error) if isinstance(error, Unusable | NoList) else _in_words(error)
                _remark(
                    sources,
                    f"its models at {target.address} could not be read ({why}): names are not learnt",
                    MODELS_REMARK,
                )
                target.models_failures += 1
            target.models_due = asked_at + min(MODELS_REST_S * 2.0 ** min(target.models_failures, 16), every_s)
        else:
            for source, lived in zip(sources, lives, strict=True):
                if source.lives == lived and not target.is_gone:  # else another process said so, maybe
                    self._registry.learn(source, served)
            _remark(sources, None, MODELS_REMARK)
            target.models_failures = 0
            target.models_due = asked_at + every_s
        target.lives = lives

    async def _content(self, target: Target, path: str) -> bytes:
        """Over the connection that there is; where it ended meanwhile, over another."""
        kept = target.connection
        if kept is not None and kept.is_open:
            try:
                return await kept.get(path)
            except OSError:
                if target.is_gone:
                    raise
        target.connection = await connect(target.address, ANSWER_BYTES_MAX)
        return await target.connection.get(path)

    async def _take(self, target: Target, content: bytes, asked_at: float) -> None:
        sources, facts_s = target.sources, self._intervals.facts_s
        if target.is_gone:
            return
        if self._intervals.loads_s is not None:
            ranks = (
                await asyncio.to_thread(read_loads, content) if len(content) > AT_HOME_BYTES else read_loads(content)
            )
            self._take_loads(target, ranks, asked_at)
            if not ranks and content.startswith(b"["):  # TensorRT-LLM's own statistics
                self._other_path(target)
        else:
            self.results["ok"] += 1
        target.failures = 0
        if facts_s is not None and target.is_given and asked_at - target.facts_at >= facts_s:
            target.facts_at = asked_at
            await take_facts(sources, content)

    def _take_loads(self, target: Target, ranks: Ranks, asked_at: float) -> None:
        told = [(source, ranks.of(source.descriptor.dp_rank)) for source in target.sources]
        for source, load in told:
            if load is not None:
                self._board.read(source.descriptor.id, load, asked_at)
        if any(load is not None for _, load in told):
            self.results["ok"] += 1
            target.silent_since = None
            _remark(target.sources, None)
        else:
            self.results["no_load"] += 1
            self._silent(target, f"its metrics at {target.address} tell no load")

    def _failed(self, target: Target, error: Exception, asked_at: float) -> None:
        if isinstance(error, TooLong):
            self._limit_reached(LIMIT)
        why = str(error) if isinstance(error, Unusable) else _in_words(error)
        self.results["failed"] += 1
        target.failures += 1
        if isinstance(error, Unusable):
            self._other_path(target)
        if self._intervals.facts_s is not None and target.is_given:
            target.facts_at = asked_at
            note_unread(target.sources, target.address, why)
        else:
            self._silent(target, f"its metrics at {target.address} could not be read: {why}")

    def _other_path(self, target: Target) -> None:
        """Where they may be instead, from now on."""
        target.path = (target.path + 1) % len(PATHS)

    def _silent(self, target: Target, text: str) -> None:
        now = self._clock.now()
        target.silent_since = now if target.silent_since is None else target.silent_since
        if target.is_given and self._intervals.loads_s is not None and now - target.silent_since >= REMARK_AFTER_S:
            _remark(target.sources, f"{text}: recommendations do not know how busy it is")


def _remark(sources: list[SourceIndex], text: str | None, key: str = REMARK) -> None:
    for source in sources:
        if text is None:
            source.warnings.pop(key, None)
        else:
            source.warnings[key] = text


def _is_new_there(target: Target) -> bool:
    """Whether another process lives there, or another source is, than when its models were asked for."""
    unknown = any(source.serves is None for source in target.sources)
    return target.lives != _lives(target.sources) or (unknown and not target.models_failures)


def _lives(sources: list[SourceIndex]) -> list[int]:
    return [source.lives for source in sources]


def _in_words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "the connection ended, or it speaks no HTTP"
    return why_not_connected(error) if isinstance(error, OSError | UnicodeError) else "a fault of this service"
