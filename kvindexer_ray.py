"""A request router for Ray Serve in one file: copy it beside your code. It needs `ray[serve]`, nothing else.

Replicas are tried in the order in which kvindexer would: by how much of the prompt they hold, and by their load.

    @serve.deployment(
        request_router_config=RequestRouterConfig(
            request_router_class="kvindexer_ray:KvindexerRouter",
            request_router_kwargs={"url": "http://127.0.0.1:8080", "model": "llama"},
        ),
    )

The file must be importable wherever a handle or a proxy of Serve runs, for there the router lives. What it asks of is
the request itself: an OpenAI request (`messages`, or `prompt`), or `token_ids`, as a dict, an object or arguments by
these names; of any other it asks nothing. Override `question` where yours look different.

A replica's name at the index is what it says in `record_routing_stats` under `kvindexer_pod`, else its replica id
(`serve.get_replica_context().replica_id.unique_id`), which the index knows as the name of a source, or as an alias.

Nothing ever fails or waits because of the index. An answer has to come within `timeout_s`, of everything from
connecting to its last byte. Without one Serve chooses among all replicas, by their queues. After three failures in a
row nobody asks for half a second, then one request tries; a dead index costs nothing. Of a request that waits because
replicas are full the answer is kept. Where a request was sent is told the index afterwards, behind the request's back.
"""

from __future__ import annotations

import array
import asyncio
import collections
import contextlib
import json
import logging
import random
import ssl
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple
from urllib.parse import urlencode, urlsplit

try:
    from ray.serve.request_router import RequestRouter
except ImportError:  # all but Serve's own part works without
    RequestRouter = object

__all__ = ["Index", "KvindexerRouter", "Ranked", "question_of"]

__version__ = "0.7.0"
"""Of kvindexer as a whole: a copy of this file tells by it where it came from."""

TIMEOUT_S = 0.005
"""For an answer, unless `timeout_s` says otherwise. Prompts as text may need more: the service makes their tokens."""
FOR_THE_WAY = 0.1
"""Part of it that is kept for the way there and back: the service is told the rest."""
CONNECT_S = 1.0
"""A connection may take longer than an answer: it goes on behind the request that wanted it, for the next one."""
TELL_S = 1.0
"""For a report of where requests were sent. Nobody waits for it."""
CONNECTIONS_MAX = 64
"""Serve chooses for 50 requests at once at most. With more of them a request goes without an answer."""
IDLE_S = 30.0
"""Unused connections are closed before the service closes them, which it does after 75 s."""
URL_MAX = 4_096
"""Bytes of options behind a URL; with more of them the question goes as JSON."""
BODY_BYTES_MAX = 4 * 1024 * 1024
"""Of a longer prompt nothing is asked."""
ANSWER_BYTES_MAX = 4 * 1024 * 1024
REPORTS_MAX = 1_000
"""Reports that wait to be sent, and how many go at once; of more the newest are dropped, and counted."""
KEPT_S = 1.0
"""How long an answer is used for a request that waits for a replica; then it is asked anew."""
RANKS_MAX = 4
"""Replicas that are tried before all of them at once: Serve asks each that seems full for its queue."""
REST_AFTER = 3
REST_S = 0.5
REST_MAX_S = 5.0
"""After so many failures in a row the index is left alone: so long at first, twice as long after each trial that
fails, so long at most."""
SAID_AGAIN_S = 60.0
"""The log says the same no more often."""
POD_KEY = "kvindexer_pod"

_LOG = logging.getLogger("ray.serve")
_BESIDE = ("model", "cache_salt")
_BESIDE_TEXT = (
    *_BESIDE,
    "tools",
    "documents",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
)
"""Fields of a request that stand beside its prompt and say what tokens it comes to, or whose blocks are its own."""
_ASKED_ALWAYS = {"group": "pod", "limit": RANKS_MAX}
_JSON = "application/json"


# --- what is asked ---------------------------------------------------------------------------------------------------


