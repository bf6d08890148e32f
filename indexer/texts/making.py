"""Cache, single flight, limits and deadline around the making of tokens.

A text is digested, salted, and looked up; equal texts that arrive meanwhile wait for the same work, each until its own
deadline, and the work goes on as long as one of them waits. Who has waited until its deadline leaves without tokens;
work that has begun fills the cache all the same. Every limit refuses or drops by its name: `limits.text_bytes` (422),
`limits.texts_waiting` (429), `limits.text_cache_bytes` (the least lately used goes).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

import msgspec
from cachetools import LRUCache
from xxhash import xxh3_128_digest

from indexer.errors import BadRequestError, FieldIssue, LimitReachedError
from indexer.ports import Clock
from indexer.texts.choice import Chosen
from indexer.texts.engines import Engines, EnginesFailed, EnginesLate, Patience
from indexer.texts.health import Health
from indexer.texts.late import OutOfTime
from indexer.texts.local import LocalTokenizer, TextLimits
from schemas.lookup import TextPrompt

WAITING_BYTES_MAX: Final = 64 * 2**20
"""Of all texts that are being tokenized or wait for it. Beyond: 429, counted as `texts.waiting_bytes`."""
ENTRY_BYTES: Final = 256
"""What a cache entry takes beside its tokens."""
ENGINE_S: Final = 1.0
"""An engine has at least so long, however soon its caller leaves: a caller's haste must not count as its failure."""
JOINED: Final = 2
"""Times what one caller waits at most, an engine is waited for where others join: else one that hangs would never be
found out as long as somebody comes. Who then has time left asks anew."""
MINUTE_US: Final = 60_000_000
"""A template that tells the time is believed to tell no more than the minute."""
_LIMITS: Final = {"too_many_tokens": "limits.tokens", "too_long": "limits.text_bytes"}
"""By the end of an error's code: the limit that was reached while tokens were made."""
_U64_MASK: Final = 2**64 - 1
_pack: Final = msgspec.msgpack.Encoder().encode


class TextOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The limits (settings `limits.*`)."""

    bytes_max: int
    tokens_max: int
    waiting_max: int
    threads: int
    cache_bytes: int
    asks_engines: bool = False
    """Whether any model's text goes to its engines."""


class Counts(Protocol):
    """What is told of each text (telemetry)."""

    def came(self, source: str, result: str) -> None:
        """One text: who was to read it, and what came of that."""
        ...

    def took(self, source: str, seconds: float) -> None:
        """So long it took to make the tokens of one, the wait for a thread or a connection included."""
        ...

    def limit(self, name: str) -> None:
        """A limit was reached."""
        ...


class Made(NamedTuple):
    """The little-endian u32 image, and whether the text was known."""

    image: bytes
    cached: bool


@dataclass(slots=True)
class _Flight:
    """One text on its way. `longest_s`: what the most patient of those who wait for it gave it when it came."""

    future: asyncio.Future[bytes]
    patience: Patience
    size: int
    started: float
    longest_s: float
    source: str

    @property
    def late(self) -> bool:
        """Whether it ended for want of time: to one who has time left that is no outcome."""
        future = self.future
        return future.done() and not future.cancelled() and isinstance(future.exception(), OutOfTime | EnginesLate)

    @property
    def lost(self) -> bool:
        """Whether who comes now must not wait for it: it has failed, or is about to."""
        if self.future.done():
            return self.future.cancelled() or self.future.exception() is not None
        return self.source == "engine" and self.patience.over

    def join(self, now: float, until: float) -> None:
        """One more waits for it."""
        self.longest_s = max(self.longest_s, until - now)
        bound = until if self.source == "file" else self.started + JOINED * self.longest_s
        self.patience.extend(min(until, bound))


class _Known(LRUCache[bytes, bytes]):
    """Tokens by their text's digest. Full: the least lately used go, counted as `limits.text_cache_bytes`."""

    def __init__(self, bytes_max: int, counts: Counts) -> None:
        super().__init__(bytes_max, getsizeof=_entry_size)
        self._counts = counts

    def popitem(self) -> tuple[bytes, bytes]:
        """Make room."""
        self._counts.limit("limits.text_cache_bytes")
        return super().popitem()


