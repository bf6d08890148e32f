"""[I/O] The engine's own `/tokenize`: for models of which no tokenizer is at hand here.

Asks only addresses of registered sources, or the one URL that the operator wrote down; follows no redirect and no proxy
of the environment. At most two engines are tried; one that failed several times in a row is let be for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from indexer.errors import BadRequestError, FieldIssue
from indexer.http_clients import TooLong, body_of, client, failures, load, why_not_reached
from indexer.ports import Clock
from indexer.texts.health import Health
from indexer.texts.local import TextLimits, image_of, too_many_tokens
from schemas.lookup import TextPrompt

if TYPE_CHECKING:
    import httpx

TRIES: Final = 2
CONNECTIONS_MAX: Final = 64
"""To all engines together; who finds none waits, within its deadline."""
DIGITS_BYTES: Final = 14
"""Of one token id in an answer, with what stands between two."""
ANSWER_SPARE_BYTES: Final = 64 * 1024
FAILURES_MAX: Final = 3
"""In a row; then the engine rests."""
REST_S: Final = 1.0
REST_MAX_S: Final = 30.0
SHARE: Final = 0.5
"""Of the time left, for the first of two engines."""
_REFUSALS: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})


class EnginesFailed(Exception):
    """No engine gave the tokens."""


class EnginesLate(EnginesFailed):
    """None gave them in time: who has time left may ask again."""


class Patience:
    """Until when a question is waited for. Grows while it is asked: others may come who wait for the same answer."""

    def __init__(self, clock: Clock, until: float) -> None:
        self._clock = clock
        self._last: asyncio.Timeout | None = None
        self._late = False
        self.until = until

    def left_s(self) -> float:
        """From now on."""
        return self.until - self._clock.now()

    @property
    def over(self) -> bool:
        """Whether it is too late to extend it."""
        return self._late or self.left_s() <= 0 or (self._last is not None and self._last.expired())

    def extend(self, until: float) -> None:
        """Wait until then, if that is later and not too late."""
        self.until = max(self.until, until)
        if self._last is not None and not self._last.expired():
            self._last.reschedule(asyncio.get_running_loop().time() + self.left_s())

    @contextlib.asynccontextmanager
    async def last(self) -> AsyncIterator[None]:
        """Ask for all the time that is left and that is added. Raises `TimeoutError`."""
        async with asyncio.timeout(self.left_s()) as timeout:
            self._last = timeout
            try:
                yield
            finally:
                self._late, self._last = timeout.expired(), None

    @contextlib.asynccontextmanager
    async def part(self) -> AsyncIterator[None]:
        """Ask for a part of what is left, whatever is added: another engine has the rest. Raises `TimeoutError`."""
        async with asyncio.timeout(SHARE * self.left_s()):
            yield


class _Answer(msgspec.Struct):
    tokens: list[Annotated[int, msgspec.Meta(ge=0, lt=2**32)]]


_decode: Final = msgspec.json.Decoder(_Answer).decode
_encode: Final = msgspec.json.Encoder().encode


class EngineTokenizer:
    """The engines of one model; `url` where the operator names one for all."""

    source: Literal["engine"] = "engine"

    def __init__(self, url: str | None = None) -> None:
        load()
        self.url = url


class _Rest:
    """One engine's failures in a row, and until when it is let be."""

    def __init__(self) -> None:
        self.failures = 0
        self.until = 0.0