def question_of(args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, Any] | None:
    """What a call asks an engine for, in the fields of a lookup; None where it holds no prompt, or several."""
    for holder in (kwargs, *args):
        prompt = _prompt(holder)
        if prompt is not None:
            beside = ((name, _read(holder, name)) for name in (_BESIDE if "token_ids" in prompt else _BESIDE_TEXT))
            return {**prompt, **{name: value for name, value in beside if value is not None}}
    return None


def _prompt(holder: object) -> dict[str, object] | None:
    for name in ("token_ids", "prompt_token_ids"):
        ids = _read(holder, name)
        if ids is not None:
            return {"token_ids": ids}
    messages = _read(holder, "messages")
    if messages:
        return {"messages": messages}
    prompt = _read(holder, "prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        (prompt,) = prompt
    if isinstance(prompt, str) and prompt:
        return {"prompt": prompt}
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], int):
        return {"token_ids": prompt}
    return None


def _read(holder: object, name: str) -> Any:  # noqa: ANN401  # whatever a request holds
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


def _plain(value: Any) -> object:  # noqa: ANN401
    """What json does not know but a request may hold: models of its fields, arrays of token ids.

    Nothing is iterated that could be read only once: the engine has to find it as it came.
    """
    for name in ("model_dump", "tolist"):
        if hasattr(value, name):
            return getattr(value, name)()
    raise TypeError(f"no JSON of {type(value).__name__}")


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_plain).encode()


class _Asked(NamedTuple):
    """What is sent. `salt`: of a prompt whose ids are all of the body; it is never in a URL, which is logged."""

    path: str
    body: bytes
    content_type: str = _JSON
    salt: str = ""


def _asked(path: str, question: Mapping[str, Any]) -> _Asked:
    """In the cheapest form: token ids as bare bytes, and the rest behind the URL; else all as JSON.

    Raises `_Failed` for what has no such form. Its text says nothing of what was asked.
    """
    try:
        if "token_ids" not in question:
            return _Asked(path, _json(question))
        beside = {name: value for name, value in question.items() if value is not None}
        image, salt = _image(beside.pop("token_ids")), str(beside.pop("cache_salt", ""))
        query = urlencode([(name, _text(each)) for name, value in beside.items() for each in _each(value)])
        if len(query) <= URL_MAX and salt.isascii() and salt.isprintable() and " " not in salt:
            return _Asked(f"{path}?{query}" if query else path, image, "application/octet-stream", salt)
        return _Asked(path, _json({**question, "token_ids": memoryview(image).cast("I").tolist()}))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _Failed(f"no form for a request: {type(error).__name__}", "nobody") from None


def _each(value: object) -> Iterable[object]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _text(value: object) -> str:
    return value if isinstance(value, str) else _json(value).decode()


def _image(ids: Any) -> bytes:  # noqa: ANN401
    """Little-endian u32."""
    image = array.array("I", ids.tolist() if hasattr(ids, "tolist") else ids)
    if sys.byteorder == "big":
        image.byteswap()
    return image.tobytes()


# --- what is answered ------------------------------------------------------------------------------------------------


class Ranked(NamedTuple):
    """Names, the best first; none where the index had no say.

    `request_id`: of the answer, under which it is told where the request went.
    """

    names: list[str]
    request_id: str | None = None


NOTHING = Ranked([])


class _Failed(Exception):
    """No answer: because of the index, so that the next question will fare the same, or of the question, or unasked."""

    def __init__(
        self, reason: str, because_of: Literal["index", "question", "nobody"] = "index", retry_after_s: float = 0.0
    ) -> None:
        super().__init__(reason)
        self.because_of = because_of
        self.retry_after_s = retry_after_s


_NO_HTTP = "what answers there speaks no HTTP"
_NOT_OURS = "the answer is none of this question: is this kvindexer?"


def _ranked(raw: Any) -> tuple[Ranked, bool]:  # noqa: ANN401  # checked here
    """The order that an answer gives, and whether it rests on anything."""
    if not isinstance(raw, dict) or not isinstance(raw.get("picks"), list) or not isinstance(raw.get("state"), str):
        raise _Failed(_NOT_OURS)
    names: list[Any] = [pick.get("pod") if isinstance(pick, dict) else None for pick in raw["picks"]]
    request_id = raw.get("request_id")
    if not all(isinstance(name, str) for name in names) or not isinstance(request_id, str):
        raise _Failed(_NOT_OURS)
    known = raw["state"] != "no_signal"
    return Ranked(list(dict.fromkeys(names)) if known else [], request_id), known


