"""A client of kvindexer in one file, for routers: copy it beside your code. It needs httpx and Python 3.9 or newer.

Ask who holds how much of a prompt, and route by it. What a router wants is `rank`: the order in which to try its pods.
It never raises, and never answers later than its deadline: without an index it gives back the order it was given.

    index = AsyncClient("http://127.0.0.1:8080")
    ranked = await index.rank(["10.0.0.1:8000", "10.0.0.2:8000"], token_ids, model="llama", timeout_s=0.02)
    for pod in ranked.pods:
        ...  # send the request there; go on with the next where it fails

`Client` does the same without asyncio, for many threads at once. Both keep connections, so make one and share it.
Everything but `rank` raises a `KvindexerError`: `Unreachable`, `DeadlinePassed`, `BadAnswer`, or `Refused` with the
service's code and the fields it objects to. Deadlines are for the whole call, from name to last byte.

No proxies and no credentials are taken from the environment, and no redirect is followed. Requests are sent once; only
where a kept connection turns out to be closed is the request sent again, on another one.

A call takes a quarter less CPU time where the package sniffio is installed, too: httpcore looks for it on every call.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import errno
import importlib
import json
import os
import random
import socket
import ssl
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar, Union
from urllib.parse import quote, unquote, urlencode, urlsplit

import httpx

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "Answer",
    "AsyncClient",
    "BadAnswer",
    "Breaker",
    "Client",
    "DeadlinePassed",
    "FieldProblem",
    "KvindexerError",
    "Load",
    "MmItem",
    "Options",
    "Picked",
    "PickedPod",
    "PodEntry",
    "Prompt",
    "RankOptions",
    "Ranking",
    "RecommendOptions",
    "Recommendation",
    "RecommendedPod",
    "Refused",
    "Reply",
    "Reports",
    "TokenIds",
    "Unreachable",
    "token_bytes",
]

__version__ = "0.7.0"
"""Of kvindexer as a whole: a copy of this file tells by it where it came from."""

TIMEOUT_S = 1.0
"""For a call that names no deadline of its own."""
RANK_TIMEOUT_S = 0.05
"""For `rank`, which stands in the way of every request."""
FOR_THE_WAY = 0.1
"""Part of a deadline that is kept for the way there and back: the service is told the rest, and answers within it."""
CONNECTIONS_MAX = 64
IDLE_S = 30.0
"""Unused connections are closed before the service closes them, which it does after 75 s."""
ANSWER_BYTES_MAX = 64 * 1024 * 1024
URL_MAX = 4_096
"""Bytes of options behind a URL; with more of them the question goes as JSON."""
PAGE = 1_000
SCORE_DIGITS = 9
"""Scores that differ behind these are equal: they are sums, and how one is rounded on the way says nothing."""
REST_AFTER = 3
"""Failures in a row after which `rank` lets the index rest."""
REST_S = 0.5
REST_MAX_S = 5.0
"""How long at first, and at most: twice as long after each trial that fails."""

_U32_MAX = 2**32 - 1
_URLS_KEPT = 256
_LOCAL_SALT = frozenset(map(chr, range(0x21, 0x7F)))
_LATE = (TimeoutError, asyncio.TimeoutError, futures.TimeoutError)  # three classes before Python 3.11
_T = TypeVar("_T")

TokenIds = Union[Sequence[int], bytes, bytearray, memoryview, "array.array[int]"]
"""Token ids as a list; as bytes, little-endian u32; or as an array of 4-byte integers: array.array, numpy, torch."""
Json = dict[str, Any]
Reports = Union[Mapping[str, Any], Iterable[Mapping[str, Any]]]
"""One, or several."""


# --- what goes wrong -------------------------------------------------------------------------------------------------


class KvindexerError(Exception):
    """Anything that went wrong with a call."""


class Unreachable(KvindexerError):
    """Nobody answers there, or what answers speaks no HTTP."""


class DeadlinePassed(Unreachable):
    """No answer in time."""


class BadAnswer(KvindexerError):
    """An answer came, and is none of this service."""


class FieldProblem(NamedTuple):
    """One thing wrong with one field of a request."""

    field: str
    rule: str
    got: str | None = None
    hint: str | None = None


class Refused(KvindexerError):
    """The service said no. `code` is stable and for programs, `fields` says what it objects to.

    `retry_after_s`: when to come back, where it said so. Where something else answered, a gateway for one, `code` is
    `http.STATUS`. `body` is the answer as it came.
    """

    def __init__(self, status: int, reason: str, body: bytes, retry_after_s: float | None = None) -> None:
        problem = _problem(body)
        self.status = status
        self.reason = reason
        self.body = body
        self.code = str(problem.get("code") or f"http.{status}")
        self.detail = str(problem.get("detail") or reason)
        self.fields = [
            FieldProblem(str(item.get("field")), str(item.get("rule")), item.get("got"), item.get("hint"))
            for item in problem.get("errors") or ()
            if isinstance(item, dict)
        ]
        self.request_id: str | None = problem.get("request_id")
        self.retry_after_s = retry_after_s
        super().__init__(f"{status} {self.code}: {self.detail}")


def _problem(body: bytes) -> Json:
    try:
        problem = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return problem if isinstance(problem, dict) else {}


# --- what is asked ---------------------------------------------------------------------------------------------------


class MmItem(TypedDict):
    """A multimodal item: its hash as the engine names it, where it begins in the prompt, and how many tokens it has."""

    hash: str
    offset: int
    length: int


class Prompt(TypedDict, total=False):
    """What may stand beside token ids, or instead of them. What is None is not sent.

    A prompt is told by token ids, or by exactly one of `block_hashes` (with `block_size`), `prompt` and `messages`.
    """

    block_hashes: Sequence[int | str] | None
    prompt_tokens: int | None
    scheme: str | None
    prompt: str | None
    messages: Sequence[Mapping[str, Any]] | None
    tools: Sequence[Mapping[str, Any]] | None
    documents: Sequence[Mapping[str, Any]] | None
    chat_template_kwargs: Mapping[str, Any] | None
    add_generation_prompt: bool | None
    continue_final_message: bool | None
    add_special_tokens: bool | None
    model: str | None
    lora_name: str | None
    cache_salt: str | None
    tenant: str | None
    mm_items: Sequence[MmItem] | None
    pod_roles: Sequence[str] | None
    max_lag_ms: int | None
    partial: bool | None
    limit: int | None
    group: str | None
    min_sequence: Mapping[str, int] | None
    request_id: str | None


class Load(TypedDict, total=False):
    """How busy a pod is: requests that it computes and that wait there, and the share of its KV cache in use, 0..1."""

    running: float | None
    waiting: float | None
    kv_usage: float | None


class _HowToRank(TypedDict, total=False):
    """How to weigh prefix and load. Left out: as the service is set, with the loads that it knows itself."""

    loads: Mapping[str, Load] | None
    strategy: str | None
    weights: Mapping[str, float] | None
    session: str | None
    exclude: Sequence[str] | None


class RankOptions(Prompt, _HowToRank, total=False):
    """The same for `rank`, whose pods are an argument of their own, and how to rank them."""

    block_size: int | None


class Options(Prompt, total=False):
    """The same for a lookup."""

    block_size: int | None
    pods: Sequence[str] | None


class RecommendOptions(Options, _HowToRank, total=False):
    """The same for a recommendation."""


class _Call(NamedTuple):
    """One request, ready to be sent."""

    method: str
    path: str
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    tells_deadline: bool = False


_JSON = (("content-type", "application/json"),)
_IDS = (("content-type", "application/octet-stream"),)
_NOT_BESIDE_BYTES = frozenset(
    (
        "block_hashes",
        "prompt",
        "messages",
        "tools",
        "documents",
        "chat_template_kwargs",
        "add_generation_prompt",
        "continue_final_message",
        "add_special_tokens",
        "prompt_tokens",
        "scheme",
        "session",  # may be somebody's name, and URLs are logged
    )
)
_HOW_TO_RANK = frozenset(_HowToRank.__annotations__)


def _question(path: str, tokens: TokenIds | None, options: Mapping[str, Any]) -> _Call:
    """A lookup or hash request in its cheapest form: bare bytes where there are token ids, else JSON."""
    given = {name: value for name, value in options.items() if value is not None}
    if tokens is None:
        return _Call("POST", path, _json(given), _JSON, tells_deadline=True)
    image = token_bytes(tokens)
    salt = given.get("cache_salt", "")
    query = urlencode(list(_parameters(given)))
    if _NOT_BESIDE_BYTES.isdisjoint(given) and _LOCAL_SALT.issuperset(salt) and len(query) <= URL_MAX:
        headers = (*_IDS, ("x-kvindexer-cache-salt", salt)) if salt else _IDS
        return _Call("POST", f"{path}?{query}" if query else path, image, headers, tells_deadline=True)
    return _Call("POST", path, _json({**given, "token_ids": _listed(image)}), _JSON, tells_deadline=True)


def _parameters(given: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name, value in given.items():
        if name == "cache_salt":  # never in a URL, which is logged
            continue
        if isinstance(value, bool):
            yield name, "true" if value else "false"
        elif isinstance(value, Mapping):
            yield name, _json(value).decode()
        elif isinstance(value, (list, tuple, Sequence)) and not isinstance(value, str):
            yield from ((name, each if isinstance(each, str) else _json(each).decode()) for each in value)
        else:
            yield name, str(value)


def token_bytes(tokens: TokenIds) -> bytes:
    """Token ids as little-endian u32, which is what travels. Raises ValueError for what cannot be one.

    Who asks about a prompt more than once, or keeps it, keeps it best in this form: it is passed through as it is.
    """
    if isinstance(tokens, (bytes, bytearray)):
        if len(tokens) % 4:
            raise ValueError(f"token ids as bytes are 4 bytes each, got {len(tokens)}")
        return bytes(tokens)
    try:
        view = memoryview(tokens)  # type: ignore[arg-type]  # whatever has a buffer: array.array, numpy
    except TypeError:
        return _packed(tokens)
    if view.format in {"B", "b", "c"} and view.ndim == 1:
        return token_bytes(view.tobytes())
    if view.itemsize == 4 and view.format in {"I", "L", "<I", "<L"} and view.ndim == 1:  # noqa: PLR2004
        return _little(array.array("I", view.tobytes()))
    return _packed(tokens)


def _packed(tokens: Any) -> bytes:  # noqa: ANN401  # anything that lists whole numbers
    listed = tokens.tolist() if hasattr(tokens, "tolist") else tokens
    try:
        return _little(array.array("I", listed))
    except (OverflowError, TypeError):
        raise ValueError(f"token ids are whole numbers, 0..{_U32_MAX}") from None


def _little(ids: array.array[int]) -> bytes:
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tobytes()


def _listed(image: bytes) -> list[int]:
    ids = array.array("I", image)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tolist()


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=_plain).encode()


def _plain(value: Any) -> object:  # noqa: ANN401
    """What json does not know but a question may hold: bytes and arrays of token ids, further kinds of lists."""
    if isinstance(value, (bytes, bytearray, memoryview, array.array)):
        return _listed(token_bytes(value))
    return value.tolist() if hasattr(value, "tolist") else list(value)


def _given(items: Iterable[Mapping[str, Any]]) -> list[Json]:
    """Each without what is None."""
    return [{name: value for name, value in item.items() if value is not None} for item in items]


def _reports(path: str, reports: object) -> _Call:
    """One report or several, as JSON. Raises ValueError for what is none."""
    listed, problem = _reported(reports)
    if problem is not None:
        raise ValueError(problem)
    return _Call("POST", path, _json(_given(listed)), _JSON)


def _reported(reports: object) -> tuple[list[Any], str | None]:
    """The reports as a list, whether one or several, and what is wrong with them."""
    if isinstance(reports, Mapping):
        reports = [reports]
    if isinstance(reports, (str, bytes, bytearray)) or not isinstance(reports, Iterable):
        return [], f"reports: one mapping or a list of them wanted, got {type(reports).__name__}"
    listed = list(reports)
    return listed, next(filter(None, map(_no_report, range(len(listed)), listed)), None)


def _no_report(index: int, report: object) -> str | None:
    """What is wrong with it, if anything is."""
    if not isinstance(report, Mapping):
        return f"reports[{index}]: a mapping wanted, with `pod` and more, got {type(report).__name__}"
    for name, value in report.items():
        if not isinstance(name, str):
            return f"reports[{index}]: its fields have names, got {type(name).__name__}"
        if isinstance(value, (bytes, bytearray, memoryview)) and name != "token_ids":
            return f"reports[{index}].{name}: bytes are token ids only, got {type(value).__name__}"
    return None


def _batch(items: Iterable[Mapping[str, Any]]) -> _Call:
    return _Call("POST", "/v1/lookup/batch", _json({"items": _given(items)}), _JSON, tells_deadline=True)


def _pick(body: bytes | Mapping[str, Any], pods: Sequence[str] | None, truncated: bool) -> _Call:  # noqa: FBT001
    headers = [*_JSON]
    if pods:
        headers.append(("x-kvindexer-pods", ",".join(pods)))
    if truncated:
        headers.append(("x-kvindexer-truncated", "true"))
    content = body if isinstance(body, bytes) else _json(body)
    return _Call("POST", "/v1/pick", content, tuple(headers), tells_deadline=True)


def _source_path(pod: str, dp_rank: int | None, suffix: str = "") -> str:
    return f"/v1/sources/{quote(pod, safe='')}{suffix}{_query({'dp_rank': dp_rank})}"


def _query(given: Mapping[str, object]) -> str:
    query = urlencode({name: value for name, value in given.items() if value is not None})
    return f"?{query}" if query else ""


# --- what is answered ------------------------------------------------------------------------------------------------


class Reply(NamedTuple):
    """An answer as it came."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:  # noqa: ANN401  # whatever it is
        """What it says. Raises `BadAnswer`."""
        try:
            return json.loads(self.content)
        except (ValueError, RecursionError):
            raise BadAnswer("the answer is no JSON: is this kvindexer?") from None


