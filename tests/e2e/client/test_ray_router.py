"""The router for Ray Serve without Ray: what it makes of a real service, and of one that is away or out of its mind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import socket
import ssl
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from kvindexer_ray import BODY_BYTES_MAX, CONNECTIONS_MAX, REPORTS_MAX, REST_AFTER, Index, KvindexerRouter, Ranked
from tests.support.answering import answering, ok, saying, trickling, trickling_body
from tests.support.certificates import Authority
from tests.support.served_fleet import DEADLINE_S, MODEL, PODS, ServedFleet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

STRANGER = "ab12cd34"
NOTHING = Ranked([])
KNOWN = ok(b'{"state": "exact", "request_id": "r", "picks": [{"pod": "a", "total": 0.5}]}')
RANKED = Ranked(["a"], "r")


class Id(NamedTuple):
    unique_id: str


@dataclass
class Replica:
    """As Serve has them, as far as the router looks."""

    unique_id: str
    routing_stats: dict[str, Any] = field(default_factory=dict)

    @property
    def replica_id(self) -> Id:
        return Id(self.unique_id)


def _pending(*args: object, session: str = "", **kwargs: object) -> Any:  # noqa: ANN401  as Serve's
    return SimpleNamespace(
        args=args,
        kwargs=kwargs,
        metadata=SimpleNamespace(session_id=session),
        routing_context=SimpleNamespace(should_backoff=False),
    )


@contextlib.asynccontextmanager
async def _router(url: str, queues: dict[Id, int] | None = None) -> AsyncIterator[KvindexerRouter]:
    """`queues`: of replicas, as far as Serve knows them."""
    router = KvindexerRouter()
    router.replica_queue_len_cache = queues or {}
    router.initialize_state(url=url, timeout_s=DEADLINE_S, model=MODEL)
    yield router
    assert router.index
    await router.index.aclose()


def _probed(fleet: ServedFleet) -> tuple[list[int], dict[str, int]]:
    """A prompt, and what each pod holds of it: not all the same."""
    return next((list(tokens), cached) for tokens, cached in fleet.probed(40) if len(set(cached.values())) > 1)


@pytest.fixture(params=["replica ids", "routing stats"])
def replicas(request: pytest.FixtureRequest) -> list[Replica]:
    """One that is named as the index knows it, by either way, and one that the index does not know."""
    if request.param == "replica ids":
        return [Replica(STRANGER), *map(Replica, PODS)]
    return [Replica(STRANGER), *(Replica(f"r{i}", {"kvindexer_pod": pod}) for i, pod in enumerate(PODS))]


async def _chosen(router: KvindexerRouter, replicas: list[Replica], pending: Any) -> list[Replica]:  # noqa: ANN401
    """One by one, in the order in which they are tried first; then come all of them."""
    *first, last = await router.choose_replicas(replicas, pending)
    assert [1] * len(first) == [len(group) for group in first]
    assert sorted(replicas, key=str) == sorted(last, key=str)
    return [replica for group in first for replica in group]


def test_replicas_come_by_what_they_hold(fleet: ServedFleet, replicas: list[Replica]) -> None:
    """Whoever holds most is the first, whoever holds least, or is unknown, the last."""
    tokens, cached = _probed(fleet)

    async def choose() -> list[Replica]:
        async with _router(fleet.url) as router:
            return await _chosen(router, replicas, _pending({"token_ids": tokens}))

    named = dict(zip([STRANGER, *PODS], replicas, strict=True))
    pods = [next(pod for pod, each in named.items() if each is replica) for replica in asyncio.run(choose())]

    assert sorted(cached.values(), reverse=True) == [cached[pod] for pod in pods if cached.get(pod)] + [
        0 for held in cached.values() if not held
    ]
    assert {STRANGER, *PODS} == set(pods)


def test_replicas_come_by_their_queues_where_they_hold_the_same(fleet: ServedFleet) -> None:
    """As Serve was told of them; a session has its own among equals, whatever the prompt."""
    queues = {Id(PODS[0]): 9, Id(PODS[1]): 0, Id(PODS[2]): 5}
    replicas = [*map(Replica, PODS)]

    async def choose() -> tuple[list[Replica], set[str]]:
        async with _router(fleet.url, queues) as router:
            by_queue = await _chosen(router, replicas, _pending(token_ids=[7_000_000]))
        async with _router(fleet.url) as router:
            asked = [_pending(token_ids=[7_000_000 + i], session="s") for i in range(8)]
            return by_queue, {(await _chosen(router, replicas, each))[0].unique_id for each in asked}

    by_queue, of_session = asyncio.run(choose())
    assert [PODS[1], PODS[2], PODS[0]] == [replica.unique_id for replica in by_queue]
    assert 1 == len(of_session)


def test_a_request_that_waits_is_asked_of_once(fleet: ServedFleet) -> None:
    """Serve calls again while all are full, and is told to pause in between; another request is another question."""
    tokens, _ = _probed(fleet)
    pending = _pending(token_ids=tokens)

    async def choose() -> int:
        async with _router(fleet.url) as router:
            for _ in range(5):
                await router.choose_replicas([*map(Replica, PODS)], pending)
            await router.choose_replicas([*map(Replica, PODS)], _pending(token_ids=tokens))
            return router.index.counts["ranked"]

    assert 2 == asyncio.run(choose())
    assert pending.routing_context.should_backoff


@pytest.mark.parametrize("call", [None, _pending(), _pending("Once"), _pending({"prompt": object()})])
def test_what_cannot_be_asked_of_is_not(call: Any) -> None:  # noqa: ANN401  whatever comes
    """All replicas, and nothing is sent."""

    async def choose(url: str) -> tuple[list[list[Replica]], int]:
        async with _router(url) as router:
            chosen = await router.choose_replicas([Replica("a")], call)
            return chosen, router.index.counts.total()

    with answering(saying(KNOWN)) as url:
        assert ([[Replica("a")]], 0) == asyncio.run(choose(url))


def test_what_makes_no_json_is_this_requests_matter() -> None:
    """Everybody else is asked of as before."""

    async def choose(url: str) -> dict[str, int]:
        async with _router(url) as router:
            for _ in range(2 * REST_AFTER):
                pending = _pending({"messages": [object()]})
                assert [[Replica("a")]] == await router.choose_replicas([Replica("a")], pending)
            assert RANKED == await router.index.ranked({})
            return router.index.counts

    with answering(saying(KNOWN)) as url:
        assert {"failed": 2 * REST_AFTER, "ranked": 1} == asyncio.run(choose(url))


def test_where_requests_went_is_told(fleet: ServedFleet) -> None:
    """In arrays, under the request id of the answer; blocks are then expected there."""
    tokens, _ = _probed(fleet)
    novel = [7_000_000 + token for token in tokens]

    async def tell() -> dict[str, int]:
        async with contextlib.aclosing(Index(fleet.url, timeout_s=DEADLINE_S)) as index:
            question = {"model": MODEL, "pods": PODS, "token_ids": novel}
            for _ in range(3):
                ranked = await index.ranked(question)
                assert ranked.names
                index.tell({"pod": PODS[1], "of": ranked.request_id})
            await _told(index)
            return index.counts

    before = _expected(fleet)
    assert {"ranked": 3, "reports_sent": 3} == asyncio.run(tell())
    assert 3 == _expected(fleet) - before


def _expected(fleet: ServedFleet) -> float:
    """Reports of what nobody holds yet."""
    told = re.findall(r'^kvindexer_routed_total\{result="expected"\} (\S+)$', fleet.metrics(), re.MULTILINE)
    return sum(map(float, told))


async def _told(index: Index) -> None:
    """Return when no report is under way."""
    async with asyncio.timeout(DEADLINE_S):
        while index._telling is not None:
            await asyncio.wait([index._telling])


def test_reports_that_find_no_room_are_counted() -> None:
    """The way of a request never waits for them; those that fail are counted, too, and no failure of the index."""

    async def tell(url: str) -> dict[str, int]:
        async with contextlib.aclosing(Index(url, timeout_s=DEADLINE_S)) as index:
            for _ in range(REPORTS_MAX + 7):
                index.tell({"pod": "a", "of": "r"})
            await _told(index)
            assert not index.breaker.rests()
            return index.counts

    with answering(saying(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")) as url:
        assert {"reports_dropped": 7, "reports_lost": REPORTS_MAX} == asyncio.run(tell(url))


def _standing() -> float:
    """A clock of which no rest ever ends."""
    return 100.0


def _left_alone(url: str, timeout_s: float = DEADLINE_S) -> dict[str, int]:
    """All questions are without an answer, and after the first few nobody asks; then what they were counted as."""

    async def ask() -> dict[str, int]:
        async with contextlib.aclosing(Index(url, timeout_s=timeout_s, clock=_standing)) as index:
            for _ in range(10):
                assert NOTHING == await index.ranked({"token_ids": [1]})
            assert index.breaker.rests()
            assert index._links._count == len(index._links._idle)
            index.tell({"pod": "a", "of": "r"})
            return index.counts

    return dict(asyncio.run(ask()))


RESTED = {"rested": 10 - REST_AFTER, "reports_dropped": 1}


def test_nobody_there_is_left_alone() -> None:
    """A port where nobody listens, and a socket that is not there."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        for url in (f"http://127.0.0.1:{reserved.getsockname()[1]}", "unix:/nowhere/socket"):
            assert {"failed": REST_AFTER, **RESTED} == _left_alone(url)