# --- when to leave the index alone -----------------------------------------------------------------------------------


class Breaker:
    """Lets an index rest that does not answer. After a rest one request is a trial, and the others go on without.

    A little chance keeps many routers from trying at the same moment.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds that only grow."""
        self._clock = clock
        self._failures = 0
        self._rest_s = REST_S
        self._rests_since = float("-inf")
        self._rests_until = float("-inf")

    def rests(self) -> bool:
        """Whether nobody should ask now."""
        return self._clock() < self._rests_until

    def ask(self) -> float | None:
        """When this was asked, which goes into `failed`; None: rest. After a rest it is yes for one only."""
        now = self._clock()
        if now < self._rests_until:
            return None
        if self._failures >= REST_AFTER:
            self._rests_until = now + self._rest_s
        return now

    def succeeded(self) -> bool:
        """It answers. Whether it had been left alone."""
        rested = self._failures >= REST_AFTER
        self._failures, self._rest_s, self._rests_until = 0, REST_S, float("-inf")
        return rested

    def failed(self, asked_at: float, retry_after_s: float = 0.0) -> bool:
        """It did not answer what was asked then. Whether a rest begins: what was under way before one says nothing."""
        if asked_at < self._rests_since:
            return False
        self._failures += 1
        if self._failures < REST_AFTER and not retry_after_s:
            return False
        self._failures = max(self._failures, REST_AFTER)
        now = self._clock()
        rest_s = max(self._rest_s, min(retry_after_s, REST_MAX_S))
        self._rests_since, self._rests_until = now, now + rest_s * random.uniform(0.8, 1.2)  # noqa: S311  # no secret
        self._rest_s = min(2 * self._rest_s, REST_MAX_S)
        return True


# --- the way there ---------------------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """Where the service is, as a URL says it."""

    host: str
    port: int
    secure: bool
    uds: str | None
    authority: str
    prefix: str


def _place(url: str) -> _Place:
    """Raises ValueError."""
    if url.startswith("unix:"):
        path = url[5:].removeprefix("//")
        if not path.startswith("/"):
            raise ValueError("unix:/PATH wanted")
        return _Place("", 0, secure=False, uds=path, authority="localhost", prefix="")
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
        raise ValueError("http://HOST:PORT, https://HOST:PORT or unix:/PATH wanted")
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    return _Place(parts.hostname, port, secure, None, parts.netloc, parts.path.rstrip("/"))