@dataclass
class PodEntry:
    """What one source holds of the prompt, and how far to trust it. `score` is 0 where it must not be used.

    What each field says stands in the service's document, `GET /openapi.json`. What it tells beyond is passed over.
    """

    pod: str
    dp_rank: int = 0
    score: float = 0.0
    matched_tokens: int = 0
    reusable_tokens: int = 0
    state: str = "?"
    bound: str = "?"
    reason: str | None = None
    block_size: int | None = None
    tiers: Mapping[str, int] = field(default_factory=dict)
    prefix: Mapping[str, int] = field(default_factory=dict)
    speculative_tokens: int = 0
    lag_ms: int | None = None
    event_age_ms: int | None = None
    generation: str | None = None
    sequence: int | None = None


@dataclass
class Answer:
    """Of a lookup. `pods` is best first; `raw` is all of it, with what this client knows nothing of."""

    state: str
    pods: list[PodEntry]
    raw: Json = field(repr=False)
    request_id: str = ""
    model: str | None = None
    lora_name: str | None = None
    resolved_by: str | None = None
    nearest_model: str | None = None
    prompt_tokens: int = 0
    tokenizer: Mapping[str, Any] | None = None
    reason: str | None = None
    shards: Mapping[str, int] = field(default_factory=dict)
    took_us: int = 0

    def pods_or(self, default: Sequence[str]) -> list[str]:
        """Those that hold something, best first, and behind them those of `default` that do not.

        Of equal scores, none among them, those come first that are about to hold most (`speculative_tokens`: prompts
        were routed there, or it is one of the engines that announce nothing). Where these are equal, too, `default`
        has the say: they come in its order.
        """
        worth: dict[str, tuple[float, int]] = {}
        for entry in self.pods:
            found = round(entry.score, SCORE_DIGITS), entry.speculative_tokens
            if found > worth.get(entry.pod, _WORTH_NOTHING):
                worth[entry.pod] = found
        named = dict.fromkeys((*default, *worth))
        return sorted(named, key=lambda pod: worth.get(pod, _WORTH_NOTHING), reverse=True)