def test_a_frozen_index_is_left_at_the_deadline(fleet: ServedFleet) -> None:
    """Stopped as a whole: its kernel still takes connections and requests."""
    fleet.service.send_signal(signal.SIGSTOP)
    try:
        assert {"late": REST_AFTER, **RESTED} == _left_alone(fleet.url, 0.02)
    finally:
        fleet.service.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("slow", [trickling, trickling_body])
def test_an_answer_that_never_ends_is_left_at_the_deadline(
    slow: Callable[[socket.socket, threading.Event], None],
) -> None:
    """Although every byte comes in time."""
    with answering(slow) as url:
        assert {"late": REST_AFTER, **RESTED} == _left_alone(url, 0.05)


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"",
        b"x" * 200_000,
        b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n99999999999\r\n",
        b"HTTP/9 all right\r\n\r\n",
        ok(b"<html>"),
        ok(b"[]"),
        ok(b"\xff"),
        ok(b'{"state": "exact", "request_id": "r", "picks": [{"pod": 3}]}'),
        b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n",
    ],
)
def test_garbage_is_no_answer(said: bytes) -> None:
    """Another protocol, an end in the middle, another service, a gateway that has nobody behind it."""
    with answering(saying(said)) as url:
        assert {"failed": REST_AFTER, **RESTED} == _left_alone(url)