class _Link:
    """A connection, for one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.is_fresh = True
        """Nothing was sent over it yet."""
        self.is_whole = True
        """What was sent has been answered, and more may be sent."""
        self.idle_since = 0.0

    def is_usable(self) -> bool:
        return self.is_whole and not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        """At once, without the goodbye of TLS, which could take as long as the other side likes."""
        self._writer.transport.abort()

    async def exchange(self, request: bytes) -> tuple[int, Mapping[str, str], bytes]:
        """Status, header fields and content of the answer."""
        self.is_whole = False
        self._writer.write(request)
        await self._writer.drain()
        head = await self._reader.readuntil(b"\r\n\r\n")
        self.is_fresh = False
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1."):
            raise _Failed(_NO_HTTP)
        status = _length(rest[:3], 10)
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        content = await self._content(fields)
        self.is_whole = version == "HTTP/1.1" and fields.get("connection", "").lower() != "close"
        return status, fields, content

    async def _content(self, fields: Mapping[str, str]) -> bytes:
        if fields.get("transfer-encoding", "").lower() == "chunked":
            return await self._chunks()
        return await self._reader.readexactly(_length(fields.get("content-length", "0"), 10))

    async def _chunks(self) -> bytes:
        parts, size = [], 0
        while length := _length((await self._reader.readuntil(b"\r\n")).partition(b";")[0].decode("latin-1"), 16):
            size += length
            _length(str(size), 10)
            parts.append(await self._reader.readexactly(length))
            await self._reader.readexactly(2)
        while await self._reader.readuntil(b"\r\n") != b"\r\n":
            size += 1
            _length(str(size), 10)
        return b"".join(parts)


def _length(text: str, base: int) -> int:
    try:
        length = int(text, base)
    except ValueError:
        raise _Failed(_NO_HTTP) from None
    if not 0 <= length <= ANSWER_BYTES_MAX:
        raise _Failed("an answer that is too long: is this kvindexer?")
    return length


_CUT = (asyncio.IncompleteReadError, OSError)
_LATE = (asyncio.TimeoutError, TimeoutError)  # two classes before Python 3.11


class _Links:
    """Connections, kept and bounded, of one event loop."""

    def __init__(self, place: _Place, tls: ssl.SSLContext | None) -> None:
        self._place = place
        self._tls = tls
        self._idle: collections.deque[_Link] = collections.deque()
        self._count = 0
        self._opening: set[asyncio.Task[_Link]] = set()
        self._sweeps = False

    async def take(self) -> _Link:
        """One that is free, or a new one. Raises `_Failed`."""
        while self._idle:
            link = self._idle.pop()
            if link.is_usable():
                return link
            self._drop(link)
        if self._count >= CONNECTIONS_MAX:
            raise _Failed(f"more than {CONNECTIONS_MAX} requests at once", "nobody")
        opening = self._open()
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(self._keep)
            raise

    def give_back(self, link: _Link) -> None:
        """After use, whatever became of it."""
        if not link.is_usable():
            self._drop(link)
            return
        loop = asyncio.get_running_loop()
        link.idle_since = loop.time()
        self._idle.append(link)
        if not self._sweeps:
            self._sweeps = True
            loop.call_later(IDLE_S, self._sweep)

    def warm_up(self) -> None:
        """Have a connection ready, so that the first request needs none."""
        if not self._count:
            self._open().add_done_callback(self._keep)

    def _open(self) -> asyncio.Task[_Link]:
        self._count += 1
        opening = asyncio.get_running_loop().create_task(self._opened())
        self._opening.add(opening)
        opening.add_done_callback(self._is_opened)
        return opening

    async def _opened(self) -> _Link:
        place = self._place
        if place.uds is not None:
            way = asyncio.open_unix_connection(place.uds)
        else:
            way = asyncio.open_connection(place.host, place.port, ssl=self._tls)
        try:
            return _Link(*await asyncio.wait_for(way, CONNECT_S))
        except _LATE:
            raise _Failed("nobody answers") from None
        except (OSError, UnicodeError) as error:
            raise _Failed(f"it cannot be reached: {type(error).__name__}") from None

    def _is_opened(self, opening: asyncio.Task[_Link]) -> None:
        self._opening.discard(opening)
        if opening.cancelled() or opening.exception() is not None:
            self._count -= 1

    def _keep(self, opening: asyncio.Task[_Link]) -> None:
        """The connection that nobody waits for any more, for the next one."""
        if not opening.cancelled() and opening.exception() is None:
            self.give_back(opening.result())

    def _drop(self, link: _Link) -> None:
        self._count -= 1
        link.close()

    async def close(self) -> None:
        """All that nobody uses now, and those that are being opened."""
        while self._idle:
            self._drop(self._idle.popleft())
        for opening in self._opening:
            opening.cancel()
        if self._opening:
            await asyncio.wait(self._opening)
        for _ in range(3):  # of TLS the connection ends a step after its user's
            await asyncio.sleep(0)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeps = False
        while self._idle and self._idle[0].idle_since <= loop.time() - IDLE_S:
            self._drop(self._idle.popleft())
        if self._idle:
            self._sweeps = True
            loop.call_later(IDLE_S, self._sweep)


# --- the index -------------------------------------------------------------------------------------------------------


class Index:
    """Asks one service, in one event loop. There is no Ray in it.

    Args:
        url: `http://HOST:PORT`, `https://HOST:PORT`, or `unix:/PATH` of the service's socket.
        token: bearer token.
        ca: file of the certificates to trust.
        timeout_s: for an answer, connecting included.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        ca: str | None = None,
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is sent yet. Raises ValueError for what is no such URL or token, OSError for a file."""
        if token is not None and not (token.isascii() and token.isprintable() and token):
            raise ValueError("a token is printable ASCII")
        self._url = url
        self._place = _place(url)
        self._links = _Links(self._place, ssl.create_default_context(cafile=ca) if self._place.secure else None)
        self._authorization = "" if token is None else f"authorization: Bearer {token}\r\n"
        self._timeout_s = timeout_s
        self._clock = clock
        self._said: dict[str, float] = {}
        self._reports: collections.deque[dict[str, Any]] = collections.deque()
        self._telling: asyncio.Task[None] | None = None
        self.breaker = Breaker(clock)
        self.counts: collections.Counter[str] = collections.Counter()
        """What came of questions and reports: ranked, unknown, late, failed, rested, …"""

    async def aclose(self) -> None:
        """Close all connections. Serve has no hook for this: left alone, they are closed within a minute."""
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.wait([self._telling])
        await self._links.close()

    def warm_up(self) -> None:
        """Connect, so that the first question finds a connection."""
        if not self.breaker.rests():
            self._links.warm_up()

    async def ranked(self, question: Mapping[str, Any]) -> Ranked:
        """The order that it gives. Never raises, and never takes longer than the deadline."""
        asked_at = self.breaker.ask()
        if asked_at is None:
            self.counts["rested"] += 1
            return NOTHING
        try:
            ranked, known = _ranked(await self._answer(_asked("/v1/recommend", question), self._timeout_s))
        except _LATE:
            self._failed(asked_at, _Failed("no answer in time"), "late")
        except _Failed as failed:
            self._failed(asked_at, failed, "failed")
        else:
            self._succeeded()
            self.counts["ranked" if known else "unknown"] += 1
            if not known:
                self.say(f"kvindexer at {self._url} knows nothing of these replicas: are names and model right?")
            return ranked
        return NOTHING

    def tell(self, report: dict[str, Any]) -> None:
        """Where a request was sent. Returns at once; dropped where too many wait, or the index rests."""
        if self.breaker.rests() or len(self._reports) >= REPORTS_MAX:
            self.counts["reports_dropped"] += 1
            return
        self._reports.append(report)
        if self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        try:
            while self._reports:
                reports = list(self._reports)
                self._reports.clear()
                try:
                    await self._answer(_Asked("/v1/routed", _json(reports)), TELL_S)
                    self.counts["reports_sent"] += len(reports)
                except (*_LATE, _Failed) as error:
                    self.counts["reports_lost"] += len(reports)
                    why = str(error) or "no answer in time"
                    self.say(f"kvindexer at {self._url} did not take where requests were sent: {why}")
        finally:
            self._telling = None

    def _succeeded(self) -> None:
        if self.breaker.succeeded():
            _LOG.info("kvindexer at %s answers again", self._url)

    def _failed(self, asked_at: float, failed: _Failed, kind: str) -> None:
        self.counts[kind] += 1
        if failed.because_of != "index":
            self.say(f"kvindexer at {self._url} was not asked, or refused a question: {failed}")
            if failed.because_of == "question":
                self.breaker.succeeded()
        elif self.breaker.failed(asked_at, failed.retry_after_s):
            self.say(f"kvindexer at {self._url} is left alone for a while, after: {failed}")

    def say(self, words: str) -> None:
        """In the log, once a minute each; a few different ones at most."""
        now = self._clock()
        if self._said.get(words, float("-inf")) + SAID_AGAIN_S > now:
            return
        self._said = {said: at for said, at in self._said.items() if at + SAID_AGAIN_S > now}
        if len(self._said) < 16:  # noqa: PLR2004  # of a minute
            self._said[words] = now
            _LOG.warning(words)

    async def _answer(self, asked: _Asked, timeout_s: float) -> Any:  # noqa: ANN401  # whatever it is
        """What it answers. Raises `_Failed`, or of `_LATE`."""
        if len(asked.body) > BODY_BYTES_MAX:
            raise _Failed(f"a prompt of more than {BODY_BYTES_MAX} bytes", "nobody")
        request = self._head(asked, timeout_s) + asked.body
        try:
            status, fields, content = await asyncio.wait_for(self._exchanged(request), timeout_s)
        except _LATE:
            raise
        except (*_CUT, asyncio.LimitOverrunError):
            raise _Failed("it hung up without a whole answer") from None
        if not 200 <= status < 300:  # noqa: PLR2004
            of_index = status in {401, 403, 404, 429} or not 400 <= status < 500  # noqa: PLR2004
            said = f"HTTP status {status}"
            raise _Failed(said, "index" if of_index else "question", _seconds(fields.get("retry-after")))
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise _Failed(_NOT_OURS) from None

    async def _exchanged(self, request: bytes) -> tuple[int, Mapping[str, str], bytes]:
        while True:
            link = await self._links.take()
            was_fresh = link.is_fresh
            try:
                return await link.exchange(request)
            except _CUT:
                if was_fresh:
                    raise
                # Closed while nobody used it: the next attempt takes another, in the end a new one.
            finally:
                self._links.give_back(link)

    def _head(self, asked: _Asked, timeout_s: float) -> bytes:
        told_ms = max(1, int(timeout_s * 1000 * (1 - FOR_THE_WAY)))
        place = self._place
        salt = f"x-kvindexer-cache-salt: {asked.salt}\r\n" if asked.salt else ""
        return (
            f"POST {place.prefix}{asked.path} HTTP/1.1\r\nhost: {place.authority}\r\naccept: {_JSON}\r\n"
            f"content-type: {asked.content_type}\r\ncontent-length: {len(asked.body)}\r\n"
            f"x-kvindexer-timeout-ms: {told_ms}\r\n{salt}{self._authorization}\r\n"
        ).encode("latin-1")


def _seconds(text: str | None) -> float:
    return float(text) if text is not None and text.isascii() and text.isdigit() else 0.0


# --- Ray Serve -------------------------------------------------------------------------------------------------------


class _Kept(NamedTuple):
    """An answer, for the calls that follow for the same request. It goes with the request."""

    asked_at: float
    ranked: Ranked


_KEPT = "kvindexer_kept"
"""The attribute of a pending request that holds it: ids of requests are shared by calls that depend on each other."""


def _session(pending_request: Any) -> str | None:  # noqa: ANN401
    """What Serve's header for it says, as much as the service takes; older releases know none."""
    return (getattr(pending_request.metadata, "session_id", None) or "")[:512] or None