class Making:
    """Makes tokens, for one event loop."""

    def __init__(self, clock: Clock, options: TextOptions, counts: Counts, salt: int, health: Health) -> None:
        self._clock = clock
        self._options = options
        self._limits = TextLimits(options.bytes_max, options.tokens_max)
        self._counts = counts
        self._salt = salt & _U64_MASK
        self._pool = ThreadPoolExecutor(options.threads, thread_name_prefix="tokenizer")
        self._engines = Engines(clock, health)
        self._known = _Known(options.cache_bytes, counts)
        self._flights: dict[bytes, _Flight] = {}
        self._waiting_bytes = 0
        self._group: asyncio.TaskGroup | None = None
        self._over = False
        self._conversations: set[asyncio.Task[None]] = set()

    @property
    def cache_bytes(self) -> int:
        """What known texts' tokens take."""
        return int(self._known.currsize)

    async def run(self, stop: asyncio.Event) -> None:
        """Hold the conversations with engines until `stop` is set: before, none is begun, and afterwards no work."""
        if self._options.asks_engines:
            self._engines.prepare()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                try:
                    await stop.wait()
                finally:
                    self._end()
        finally:
            await self._engines.close()

    def _end(self) -> None:
        """Whoever waits for tokens learns that there are none; a thread at work is not waited for."""
        self._over, self._group = True, None
        for conversation in self._conversations:
            conversation.cancel()
        for flight in list(self._flights.values()):
            flight.patience.until = -math.inf  # a template looks at it
            flight.future.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def forget(self) -> None:
        """Give the cache back."""
        self._known.clear()

    async def make(self, chosen: Chosen, text: TextPrompt, until: float, engines: EngineQuestion) -> Made | None:
        """The text's tokens; None where they are not there in time.

        Raises `BadRequestError` for a text that cannot be read, and `LimitReachedError`.
        """
        packed = self._packed(text)
        key = self._key(chosen, text, packed, engines)
        while True:
            made = self._found(key, chosen)
            if made is not None:
                return made
            flight = self._flights.get(key)
            if flight is not None and flight.lost:
                del self._flights[key]
                flight = None
            if flight is None:
                flight = self._begin(key, chosen, text, len(packed), until, engines)
            else:
                flight.join(self._clock.now(), until)
            if not flight.future.done():
                await asyncio.wait({flight.future}, timeout=max(0.0, until - self._clock.now()))
            if not flight.late or self._clock.now() >= until:
                return self._outcome(flight)

    def known(self, chosen: Chosen, text: TextPrompt, engines: EngineQuestion) -> Made | None:
        """The same of a text that was tokenized before; None of any other. Raises `BadRequestError`."""
        return self._found(self._key(chosen, text, self._packed(text), engines), chosen)

    def _found(self, key: bytes, chosen: Chosen) -> Made | None:
        image = self._known.get(key)
        if image is None:
            return None
        self._counts.came(chosen.maker.source, "cached")
        return Made(image, cached=True)

    def _outcome(self, flight: _Flight) -> Made | None:
        """What has come of a flight."""
        future = flight.future
        if not future.done() or future.cancelled():
            self._counts.came(flight.source, "late")
            return None
        error = future.exception()
        if error is None:
            self._counts.came(flight.source, "made")
            return Made(future.result(), cached=False)
        if isinstance(error, BadRequestError):
            self._counts.came(flight.source, "refused")
            limit = _LIMITS.get(error.code.rpartition(".")[2])
            if limit is not None:
                self._counts.limit(limit)
            raise BadRequestError(error.code, error.issues)
        if isinstance(error, OutOfTime | EnginesFailed):
            self._counts.came(flight.source, "late" if isinstance(error, OutOfTime | EnginesLate) else "failed")
            return None
        raise RuntimeError("a tokenizer failed") from error  # also of what is no Exception: a panic in its library

    def _packed(self, text: TextPrompt) -> bytes:
        """All that decides the tokens, as bytes: what is digested, and what the limits measure."""
        field = "messages" if text.prompt is None else "prompt"
        try:
            packed = _pack(text)
        except (UnicodeEncodeError, TypeError, ValueError, OverflowError, RecursionError):
            issue = FieldIssue(field, "text in Unicode, without lone surrogates, and what JSON can say")
            raise BadRequestError(f"{field}.not_text", [issue]) from None
        if len(packed) > self._options.bytes_max:
            self._counts.limit("limits.text_bytes")
            rule = f"at most {self._options.bytes_max} bytes (limits.text_bytes)"
            raise BadRequestError(f"{field}.too_long", [FieldIssue(field, rule, f"{len(packed)} bytes")])
        return packed

    def _key(self, chosen: Chosen, text: TextPrompt, packed: bytes, engines: EngineQuestion) -> bytes:
        """Salted: nobody can prepare two texts that are taken for one."""
        whose: tuple[str | None, ...] = (
            chosen.name,
            engines.tenant,
        )  # `cached` must not tell of another tenant's texts
        if chosen.maker.source == "engine":
            whose += (engines.model,)
        local = chosen.maker
        if isinstance(local, LocalTokenizer) and local.tells_time(text):
            whose += (str(self._clock.wall_us() // MINUTE_US),)
        return xxh3_128_digest(_pack(whose) + packed, seed=self._salt)

    def _begin(
        self, key: bytes, chosen: Chosen, text: TextPrompt, size: int, until: float, engines: EngineQuestion
    ) -> _Flight:
        self._admit(size)
        loop = asyncio.get_running_loop()
        now = self._clock.now()
        patience = Patience(self._clock, until)
        flight = _Flight(loop.create_future(), patience, size, now, max(until - now, ENGINE_S), chosen.maker.source)
        if self._over:
            flight.future.set_exception(EnginesFailed())
        elif isinstance(chosen.maker, LocalTokenizer):
            work = partial(chosen.maker.tokens, text, self._limits, lambda: self._clock.now() > patience.until)
            flight.future = loop.run_in_executor(self._pool, work)
        elif self._group is None:
            flight.future.set_exception(EnginesFailed())
        else:
            urls = [chosen.maker.url] if chosen.maker.url is not None else engines.urls()
            patience.extend(now + ENGINE_S)
            asking = partial(self._engines.tokens, urls, engines.model, text, self._limits, patience)
            conversation = self._group.create_task(_settle(flight.future, asking), name="engine-tokenize")
            self._conversations.add(conversation)
            conversation.add_done_callback(self._conversations.discard)
        self._flights[key] = flight
        self._waiting_bytes += size
        flight.future.add_done_callback(lambda _: self._keep(key, flight))
        return flight

    def _admit(self, size: int) -> None:
        if len(self._flights) >= self._options.waiting_max:
            self._counts.limit("limits.texts_waiting")
            raise LimitReachedError("limits.texts_waiting", self._options.waiting_max, 1.0, code="texts.too_many")
        if self._waiting_bytes + size > WAITING_BYTES_MAX:
            self._counts.limit("texts.waiting_bytes")
            raise LimitReachedError("texts.waiting_bytes", WAITING_BYTES_MAX, 1.0, code="texts.too_many")

    def _keep(self, key: bytes, flight: _Flight) -> None:
        """A flight is over: what it made is known from now on."""
        if self._flights.get(key) is flight:
            del self._flights[key]
        self._waiting_bytes -= flight.size
        future = flight.future
        if future.cancelled() or future.exception() is not None:
            return
        self._counts.took(flight.source, self._clock.now() - flight.started)
        image = future.result()
        if _entry_size(image) <= self._options.cache_bytes:
            self._known[key] = image


class EngineQuestion(Protocol):
    """What is asked of engines, if they are to be asked."""

    model: str | None
    tenant: str

    def urls(self) -> Sequence[str]:
        """Where the model's engines are, the best first."""
        ...


async def _settle(future: asyncio.Future[bytes], work: Callable[[], Coroutine[None, None, bytes]]) -> None:
    """The work's outcome is the future's, unless that has one. A task of a group must not fail: it would end others."""
    try:
        image = await work()
    except asyncio.CancelledError:
        future.cancel()
        raise
    except Exception as error:  # noqa: BLE001 - handed on to whoever waits
        if not future.done():
            future.set_exception(error)
    else:
        if not future.done():
            future.set_result(image)


def _entry_size(image: bytes) -> int:
    return len(image) + ENTRY_BYTES