def test_an_index_that_says_when_is_left_alone_at_once() -> None:
    """It has too much to do."""
    said = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 30\r\ncontent-length: 0\r\n\r\n"
    with answering(saying(said)) as url:
        assert {"failed": 1, "rested": 9, "reports_dropped": 1} == _left_alone(url)


def test_what_was_not_asked_says_nothing_of_the_index() -> None:
    """Its failures before and after are in a row."""

    async def ask(url: str) -> bool:
        async with contextlib.aclosing(Index(url, timeout_s=DEADLINE_S, clock=_standing)) as index:
            for question in ({}, {}, {"messages": [object()]}, {}):
                assert NOTHING == await index.ranked(question)
            return index.breaker.rests()

    with answering(saying(b"")) as url:
        assert asyncio.run(ask(url))


def test_a_question_that_is_refused_is_no_failure_of_the_index(caplog: pytest.LogCaptureFixture) -> None:
    """The next one is asked, and the log says so once."""
    said = b"HTTP/1.1 422 Unprocessable Content\r\ncontent-length: 0\r\n\r\n"

    async def ask(url: str) -> dict[str, int]:
        async with contextlib.aclosing(Index(url, timeout_s=DEADLINE_S)) as index:
            for _ in range(10):
                assert NOTHING == await index.ranked({})
            return index.counts

    with answering(saying(said)) as url:
        assert {"failed": 10} == asyncio.run(ask(url))
    assert [1] == [record.getMessage().count("HTTP status 422") for record in caplog.records]