class KvindexerRouter(RequestRouter):  # type: ignore[misc]  # of no known type where there is no Ray
    """Asks kvindexer which replicas hold most of a prompt. See the head of this file.

    What `request_router_kwargs` may say is the arguments of `initialize_state`.
    """

    def initialize_state(
        self,
        *,
        url: str = "",
        model: str | None = None,
        token: str | None = None,
        ca: str | None = None,
        timeout_s: float = TIMEOUT_S,
        tenant: str | None = None,
        pod_key: str = POD_KEY,
        report: bool = True,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """Called by Serve. What is wrong here is told in the log, and requests are routed without the index.

        Args:
            url: `http://HOST:PORT`, `https://HOST:PORT`, or `unix:/PATH` of the service's socket.
            model: as the index knows it; else what the request says.
            token: bearer token.
            ca: file of the certificates to trust.
            timeout_s: for an answer.
            tenant: whose engines these are.
            pod_key: where in its routing stats a replica says its name at the index.
            report: tell the index where requests were sent.
            kwargs: none of these.
        """
        try:
            if kwargs:
                raise ValueError(f"there is no {', '.join(sorted(kwargs))}")  # noqa: TRY301  # said as the others
            self.index: Index | None = Index(url, token=token, ca=ca, timeout_s=timeout_s)
        except Exception as error:  # noqa: BLE001
            # Serve would have no router, and its requests would wait for one for ever.
            _LOG.error("request_router_kwargs of KvindexerRouter: %s. Nothing is asked of kvindexer", error)
            self.index = None
        self._always = {name: value for name, value in (("model", model), ("tenant", tenant)) if value is not None}
        self._pod_key = pod_key
        self._reports = report

    def question(self, pending_request: Any) -> dict[str, Any] | None:  # noqa: ANN401  # PendingRequest
        """What to ask of a request, in the fields of `POST /v1/recommend`; None: nothing. Override it for your own."""
        return question_of(pending_request.args, pending_request.kwargs)

    async def choose_replicas(self, candidate_replicas: list[Any], pending_request: Any = None) -> list[list[Any]]:  # noqa: ANN401
        """Groups of replicas, the best first, all of them last."""
        if pending_request is None:
            return [candidate_replicas]
        # Else Serve would ask again at once where all are full, and again.
        pending_request.routing_context.should_backoff = True
        index, in_any_order = self.index, random.sample(candidate_replicas, len(candidate_replicas))
        if index is None:
            return [in_any_order]
        try:
            by_name: dict[str, list[Any]] = {}
            for replica in in_any_order:
                by_name.setdefault(self._name(replica), []).append(replica)
            ranked = await self._ranked(index, pending_request, by_name)
            groups = [by_name[name] for name in ranked.names if name in by_name]
        except Exception as error:  # noqa: BLE001  # the promise; its text could show what was asked
            index.say(f"kvindexer is passed over for a request: {type(error).__name__}")
            return [in_any_order]
        return [*groups, in_any_order]

    def on_request_routed(self, pending_request: Any, replica_id: Any, result: Any) -> None:  # noqa: ANN401
        """Called by Serve when a replica took a request: that is told the index."""
        super().on_request_routed(pending_request, replica_id, result)
        with contextlib.suppress(Exception):  # the promise
            kept: _Kept | None = getattr(pending_request, _KEPT, None)
            if self.index and self._reports and kept and kept.ranked.request_id:
                replica = self.curr_replicas.get(replica_id)
                name = replica_id.unique_id if replica is None else self._name(replica)
                self.index.tell({"pod": name, "of": kept.ranked.request_id})

    def update_replicas(self, replicas: list[Any]) -> None:
        """Called by Serve whenever there are others: before the first request, which finds a connection then."""
        super().update_replicas(replicas)
        with contextlib.suppress(Exception):  # the promise
            if self.index:
                self.index.warm_up()

    def _name(self, replica: Any) -> str:  # noqa: ANN401
        """Of a replica, at the index."""
        pod = (replica.routing_stats or {}).get(self._pod_key)
        return pod if isinstance(pod, str) and pod else str(replica.replica_id.unique_id)

    def _loads(self, by_name: Mapping[str, list[Any]]) -> dict[str, dict[str, int]]:
        """How busy they are, as far as Serve was told lately."""
        queues = self.replica_queue_len_cache
        lengths = ((name, queues.get(replicas[0].replica_id)) for name, replicas in by_name.items())
        return {name: {"running": length} for name, length in lengths if length is not None}

    async def _ranked(self, index: Index, pending_request: Any, by_name: Mapping[str, list[Any]]) -> Ranked:  # noqa: ANN401
        """The answer, or the one that is kept since the request found all replicas full."""
        now = time.monotonic()
        kept: _Kept | None = getattr(pending_request, _KEPT, None)
        if kept is not None and kept.asked_at + KEPT_S > now:
            return kept.ranked
        if index.breaker.rests():
            index.counts["rested"] += 1
            return NOTHING
        question = self.question(pending_request)
        ranked = NOTHING
        if question is not None:
            asked = {**question, **_ASKED_ALWAYS, **self._always, "pods": list(by_name)}
            beside = {"loads": self._loads(by_name), "session": _session(pending_request)}
            ranked = await index.ranked(asked | {name: each for name, each in beside.items() if each})
        setattr(pending_request, _KEPT, _Kept(now, ranked))
        return ranked