class Engines:
    """Asks them. Lives on one event loop; `close` ends its connections."""

    def __init__(self, clock: Clock, health: Health) -> None:
        self._clock = clock
        self._health = health
        self._client: httpx.AsyncClient | None = None
        self._rests: dict[str, _Rest] = {}
        self._turn = 0

    async def tokens(
        self, urls: Sequence[str], model: str | None, text: TextPrompt, limits: TextLimits, patience: Patience
    ) -> bytes:
        """The little-endian u32 image, from the first of `urls` that gives it. Raises `EnginesFailed`, `EnginesLate`.

        Raises `BadRequestError` where an engine refuses the text itself.
        """
        chosen = self._chosen(urls)
        body = _encode(_question(model, text))
        for index, url in enumerate(chosen):
            if patience.over:
                break
            turn = patience.part() if index + 1 < len(chosen) else patience.last()
            answer = await self._ask(url, body, limits, turn)
            if answer is not None:
                return _image(answer, text, limits)
        raise EnginesLate if patience.over else EnginesFailed

    def prepare(self) -> httpx.AsyncClient:
        """Make ready to ask, which reads certificates: some 20 ms that no question should wait for."""
        self._client = client(None, CONNECTIONS_MAX, CONNECTIONS_MAX)  # each question has its own patience
        return self._client

    async def close(self) -> None:
        """End all connections."""
        http, self._client = self._client, None
        if http is not None:
            await http.aclose()

    def _chosen(self, urls: Sequence[str]) -> list[str]:
        """Up to two that may be asked now, another first each time."""
        for gone in self._rests.keys() - set(urls) if len(self._rests) > CONNECTIONS_MAX else ():
            del self._rests[gone]
        now = self._clock.now()
        able = [url for url in urls if url not in self._rests or self._rests[url].until <= now]
        self._turn += 1
        first = self._turn % max(1, len(able))
        return (able[first:] + able[:first])[:TRIES]

    async def _ask(
        self, url: str, body: bytes, limits: TextLimits, turn: AbstractAsyncContextManager[None]
    ) -> _Answer | None:
        """One engine's answer; None where it failed, which is noted. Raises `BadRequestError` for its refusal."""
        rest = self._rests.setdefault(url, _Rest())
        try:
            async with turn:
                status, content = await self._exchange(f"{url}/tokenize", body, limits)
            answer = None if status in _REFUSALS else _read(status, content)
        except failures() as error:
            self._failed(url, rest, why_not_reached(error))
            return None
        except TooLong:
            self._failed(url, rest, "an answer longer than the tokens of a text can be")
            return None
        except _Unusable as error:
            self._failed(url, rest, str(error))
            return None
        rest.failures = 0
        self._health.worked(url)
        if answer is None:
            raise _refused()
        return answer

    async def _exchange(self, url: str, body: bytes, limits: TextLimits) -> tuple[int, bytes]:
        http = self._client or self.prepare()
        bytes_max = limits.tokens * DIGITS_BYTES + ANSWER_SPARE_BYTES
        headers = {"content-type": "application/json"}
        async with http.stream("POST", url, content=body, headers=headers) as response:
            return response.status_code, await body_of(response, bytes_max)

    def _failed(self, url: str, rest: _Rest, cause: str) -> None:
        self._health.failed(url, cause)
        rest.failures += 1
        beyond = rest.failures - FAILURES_MAX
        if beyond >= 0:
            rest.until = self._clock.now() + min(REST_S * 2**beyond, REST_MAX_S)


class _Unusable(Exception):
    """An answer that tells no tokens; says why, without a word of it."""


def _read(status: int, content: bytes) -> _Answer:
    if status != HTTPStatus.OK:
        raise _Unusable(f"status {status}")
    try:
        return _decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _Unusable("an answer that is no list of tokens") from None


def _question(model: str | None, text: TextPrompt) -> dict[str, object]:
    """As vLLM takes it; what it does not name in a request to tokenize goes to the template by name."""
    question: dict[str, object] = {} if model is None else {"model": model}
    if text.prompt is not None:
        question["prompt"] = text.prompt
        question["add_special_tokens"] = True if text.add_special_tokens is None else text.add_special_tokens
        return question
    args = dict(text.template_args)
    goes_on = bool(args.pop("continue_final_message", False))
    question["messages"] = text.messages
    question["add_generation_prompt"] = args.pop("add_generation_prompt", not goes_on)
    question["continue_final_message"] = goes_on
    question["add_special_tokens"] = bool(text.add_special_tokens)
    if text.tools is not None:
        question["tools"] = text.tools
    if args:
        question["chat_template_kwargs"] = args
    return question


def _image(answer: _Answer, text: TextPrompt, limits: TextLimits) -> bytes:
    if len(answer.tokens) > limits.tokens:
        raise too_many_tokens(text, limits.tokens)
    return image_of(answer.tokens)


def _refused() -> BadRequestError:
    rule = "a text that the engine's own tokenizer takes"
    return BadRequestError("prompt.refused", [FieldIssue("prompt", rule, hint="the engine refuses it, too")])