def _turns(connection: socket.socket, _over: threading.Event) -> None:
    """One answer after the other, each as soon as a request has come, in pieces and whole."""
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    content = KNOWN.partition(b"\r\n\r\n")[2]
    pieces = b"".join(b"1;x=y\r\n%c\r\n" % byte for byte in content)
    for said in (KNOWN, chunked + pieces + b"0\r\nx: y\r\n\r\n", KNOWN):
        if not connection.recv(65_536):
            return
        connection.sendall(said)
    connection.recv(65_536)
    connection.shutdown(socket.SHUT_RDWR)


def _once(connection: socket.socket, over: threading.Event) -> None:
    """One answer, and word that it is the last; what comes after is not read."""
    connection.recv(65_536)
    connection.sendall(KNOWN.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    over.wait(DEADLINE_S)


@pytest.mark.parametrize("answer", [_turns, _once])
def test_a_kept_connection_that_was_closed_costs_no_answer(
    answer: Callable[[socket.socket, threading.Event], None],
) -> None:
    """It is asked again, on another; answers may come in chunks."""

    async def ask(url: str) -> list[Ranked]:
        async with contextlib.aclosing(Index(url, timeout_s=DEADLINE_S)) as index:
            return [await index.ranked({}) for _ in range(10)]

    with answering(answer) as url:
        assert [RANKED] * 10 == asyncio.run(ask(url))


def test_a_connection_that_takes_longer_than_an_answer_may_is_there_for_the_next(tmp_path: Path) -> None:
    """TLS to a far place: the first request goes without, and no request ever waits for a second handshake."""
    authority = Authority(tmp_path)
    certificate, key = authority.issue()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    late = threading.Event()
    accepted: list[int] = []

    def slow(connection: socket.socket, _over: threading.Event) -> None:
        accepted.append(1)
        late.wait(DEADLINE_S)
        with context.wrap_socket(connection, server_side=True) as secured:
            for _ in range(2):
                secured.recv(65_536)
                secured.sendall(KNOWN)

    async def ask(url: str) -> list[Ranked]:
        async with contextlib.aclosing(
            Index(url.replace("http:", "https:"), ca=str(authority.file), timeout_s=0.05)
        ) as index:
            first = await index.ranked({})
            late.set()
            async with asyncio.timeout(DEADLINE_S):
                while not index._links._idle:
                    await asyncio.wait(index._links._opening)
            index._timeout_s = DEADLINE_S
            return [first, await index.ranked({}), await index.ranked({})]

    with answering(slow) as url:
        assert [NOTHING, RANKED, RANKED] == asyncio.run(ask(url))
    assert [1] == accepted


def test_connections_are_bounded_and_closed() -> None:
    """More requests at once go without an answer; what was cancelled or late leaves none behind."""
    waits = threading.Event()
    heard: list[bytes] = []

    def answer(connection: socket.socket, _over: threading.Event) -> None:
        heard.append(connection.recv(65_536))
        waits.wait(DEADLINE_S)
        connection.sendall(KNOWN)

    async def ask(url: str) -> tuple[list[Ranked], int]:
        async with contextlib.aclosing(Index(url, timeout_s=DEADLINE_S)) as index:
            async with asyncio.TaskGroup() as tasks:
                asked = [tasks.create_task(index.ranked({})) for _ in range(CONNECTIONS_MAX + 3)]
                async with asyncio.timeout(DEADLINE_S):
                    await asyncio.wait(asked[-3:])
                    while len(heard) < CONNECTIONS_MAX:  # noqa: ASYNC110  told by a thread
                        await asyncio.sleep(0.01)
                asked[0].cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await asked[0]
                held = index._links._count
                waits.set()
            return [task.result() for task in asked[1:]], held

    with answering(answer) as url:
        answers, held = asyncio.run(ask(url))
    assert [RANKED] * (CONNECTIONS_MAX - 1) + [NOTHING] * 3 == answers
    assert CONNECTIONS_MAX - 1 == held


def test_a_prompt_that_is_too_long_is_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    """It would keep the loop that carries all requests."""

    async def ask(url: str) -> tuple[Ranked, bool]:
        async with contextlib.aclosing(Index(url, timeout_s=DEADLINE_S)) as index:
            return await index.ranked({"prompt": "x" * BODY_BYTES_MAX}), index._links._count > 0

    with answering(saying(KNOWN)) as url:
        assert (NOTHING, False) == asyncio.run(ask(url))
    assert "a prompt of more than" in caplog.text


def test_a_salt_goes_in_no_url() -> None:
    """Which is logged."""
    heard: list[bytes] = []

    def answer(connection: socket.socket, _over: threading.Event) -> None:
        heard.append(connection.recv(65_536))
        connection.sendall(KNOWN)

    async def ask(url: str) -> Ranked:
        async with contextlib.aclosing(Index(url, timeout_s=DEADLINE_S)) as index:
            return await index.ranked({"token_ids": [1], "cache_salt": "salz"})

    with answering(answer) as url:
        assert RANKED == asyncio.run(ask(url))
    assert heard[0].startswith(b"POST /v1/recommend HTTP/1.1\r\n")
    assert b"\r\nx-kvindexer-cache-salt: salz\r\n" in heard[0]


def test_a_token_is_shown_and_never_told(caplog: pytest.LogCaptureFixture) -> None:
    """Nor is anything of a prompt, whatever goes wrong."""
    heard: list[bytes] = []

    def answer(connection: socket.socket, _over: threading.Event) -> None:
        heard.append(connection.recv(65_536))
        connection.sendall(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n")

    async def ask(url: str) -> None:
        strange = {"prompt": "Geheim"}, {"prompt": "Geheim\ud800"}, {"prompt": "Geheim", "tools": object()}
        async with contextlib.aclosing(Index(url, token="kvi_secret", timeout_s=DEADLINE_S)) as index:  # noqa: S106
            for question in strange:
                await index.ranked(question)

    with answering(answer) as url:
        asyncio.run(ask(url))
    assert [True] * len(heard) == [b"\r\nauthorization: Bearer kvi_secret\r\n" in each for each in heard]
    assert heard
    assert "no form for a request" in caplog.text
    assert "eheim" not in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "http://127.0.0.1:1", "timeout_ms": 5}, "there is no timeout_ms"),
        ({"url": "127.0.0.1:1"}, "http://HOST:PORT, https://HOST:PORT or unix:/PATH wanted"),
        ({}, "http://HOST:PORT, https://HOST:PORT or unix:/PATH wanted"),
        ({"url": 8080}, "request_router_kwargs"),
        ({"url": "http://127.0.0.1:1", "token": "a\nb"}, "a token is printable ASCII"),
        ({"url": "https://127.0.0.1:1", "ca": "nowhere.pem"}, "No such file"),
    ],
)
def test_a_wrong_configuration_is_told_and_routes_without(
    options: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Serve would have no router at all, and every request would wait for one."""
    router = KvindexerRouter()
    router.initialize_state(**options)

    assert said in caplog.text
    pending = _pending(token_ids=[1])
    assert [[Replica("a")]] == asyncio.run(router.choose_replicas([Replica("a")], pending))
    assert pending.routing_context.should_backoff


def test_json_is_asked_under_the_deadline(fleet: ServedFleet) -> None:
    """The service hears of the deadline, and answers a strange model with why it knows nothing."""

    async def ask() -> tuple[Ranked, dict[str, int]]:
        async with contextlib.aclosing(Index(fleet.url, timeout_s=DEADLINE_S)) as index:
            ranked = await index.ranked(json.loads('{"model": "nobody", "token_ids": [1]}'))
            return ranked, index.counts

    ranked, counts = asyncio.run(ask())
    assert ([], {"unknown": 1}) == (ranked.names, counts)
    assert ranked.request_id