_WORTH_NOTHING = 0.0, 0
_POD_FIELDS = frozenset(PodEntry.__dataclass_fields__)
_ANSWER_FIELDS = frozenset(Answer.__dataclass_fields__) - {"raw", "pods"}


def _answer(raw: Any) -> Answer:  # noqa: ANN401  # checked here
    if not isinstance(raw, dict) or not isinstance(raw.get("pods"), list) or not isinstance(raw.get("state"), str):
        raise BadAnswer("the answer is none of a lookup: is this kvindexer?")
    entries = []
    for item in raw["pods"]:
        if not isinstance(item, dict) or not isinstance(item.get("pod"), str):
            raise BadAnswer("the answer is none of a lookup: is this kvindexer?")
        if not isinstance(item.get("score", 0.0), (int, float)):
            raise BadAnswer("a score is no number: is this kvindexer?")
        if not isinstance(item.get("speculative_tokens", 0), int):
            raise BadAnswer("a count of tokens is no number: is this kvindexer?")
        entries.append(PodEntry(**{name: item[name] for name in _POD_FIELDS.intersection(item)}))
    return Answer(pods=entries, raw=raw, **{name: raw[name] for name in _ANSWER_FIELDS.intersection(raw)})


def _answers(raw: Any) -> list[Answer | Refused]:  # noqa: ANN401  # checked here
    items = raw.get("items") if isinstance(raw, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise BadAnswer("the answer is none of a batch: is this kvindexer?")
    return [_answer(item) if "pods" in item else _refusal(item) for item in items]


def _refusal(item: Json) -> Refused:
    status = item.get("status")
    return Refused(status if isinstance(status, int) else 0, str(item.get("title", "")), _json(item))


class RecommendedPod(NamedTuple):
    """One pod to send a request to. `total` is the sum of `prefix`, `load` and `speculative`, less `penalty`."""

    pod: str
    dp_rank: int
    total: float
    prefix: float
    load: float
    speculative: float
    penalty: float


@dataclass
class Recommendation:
    """Where to send a request, best first.

    `loads`: which were used (`request`, `metrics`, `receipts` or `none`), `loads_age_ms` the age of the oldest.
    `decode`: who makes the answer where that is another pod than the one that takes the prompt; None: it does all.
    """

    state: str
    picks: list[RecommendedPod]
    raw: Json = field(repr=False)
    request_id: str = ""
    loads: str = "none"
    loads_age_ms: int | None = None
    decode: list[RecommendedPod] | None = None


def _recommendation(raw: Any) -> Recommendation:  # noqa: ANN401  # checked here
    try:
        decode, load = raw.get("decode"), raw.get("load") or {}
        return Recommendation(
            raw["state"],
            _recommended(raw["picks"]),
            raw,
            raw.get("request_id", ""),
            load.get("source", "none"),
            load.get("age_ms"),
            None if decode is None else _recommended(decode),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        raise BadAnswer("the answer is none of a recommendation: is this kvindexer?") from None


def _recommended(picks: list[Json]) -> list[RecommendedPod]:
    found = []
    for each in picks:
        terms = [float(each["terms"][name]) for name in RecommendedPod._fields[3:]]
        if not isinstance(each["pod"], str):
            raise TypeError
        found.append(RecommendedPod(each["pod"], int(each["dp_rank"]), float(each["total"]), *terms))
    return found


class PickedPod(NamedTuple):
    """One line of a pick."""

    pod: str
    score: float
    matched_tokens: int
    state: str


@dataclass
class Picked:
    """Of a pick: at most three pods, best first; none where nothing is known, and then the `reason`.

    The service ranks them as `recommend` does. Where nothing is known of loads they are those that hold something, or,
    where nobody does, those that are about to, with score 0.
    """

    pods: list[PickedPod]
    state: str
    request_id: str = ""
    reason: str | None = None


def _picked(reply: Reply) -> Picked:
    pods = []
    for line in reply.content.decode("utf-8", "replace").splitlines():
        words = line.rsplit(" ", 3)
        try:
            pods.append(PickedPod(unquote(words[0]), float(words[1]), int(words[2]), words[3]))
        except (IndexError, ValueError):
            raise BadAnswer("the answer is none of a pick: is this kvindexer?") from None
    state = reply.headers.get("x-kvindexer-state", "no_signal")
    request_id, reason = reply.headers.get("x-kvindexer-request-id", ""), reply.headers.get("x-kvindexer-reason")
    return Picked(pods, state, request_id, reason)


@dataclass
class Ranking:
    """The order in which to try pods. `failure`: why it is that which was given, where the index had no say.

    That is what went wrong with the call, or, where there is an answer and its state is `no_signal`, this with the
    reason: `no_signal: model_unknown, nearest known model: llama`. Where nobody holds anything of the prompt nothing
    failed: it is None.
    """

    pods: list[str]
    answer: Answer | None = None
    failure: str | None = None
    recommendation: Recommendation | None = None
    """Instead of an answer, where it was asked how to rank."""

    @property
    def state(self) -> str:
        """`exact`, `degraded` or `no_signal`."""
        found = self.recommendation or self.answer
        return "no_signal" if found is None else found.state


# --- when to leave the index alone -----------------------------------------------------------------------------------


class Breaker:
    """Lets an index rest that does not answer, so that being without it costs nothing.

    After `REST_AFTER` failures in a row nobody asks for `REST_S`; then one request is a trial, and the others go on
    without. A trial that fails doubles the rest, up to `REST_MAX_S`; one success ends it. A little chance keeps many
    routers from trying at the same moment.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
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

    def succeeded(self) -> None:
        """It answers."""
        self._failures, self._rest_s = 0, REST_S
        self._rests_until = float("-inf")

    def failed(self, asked_at: float, retry_after_s: float | None = None) -> None:
        """It did not answer what was asked then. What was under way before a rest began says nothing new."""
        if asked_at < self._rests_since:
            return
        self._failures += 1
        if self._failures < REST_AFTER and retry_after_s is None:
            return
        self._failures = max(self._failures, REST_AFTER)
        now = self._clock()
        rest_s = max(self._rest_s, min(retry_after_s or 0.0, REST_MAX_S))
        self._rests_since, self._rests_until = now, now + rest_s * random.uniform(0.8, 1.2)  # noqa: S311  # no secret
        self._rest_s = min(2 * self._rest_s, REST_MAX_S)


def _is_its_failure(error: BaseException) -> bool:
    """Whether the next question will fare the same; else it was this question."""
    return not isinstance(error, (ValueError, TypeError)) and (
        not isinstance(error, Refused) or error.status in {401, 403, 404, 429} or not 400 <= error.status < 500  # noqa: PLR2004
    )


# --- the way there ---------------------------------------------------------------------------------------------------


class _Attempt:
    """Whether a request went over a connection that was kept. Told by the transport as it goes."""

    kept = True

    async def trace(self, event: str, _info: Mapping[str, Any]) -> None:
        if event.startswith("connection.connect"):
            self.kept = False


_CUT = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError, httpx.CloseError)


_LOADED_LATE = ("anyio", "anyio._backends._asyncio", "httpcore._backends.anyio")
"""What httpx imports with its first request, which takes longer than the deadline of a `rank` may be."""


def _warm_up() -> None:
    for name in _LOADED_LATE:
        with contextlib.suppress(ImportError):  # other releases have other parts
            importlib.import_module(name)


class _Http:
    """Requests over kept connections, each under a deadline for all of it."""

    def __init__(
        self,
        url: str,
        token: str | None,
        ca: str | None,
        cert: str | tuple[str, str] | None,
        connections_max: int,
    ) -> None:
        self.url, self._origin, self._prefix, uds = _place(url)
        self._secure = self._origin.startswith("https:")
        self._headers = [("accept", "application/json"), ("accept-encoding", "identity")]
        if token is not None:
            if not token.isascii() or not token.isprintable() or not token:
                raise ValueError("a token is printable ASCII")  # else it would come to stand in an error's text
            self._headers.append(("authorization", f"Bearer {token}"))
        self._urls: dict[str, httpx.URL] = {}
        self._transport = httpx.AsyncHTTPTransport(
            verify=_tls(ca, cert) if self._secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            limits=httpx.Limits(
                max_connections=connections_max, max_keepalive_connections=connections_max, keepalive_expiry=IDLE_S
            ),
            trust_env=False,
            uds=uds,
        )
        _warm_up()

    async def send(self, call: _Call, timeout_s: float) -> Reply:
        """The answer, whatever its status. Raises `Unreachable`, `DeadlinePassed` and `BadAnswer`."""
        try:
            return await asyncio.wait_for(self._sent(call, timeout_s), timeout_s)
        except _LATE:
            raise DeadlinePassed(f"{self.url}: no answer in time") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise Unreachable(f"{self.url} cannot be reached: {_why(error, self._secure)}") from error

    async def _sent(self, call: _Call, timeout_s: float) -> Reply:
        headers = [*self._headers, *call.headers]
        if call.tells_deadline:
            headers.append(("x-kvindexer-timeout-ms", str(max(1, int(timeout_s * 1000 * (1 - FOR_THE_WAY))))))
        url = self._urls.get(call.path) or self._made_url(call.path)
        while True:
            attempt = _Attempt()
            request = httpx.Request(
                call.method, url, headers=headers, content=call.body, extensions={"trace": attempt.trace}
            )
            try:
                response = await self._transport.handle_async_request(request)
            except _CUT:
                if attempt.kept:  # closed while nobody used it: the next attempt takes another, in the end a new one
                    continue
                raise
            return await self._read(response)

    async def _read(self, response: httpx.Response) -> Reply:
        parts, size = [], 0
        try:
            async for part in response.aiter_raw():
                size += len(part)
                if size > ANSWER_BYTES_MAX:
                    raise BadAnswer(f"an answer of more than {ANSWER_BYTES_MAX} bytes: is this kvindexer?")
                parts.append(part)
        finally:
            await response.aclose()
        return Reply(response.status_code, response.headers, b"".join(parts))

    def _made_url(self, path: str) -> httpx.URL:
        """Parsing one takes longer than many an answer: a router asks with the same options again and again."""
        url = httpx.URL(f"{self._origin}{self._prefix}{path}")
        if len(self._urls) >= _URLS_KEPT:
            self._urls.clear()
        self._urls[path] = url
        return url

    async def close(self) -> None:
        await self._transport.aclose()


def _place(url: str) -> tuple[str, str, str, str | None]:
    """What to call it, origin, path in front of all others, and the Unix socket, of a URL. Raises ValueError."""
    if url.startswith("unix:"):
        path = url[5:]
        path = path.removeprefix("//")
        if not path.startswith("/"):
            raise ValueError("unix:/PATH wanted")
        return f"unix:{path}", "http://localhost", "", path
    wanted = "http://HOST:PORT, https://HOST:PORT or unix:/PATH wanted"
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # reading it checks it
    except ValueError:
        raise ValueError("the port is no number in 0..65535") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
        raise ValueError(wanted)
    origin = f"{parts.scheme}://{parts.netloc}"
    try:
        httpx.URL(origin).host  # noqa: B018  # as above
    except (httpx.InvalidURL, ValueError):
        raise ValueError("the host is no name, nor an address") from None
    return origin, origin, parts.path.rstrip("/"), None


def _tls(ca: str | None, cert: str | tuple[str, str] | None) -> ssl.SSLContext:
    """Raises OSError with the name of the file that cannot be used: what ssl raises names none."""
    certificate, key = (cert, None) if cert is None or isinstance(cert, str) else cert
    for path in (ca, certificate, key):
        if path is not None:
            with open(path, "rb"):  # noqa: PTH123  # as short, and one import less
                pass
    try:
        context = ssl.create_default_context(cafile=ca)
    except ssl.SSLError as error:
        raise OSError(errno.EINVAL, "no certificates in PEM form", ca) from error
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key, password="")  # never ask at the terminal
        except ssl.SSLError as error:
            with open(certificate, "rb") as file:  # noqa: PTH123  as above
                if b"-----BEGIN CERTIFICATE-----" not in file.read():
                    raise OSError(errno.EINVAL, "no certificate in PEM form", certificate) from error
            what = f"no key in PEM form, without a password, that fits the certificate in {certificate}"
            raise OSError(errno.EINVAL, what, certificate if key is None else key) from error
    return context


_NO_HTTP = "what answers there speaks no HTTP: is it the port for gRPC, or of another service?"
_HUNG_UP = "it hung up without a whole answer: is it https://, or the port of another service?"
_HUNG_UP_TLS = (
    "it hung up without a whole answer: does it ask for a certificate of yours (cert=, of a command --cert and --key), "
    "or is it the port of another service?"
)
_HUNG_UP_BY = (BrokenPipeError, ConnectionResetError, ConnectionAbortedError)
_ALERTS = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE")
"""What TLS says of who shows no certificate, or one that is not trusted. Often it is lost, and only the end comes."""
_NO_TLS_SAID = frozenset(("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"))


def _asks_for_certificate(error: BaseException) -> bool:
    """Whether it may be that, over TLS."""
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        return "_ALERT_" in reason and any(alert in reason for alert in _ALERTS)
    return isinstance(error, _HUNG_UP_BY)


def _behind(error: BaseException) -> list[BaseException]:
    """The error and all that led to it, the nearest first."""
    seen: list[BaseException] = [error]
    for each in seen:
        further = [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]
        seen.extend(cause for cause in further if cause is not None and cause not in seen)
    return seen


def _systems_words(error: OSError, words: str) -> str:
    if isinstance(error, (ssl.SSLError, socket.gaierror)) or error.errno is None:
        return words.lower()
    return os.strerror(error.errno).lower()  # asyncio adds to the system's words


def _why(error: BaseException, secure: bool) -> str:  # noqa: FBT001
    """The operating system's, the resolver's or TLS's own words, where they are somewhere behind the error."""
    hung_up = _HUNG_UP_TLS if secure else _HUNG_UP
    for each in _behind(error):
        if isinstance(each, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {each.verify_message}"
        if isinstance(each, httpx.RemoteProtocolError):
            return hung_up if "disconnected" in str(each) or "closed" in str(each) else _NO_HTTP
        if secure and _asks_for_certificate(each):
            return hung_up
        if isinstance(each, ssl.SSLError) and each.reason in _NO_TLS_SAID:
            return "what answers there speaks no TLS: is it http://, or the port of another service?"
        if isinstance(each, OSError) and each.strerror:
            return _systems_words(each, each.strerror)
    if isinstance(error, _CUT):  # without a word of anybody's
        return hung_up
    return str(error) or type(error).__name__


# --- the clients -----------------------------------------------------------------------------------------------------


class AsyncClient:
    """For asyncio. Make one, share it, close it at the end, or use it as an `async with` block.

    Args:
        url: `http://HOST:PORT`, `https://HOST:PORT`, or `unix:/PATH` of the service's socket.
        token: bearer token.
        ca: file of the certificates to trust, for a service whose certificate is signed by none that is known here.
        cert: own certificate, a file, or a pair of certificate and key, for a service that asks for one.
        timeout_s: for calls that name no deadline.
        connections_max: more calls at once wait for a free connection, within their deadline.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        ca: str | None = None,
        cert: str | tuple[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        """Nothing is sent yet, and all is loaded that the first request needs.

        Raises ValueError for what is no such URL, OSError with the name of a file that cannot be used.
        """
        self._http = _Http(url, token, ca, cert, connections_max)
        self._timeout_s = timeout_s
        self._last_failure = ""
        self.breaker = Breaker()

    async def __aenter__(self) -> AsyncClient:  # noqa: PYI034  # Self came with Python 3.11
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._http.url!r})"

    @property
    def url(self) -> str:
        """Of the service."""
        return self._http.url

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()

    async def rank(
        self,
        pods: Sequence[str],
        tokens: TokenIds | None = None,
        *,
        timeout_s: float = RANK_TIMEOUT_S,
        **options: Unpack[RankOptions],
    ) -> Ranking:
        """The order in which to try `pods`, which come in your own order of preference, by load for one.

        Those that hold something of the prompt come first, by score, those that hold most of it before all. Of equal
        scores, 0 among them, those come first where most of it was routed lately (`speculative_tokens`). The rest is
        in your order, which is also what you get where nothing is known (`no_signal`, told in `failure`), the index is
        away, or the deadline passes.

        With `loads`, or another word on how to rank (`strategy`, `weights`, `session`, `exclude`), the order is that of
        `recommend`: prefix and load together. Pods that it does not name, those that are down, come last.

        Never raises. While the index rests (`Breaker`) it costs nothing.
        """
        given, problem = _named(pods)
        if problem is not None or not given:
            return Ranking(given, failure=problem)
        asked_at = self.breaker.ask()
        if asked_at is None:
            return self._resting(given)
        try:
            asked = _candidates(given, options)
            if _HOW_TO_RANK.isdisjoint(name for name, value in options.items() if value is not None):
                ranking = _ranking(given, await self.lookup(tokens, timeout_s=timeout_s, **asked))
            else:
                ranking = _ranking_by(given, await self.recommend(tokens, timeout_s=timeout_s, **asked))
        except Exception as error:  # noqa: BLE001  # the promise
            if _is_its_failure(error):
                self._last_failure = _said(error)
                self.breaker.failed(asked_at, getattr(error, "retry_after_s", None))
            elif isinstance(error, Refused):
                self.breaker.succeeded()
            return Ranking(given, failure=_said(error))
        self.breaker.succeeded()
        return ranking

    def _resting(self, given: list[str]) -> Ranking:
        """Of an index that nobody asks now: with what it failed by."""
        return Ranking(given, failure=f"the index is left alone for a while, after: {self._last_failure}")

    async def lookup(
        self, tokens: TokenIds | None = None, *, timeout_s: float | None = None, **options: Unpack[Options]
    ) -> Answer:
        """Who holds how much of a prompt. Token ids go as bare bytes, which is the cheapest form for both sides."""
        return _answer((await self._ask(_question("/v1/lookup", tokens, options), timeout_s)).json())

    async def recommend(
        self, tokens: TokenIds | None = None, *, timeout_s: float | None = None, **options: Unpack[RecommendOptions]
    ) -> Recommendation:
        """Where to send a request: prefix and load in one number, term by term.

        `loads`: how busy pods are, as you know it, `{"10.0.0.1:8000": {"running": 3, "waiting": 1}}`; without, what the
        service knows. Report where it went (`routed`), or the service will not count it.
        """
        return _recommendation((await self._ask(_question("/v1/recommend", tokens, options), timeout_s)).json())

    async def batch(
        self, items: Iterable[Mapping[str, Any]], *, timeout_s: float | None = None
    ) -> list[Answer | Refused]:
        """Several lookups at once, each a dict of `token_ids` or another prompt, and `Options`.

        One that is refused is a `Refused` in its place, and takes none of the others with it.
        """
        return _answers((await self._ask(_batch(items), timeout_s)).json())

    async def pick(
        self,
        body: bytes | Mapping[str, Any],
        *,
        pods: Sequence[str] | None = None,
        truncated: bool = False,
        timeout_s: float | None = None,
    ) -> Picked:
        """Where to send an OpenAI request, given as its client sent it. `truncated`: the body was cut."""
        return _picked(await self._ask(_pick(body, pods, truncated), timeout_s))

    async def routed(self, reports: Reports, *, timeout_s: float | None = None) -> Json:
        """Where requests were sent, one or up to 1,000: `pod`, and `of` (a lookup's `request_id`), tokens or hashes.

        One of several that is refused stands in `items` of the answer, with its `index`, and takes no other with it.
        """
        return _object(await self._ask(_reports("/v1/routed", reports), timeout_s))

    async def feedback(self, reports: Reports, *, timeout_s: float | None = None) -> Json:
        """What engines really reused, one request or up to 1,000: the lookup's `request_id`, `pod`, `cached_tokens`, ….

        One of several that is refused stands in `items` of the answer, with its `index`, and takes no other with it.
        """
        return _object(await self._ask(_reports("/v1/feedback", reports), timeout_s))

    async def hash(
        self,
        tokens: TokenIds | None = None,
        *,
        block_size: int,
        timeout_s: float | None = None,
        **options: Unpack[Prompt],
    ) -> Json:
        """The hashes of a prompt's blocks: `hashes`, `scheme`, `block_size`, `prompt_tokens`."""
        call = _question("/v1/hash", tokens, {**options, "block_size": block_size})
        return _object(await self._ask(call, timeout_s))

    async def sources(
        self, *, state: str | None = None, model: str | None = None, timeout_s: float | None = None
    ) -> list[Json]:
        """All sources and how each is doing. The deadline is for each page of a thousand."""
        found: list[Json] = []
        after: str | None = None
        while True:
            query = _query({"state": state, "model": model, "limit": PAGE, "after": after})
            page = _object(await self._ask(_Call("GET", f"/v1/sources{query}"), timeout_s))
            listed, after = page.get("sources"), page.get("next")
            if not isinstance(listed, list):
                raise BadAnswer("the answer is no list of sources: is this kvindexer?")
            found.extend(listed)
            if after is None or not listed:
                return found

    async def register_source(self, source: Mapping[str, Any], *, timeout_s: float | None = None) -> Json:
        """Have it listen to an engine: `pod` and `endpoint`, and what else a registration takes."""
        return _object(await self._ask(_Call("POST", "/v1/sources", _json(source), _JSON), timeout_s))

    async def replace_sources(
        self,
        sources: Iterable[Mapping[str, Any]],
        *,
        max_removals: int | None = None,
        timeout_s: float | None = None,
    ) -> Json:
        """Make these the registered ones, and no others. Refused where more than `max_removals` would go."""
        path = f"/v1/sources{_query({'max_removals': max_removals})}"
        return _object(await self._ask(_Call("PUT", path, _json(list(sources)), _JSON), timeout_s))

    async def remove_source(self, pod: str, *, dp_rank: int | None = None, timeout_s: float | None = None) -> Json:
        """Forget a pod, or one rank of it."""
        return _object(await self._ask(_Call("DELETE", _source_path(pod, dp_rank)), timeout_s))

    async def clear_source(self, pod: str, *, dp_rank: int | None = None, timeout_s: float | None = None) -> Json:
        """Forget what it holds; what it announces from now on counts."""
        return _object(await self._ask(_Call("POST", _source_path(pod, dp_rank, "/clear")), timeout_s))

    async def cordon_source(
        self, pod: str, *, cordoned: bool = True, dp_rank: int | None = None, timeout_s: float | None = None
    ) -> Json:
        """List it with score 0, or, with `cordoned=False`, score it again."""
        call = _Call("PATCH", _source_path(pod, dp_rank), _json({"cordoned": cordoned}), _JSON)
        return _object(await self._ask(call, timeout_s))

    async def partitions(self, *, timeout_s: float | None = None) -> Json:
        """Replicas, and who owns what."""
        return _object(await self._ask(_Call("GET", "/v1/partitions"), timeout_s))

    async def drain(self, replica: str, *, undo: bool = False, timeout_s: float | None = None) -> Json:
        """Have a replica hand over all that it owns; `effect` is `done` once nothing is left."""
        path = f"/v1/replicas/{quote(replica, safe='')}/drain"
        return _object(await self._ask(_Call("DELETE" if undo else "POST", path), timeout_s))

    async def version(self, *, timeout_s: float | None = None) -> Json:
        """Of the service."""
        return _object(await self._ask(_Call("GET", "/v1/version"), timeout_s))

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        headers: Sequence[tuple[str, str]] = _JSON,
        timeout_s: float | None = None,
    ) -> Reply:
        """Any other request; `headers` say what `body` is. Raises as all others do."""
        return await self._ask(_Call(method, path, body, () if body is None else tuple(headers)), timeout_s)

    async def _ask(self, call: _Call, timeout_s: float | None) -> Reply:
        reply = await self._http.send(call, self._timeout_s if timeout_s is None else timeout_s)
        if not 200 <= reply.status < 300:  # noqa: PLR2004
            phrase = httpx.codes.get_reason_phrase(reply.status)
            raise Refused(reply.status, phrase, reply.content, _seconds(reply.headers.get("retry-after")))
        return reply


def _named(pods: Any) -> tuple[list[str], str | None]:  # noqa: ANN401  # whatever a caller gives
    """The pods as a list, whatever they come in, and what is wrong with them."""
    if isinstance(pods, (str, bytes, bytearray)):
        return [pods], "pods: a list of names wanted, got one name"  # type: ignore[list-item]
    try:
        given = list(pods)
    except Exception:  # noqa: BLE001  # of the caller's own kind of list
        return [], f"pods: a list of names wanted, got {type(pods).__name__}"
    strange = [type(pod).__name__ for pod in given if not isinstance(pod, str)]
    return given, f"pods: names wanted, got {strange[0]}" if strange else None


def _candidates(pods: list[str], options: Mapping[str, Any]) -> Any:  # noqa: ANN401  # Options, and one of them set
    return {"group": "pod", **options, "pods": pods}


def _ranking(pods: list[str], answer: Answer) -> Ranking:
    if answer.state == "no_signal":
        why = "" if answer.reason is None else f": {answer.reason}"
        nearest = "" if answer.nearest_model is None else f", nearest known model: {answer.nearest_model}"
        return Ranking(pods, answer, f"no_signal{why}{nearest}")
    known = set(pods)
    return Ranking([pod for pod in answer.pods_or(pods) if pod in known], answer)


def _ranking_by(pods: list[str], found: Recommendation) -> Ranking:
    if not found.picks:
        return Ranking(pods, failure=f"{found.state}: nobody is recommended", recommendation=found)
    known = set(pods)
    named = dict.fromkeys(pick.pod for pick in found.picks if pick.pod in known)
    failure = "no_signal: by load alone; `lookup` says why" if found.state == "no_signal" else None
    return Ranking([*named, *(pod for pod in pods if pod not in named)], failure=failure, recommendation=found)


def _said(error: BaseException) -> str:
    return str(error) if isinstance(error, (KvindexerError, ValueError)) else type(error).__name__


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


def _object(reply: Reply) -> Json:
    said = reply.json()
    if not isinstance(said, dict):
        raise BadAnswer("the answer is no JSON object: is this kvindexer?")
    return said


class Client:
    """The same without asyncio, for as many threads as want. The requests go out from one thread of its own.

    That is what makes deadlines hold: whatever a server does, byte by byte if it likes, the caller waits no longer.
    The thread starts with the first call, in a forked process anew, and ends with `close`, the `with` block, or this
    object.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        ca: str | None = None,
        cert: str | tuple[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        """As `AsyncClient`. Raises ValueError for what is no such URL, OSError for a file that cannot be used."""
        self._made_of = (url, token, ca, cert, timeout_s, connections_max)
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._async, self._thread = self._made()

    def _made(self) -> tuple[AsyncClient, _Thread]:
        url, token, ca, cert, timeout_s, connections_max = self._made_of
        made = AsyncClient(url, token, ca=ca, cert=cert, timeout_s=timeout_s, connections_max=connections_max)
        thread = _Thread(made)
        self._finalize = weakref.finalize(self, thread.stop)
        return made, thread

    def __enter__(self) -> Client:  # noqa: PYI034  # Self came with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def url(self) -> str:
        """Of the service."""
        return self._async.url

    def close(self) -> None:
        """Close all connections, and end the thread."""
        self._finalize()
        self._thread.join()

    def rank(
        self,
        pods: Sequence[str],
        tokens: TokenIds | None = None,
        *,
        timeout_s: float = RANK_TIMEOUT_S,
        **options: Unpack[RankOptions],
    ) -> Ranking:
        """As `AsyncClient.rank`: never raises, and never answers later than the deadline."""
        given, problem = _named(pods)
        if problem is not None or not given:
            return Ranking(given, failure=problem)
        try:
            index = self._current()
            if index.breaker.rests():
                return index._resting(given)  # noqa: SLF001  # ours
            asked = index.rank(given, tokens, timeout_s=timeout_s, **options)
            return self._run(asked, timeout_s, cancels=False)  # so that the breaker comes to know
        except Exception as error:  # noqa: BLE001  # the promise
            return Ranking(given, failure=_said(error))

    def lookup(
        self, tokens: TokenIds | None = None, *, timeout_s: float | None = None, **options: Unpack[Options]
    ) -> Answer:
        """As `AsyncClient.lookup`."""
        return self._run(self._current().lookup(tokens, timeout_s=timeout_s, **options), timeout_s)

    def recommend(
        self, tokens: TokenIds | None = None, *, timeout_s: float | None = None, **options: Unpack[RecommendOptions]
    ) -> Recommendation:
        """As `AsyncClient.recommend`."""
        return self._run(self._current().recommend(tokens, timeout_s=timeout_s, **options), timeout_s)

    def batch(self, items: Iterable[Mapping[str, Any]], *, timeout_s: float | None = None) -> list[Answer | Refused]:
        """As `AsyncClient.batch`."""
        return self._run(self._current().batch(items, timeout_s=timeout_s), timeout_s)

    def pick(
        self,
        body: bytes | Mapping[str, Any],
        *,
        pods: Sequence[str] | None = None,
        truncated: bool = False,
        timeout_s: float | None = None,
    ) -> Picked:
        """As `AsyncClient.pick`."""
        return self._run(self._current().pick(body, pods=pods, truncated=truncated, timeout_s=timeout_s), timeout_s)

    def routed(self, reports: Reports, *, timeout_s: float | None = None) -> Json:
        """As `AsyncClient.routed`."""
        return self._run(self._current().routed(reports, timeout_s=timeout_s), timeout_s)

    def feedback(self, reports: Reports, *, timeout_s: float | None = None) -> Json:
        """As `AsyncClient.feedback`."""
        return self._run(self._current().feedback(reports, timeout_s=timeout_s), timeout_s)

    def hash(
        self,
        tokens: TokenIds | None = None,
        *,
        block_size: int,
        timeout_s: float | None = None,
        **options: Unpack[Prompt],
    ) -> Json:
        """As `AsyncClient.hash`."""
        asked: Any = {**options, "block_size": block_size}
        return self._run(self._current().hash(tokens, timeout_s=timeout_s, **asked), timeout_s)

    def sources(
        self, *, state: str | None = None, model: str | None = None, timeout_s: float | None = None
    ) -> list[Json]:
        """As `AsyncClient.sources`."""
        asked = self._current().sources(state=state, model=model, timeout_s=timeout_s)
        return self._run(asked, float("inf"))  # each page has a deadline of its own

    def register_source(self, source: Mapping[str, Any], *, timeout_s: float | None = None) -> Json:
        """As `AsyncClient.register_source`."""
        return self._run(self._current().register_source(source, timeout_s=timeout_s), timeout_s)

    def replace_sources(
        self,
        sources: Iterable[Mapping[str, Any]],
        *,
        max_removals: int | None = None,
        timeout_s: float | None = None,
    ) -> Json:
        """As `AsyncClient.replace_sources`."""
        return self._run(
            self._current().replace_sources(sources, max_removals=max_removals, timeout_s=timeout_s), timeout_s
        )

    def remove_source(self, pod: str, *, dp_rank: int | None = None, timeout_s: float | None = None) -> Json:
        """As `AsyncClient.remove_source`."""
        return self._run(self._current().remove_source(pod, dp_rank=dp_rank, timeout_s=timeout_s), timeout_s)

    def clear_source(self, pod: str, *, dp_rank: int | None = None, timeout_s: float | None = None) -> Json:
        """As `AsyncClient.clear_source`."""
        return self._run(self._current().clear_source(pod, dp_rank=dp_rank, timeout_s=timeout_s), timeout_s)

    def cordon_source(
        self, pod: str, *, cordoned: bool = True, dp_rank: int | None = None, timeout_s: float | None = None
    ) -> Json:
        """As `AsyncClient.cordon_source`."""
        asked = self._current().cordon_source(pod, cordoned=cordoned, dp_rank=dp_rank, timeout_s=timeout_s)
        return self._run(asked, timeout_s)

    def partitions(self, *, timeout_s: float | None = None) -> Json:
        """As `AsyncClient.partitions`."""
        return self._run(self._current().partitions(timeout_s=timeout_s), timeout_s)

    def drain(self, replica: str, *, undo: bool = False, timeout_s: float | None = None) -> Json:
        """As `AsyncClient.drain`."""
        return self._run(self._current().drain(replica, undo=undo, timeout_s=timeout_s), timeout_s)

    def version(self, *, timeout_s: float | None = None) -> Json:
        """As `AsyncClient.version`."""
        return self._run(self._current().version(timeout_s=timeout_s), timeout_s)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        headers: Sequence[tuple[str, str]] = _JSON,
        timeout_s: float | None = None,
    ) -> Reply:
        """As `AsyncClient.request`."""
        return self._run(self._current().request(method, path, body, headers=headers, timeout_s=timeout_s), timeout_s)

    def _current(self) -> AsyncClient:
        """What asks. A forked process has none of its parent's threads, and leaves the parent's connections alone."""
        if self._pid != os.getpid():
            with self._lock:
                if self._pid != os.getpid():
                    self._finalize.detach()
                    self._async, self._thread = self._made()
                    self._pid = os.getpid()
        return self._async

    def _run(self, asked: Coroutine[Any, Any, _T], timeout_s: float | None, *, cancels: bool = True) -> _T:
        future = self._thread.submit(asked)
        try:
            wait_s = self._timeout_s if timeout_s is None else timeout_s
            return future.result(None if wait_s == float("inf") else wait_s)
        except _LATE:
            if cancels:
                future.cancel()
            raise DeadlinePassed(f"{self.url}: no answer in time") from None
        except KeyboardInterrupt:
            future.cancel()
            raise


class _Thread:
    """Runs an event loop for one `AsyncClient`. Started by the first call, ended by `stop`."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopped = False

    def submit(self, asked: Coroutine[Any, Any, _T]) -> futures.Future[_T]:
        with self._lock:
            if self._stopped:
                asked.close()
                raise Unreachable("this client is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._turn, args=(self._loop,), name="kvindexer", daemon=True)
                self._thread.start()
            return asyncio.run_coroutine_threadsafe(asked, self._loop)

    def stop(self) -> None:
        """Have it end; whoever waits is told that nobody answers."""
        with self._lock:
            self._stopped = True
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)

    def join(self) -> None:
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            loop.run_forever()
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(self._client.close())
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()
