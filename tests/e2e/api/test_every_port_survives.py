"""Whatever comes to any port of a real service, and however it goes away: then it answers correctly, at every port.

Clients that are killed in the middle of something, that are stopped and stay, that flood (loopback, bounded), that
send garbage: to REST, its Unix socket, gRPC, and the socket that engines connect to. The same where TLS is spoken and
tokens are asked for, behind the handshake and instead of it.
"""

from __future__ import annotations

import contextlib
import random
import re
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
import zmq

from kvindexer_client import Client, Refused
from schemas.rpc.kvindexer.v1.kvindexer_pb2 import LookupRequest
from schemas.rpc.kvindexer.v1.kvindexer_pb2_grpc import KvIndexerStub
from tests.support.callers import EVERY, token_of, write_tokens
from tests.support.certificates import Authority
from tests.support.connecting_engine import ConnectingEngine, tokens_of
from tests.support.redis_servers import free_port, wait_for
from tests.support.rude_clients import HELLO, PREFACE, TOKENS, ZMTP, Key, connect, openings, plain_channel
from tests.support.served_fleet import MODEL, PODS, Lock, ServedFleet

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
DOORS = {
    "plain": ("rest", "uds", "grpc", "zmq"),
    "secured": ("https", "grpcs", "tls", "tls-grpc", "uds", "zmq"),
}
"""By kind of service. `tls` and `tls-grpc` are the ports of `https` and `grpcs`, where bytes come as they are."""
PROCESSES = 3
LONG_S = 60.0
BOUND_POD = "bound:8000"
SPARE_FILES = 16
"""Open files that come and go with checks of ours."""

every_door = pytest.mark.parametrize(
    ("service", "door"), [(kind, door) for kind, doors in DOORS.items() for door in doors], indirect=["service"]
)
each_kind = pytest.mark.parametrize("service", DOORS, indirect=True)


def _locked(folder: Path) -> Lock:
    """TLS by an authority of the test's own, and one caller that may do all."""
    authority = Authority(folder)
    tls = authority.tls()
    environment = {
        "KVINDEXER_AUTH__TOKENS_FILE": str(write_tokens(folder / "tokens.json", ("router", EVERY, None))),
        "KVINDEXER_AUTH__TLS__CERTIFICATE": str(tls.certificate),
        "KVINDEXER_AUTH__TLS__KEY": str(tls.key),
    }
    return Lock(environment, token_of("router"), str(authority.file))


class Service(ServedFleet):
    """One with all ports, and an engine at each side of it."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.bound = f"tcp://127.0.0.1:{free_port()}"
        self.uds = str(folder / "s")
        lock = _locked(folder) if kind == "secured" else None
        self.key = None if lock is None else Key(lock.ca, lock.token)
        super().__init__("--uds", self.uds, "--source-bind", self.bound, "--grpc-port", "0", lock=lock)
        found = re.search(r"grpcs?://([0-9.:]+)", self.banner)
        assert found, self.banner
        self.grpc = found[1]
        self.engine = ConnectingEngine(self.bound, BOUND_POD, MODEL)

    def __exit__(self, *args: object) -> None:
        self.engine.close()
        super().__exit__(*args)

    def address(self, door: str) -> str:
        """As `connect` takes it."""
        rest = self.url.partition("://")[2]
        return {
            **dict.fromkeys(("rest", "https", "tls"), rest),
            **dict.fromkeys(("grpc", "grpcs", "tls-grpc"), self.grpc),
            "uds": self.uds,
            "zmq": self.bound.removeprefix("tcp://"),
        }[door]

    def connected(self, door: str) -> socket.socket:
        """To that door."""
        return connect(door, self.address(door), self.key)

    def client(self, url: str, *, known: bool = True) -> Client:
        """One that is let in, or shows no token."""
        key = self.key
        ca = key.ca if key is not None and url.startswith("https") else None
        return Client(url, key.token if key is not None and known else None, ca=ca, timeout_s=LONG_S)

    def channel(self) -> grpc.Channel:
        """To gRPC, on a connection of its own."""
        return plain_channel(self.grpc) if self.key is None else self.key.channel(self.grpc)

    @property
    def metadata(self) -> list[tuple[str, str]]:
        """Of a call that is let in."""
        return [] if self.key is None else self.key.metadata

    def open_files(self) -> int:
        """Of its process."""
        return len(list(Path(f"/proc/{self.service.pid}/fd").iterdir()))

    def assert_right(self) -> None:
        """Every door answers, with what the engines hold; and engines are still heard."""
        assert self.service.poll() is None, self.log()
        for url in (self.url, f"unix:{self.uds}"):
            with self.client(url) as index:
                for tokens, cached in self.probed():
                    answer = index.lookup(tokens, model=MODEL, pods=PODS)
                    assert cached == {entry.pod: entry.reusable_tokens for entry in answer.pods}
        with self.channel() as channel:
            for tokens, cached in self.probed():
                asked = LookupRequest(token_ids=tokens, model=MODEL, pods=PODS)
                told = KvIndexerStub(channel).Lookup(asked, metadata=self.metadata, timeout=LONG_S)
                assert cached == {entry.pod: entry.reusable_tokens for entry in told.pods}
        self.engine.publish(1)
        held = tokens_of(self.engine.said)
        with self.client(self.url) as index:
            wait_for(
                lambda: len(held) == index.lookup(held, model=MODEL, pods=[BOUND_POD]).pods[0].matched_tokens,
                "an engine that connects to be heard",
            )
        if self.key is not None:
            self._assert_locked()

    def _assert_locked(self) -> None:
        """Who shows no token is let in nowhere."""
        for url in (self.url, f"unix:{self.uds}"):
            with self.client(url, known=False) as stranger, pytest.raises(Refused) as refused:
                stranger.lookup([1])
            assert 401 == refused.value.status
        with self.channel() as channel, pytest.raises(grpc.RpcError) as unknown:
            KvIndexerStub(channel).Lookup(LookupRequest(token_ids=[1]), timeout=LONG_S)
        assert grpc.StatusCode.UNAUTHENTICATED is unknown.value.code()  # type: ignore[attr-defined]


@contextlib.contextmanager
def _surviving(folder: Path, kind: str) -> Iterator[Service]:
    """One for all, which has to survive them one after the other. In the end its log tells no fault and no token."""
    with Service(folder, kind) as started:
        started.play_to_first_probe()
        yield started
        log = started.log()
    assert "Traceback" not in log
    assert not re.search(r"^\S+ \S+ (ERROR|CRITICAL)", log, re.MULTILINE), log
    assert token_of("router") not in log


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Whoever reaches a port may ask there."""
    with _surviving(tmp_path_factory.mktemp("plain"), "plain") as started:
        yield started


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """With TLS, and tokens."""
    with _surviving(tmp_path_factory.mktemp("secured"), "secured") as started:
        yield started


@pytest.fixture
def service(request: pytest.FixtureRequest) -> Service:
    """One of the two, by its name."""
    chosen: Service = request.getfixturevalue(request.param)
    return chosen


@pytest.fixture(autouse=True)
def _right_before_and_after(service: Service) -> Iterator[None]:
    """And nothing of those who came is left open."""
    service.assert_right()
    before = service.open_files()
    yield
    service.assert_right()
    wait_for(lambda: service.open_files() <= before + SPARE_FILES, "what was open for them to be closed")


@contextlib.contextmanager
def _rude(service: Service, door: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes with clients in the middle of something, killed at the latest in the end."""
    opens = () if service.key is None else service.key
    words = [sys.executable, "-m", "tests.support.rude_clients", door, service.address(door), *opens]
    processes = [subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("held")
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@every_door
def test_clients_that_are_killed(service: Service, door: str) -> None:
    """In the middle of heads, bodies, answers, streams and handshakes."""
    with _rude(service, door) as processes:
        for process in processes:
            process.send_signal(signal.SIGKILL)


@every_door
def test_clients_that_are_stopped(service: Service, door: str) -> None:
    """Their connections stay, and nobody reads or writes at the other end; others are served meanwhile."""
    with _rude(service, door) as processes:
        for process in processes:
            process.send_signal(signal.SIGSTOP)
        service.assert_right()


# --- floods ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("service", "door"),
    [("plain", "rest"), ("plain", "uds"), ("secured", "https"), ("secured", "uds")],
    indirect=["service"],
)
def test_a_flood_of_requests(service: Service, door: str) -> None:
    """Many connections, each with many requests behind each other; whoever reads gets an answer to each that counts."""
    request = openings(door, service.key)[4]
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(service.connected(door)) for _ in range(100)]
        for sock in socks:
            sock.settimeout(LONG_S)
            sock.sendall(request[: len(request) // 5] * 10)
        service.assert_right()
        for sock in socks:
            assert sock.recv(12).startswith(b"HTTP/1.1 ")


@every_door
def test_a_flood_of_connections(service: Service, door: str) -> None:
    """Far more than a router has, opened, a few bytes sent, and closed, again and again."""
    begun = openings(door, service.key)
    for _ in range(5):
        with contextlib.ExitStack() as stack:
            for number in range(300):
                with contextlib.suppress(ConnectionError, ssl.SSLEOFError):  # a limit that is reached
                    sock = stack.enter_context(service.connected(door))
                    sock.sendall(begun[number % len(begun)][:100])


@each_kind
@pytest.mark.parametrize("known", [True, False])
def test_a_flood_of_calls(service: Service, known: bool) -> None:
    """All at once on one connection; each is answered, or refused as too many, or as a stranger's."""
    metadata = service.metadata if known else []
    with service.channel() as channel:
        stub = KvIndexerStub(channel)
        question = LookupRequest(token_bytes=TOKENS, model=MODEL)
        calls = [stub.Lookup.future(question, metadata=metadata, timeout=LONG_S) for _ in range(500)]
        codes = {call.code() for call in calls}

    answered = grpc.StatusCode.OK if metadata or service.key is None else grpc.StatusCode.UNAUTHENTICATED
    assert codes <= {answered, grpc.StatusCode.RESOURCE_EXHAUSTED}


@each_kind
def test_a_flood_of_messages_of_engines(service: Service) -> None:
    """From peers that announce nonsense under a hundred names, as fast as they can.

    Each less than its queue here holds (4,096): what more of them may do while the loop is held, and a peer then dies,
    is told in indexer/decisions/0010.
    """
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        peers = [context.socket(zmq.PUB) for _ in range(8)]
        for peer in peers:
            peer.set(zmq.LINGER, 0)
            peer.connect(service.bound)
        for number in range(20_000):
            frames = [b"kv@junk-%d@%s" % (number % 100, MODEL.encode()), number.to_bytes(8, "big"), b"\x93\xc0\xc0\xc0"]
            peers[number % len(peers)].send_multipart(frames)
        service.assert_right()
    finally:
        context.destroy(linger=0)


# --- garbage ---------------------------------------------------------------------------------------------------------


def _garbage(door: str, key: Key | None) -> Iterator[bytes]:
    """What speaks another protocol, what breaks this one's rules, and chance."""
    yield from (PREFACE, ZMTP, b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + bytes(500), b"\0" * 70_000, b"\n" * 5_000)
    yield from (
        b"GET / HTTP/1.1\r\n\r\n",
        b"SSH-2.0-x\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n",
    )
    for opening in openings(door, key):
        for cut in range(0, min(len(opening), 300), 23):
            yield opening[:cut] + b"\xff\0\r\n" + opening[cut : cut + 200]
    post = b"POST /v1/lookup HTTP/1.1\r\nhost: x\r\n"
    for header in (
        b"content-length: -1",
        b"content-length: 99999999999999999999",
        b"content-length: 4\r\ncontent-length: 5",
        b"transfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        b"transfer-encoding: chunked\r\ncontent-length: 4",
        b"content-encoding: gzip\r\ncontent-length: 4\r\n\r\n\x1f\x8b\0\0",
        b"x: " + b"y" * 100_000,
        b"\0: \0",
    ):
        yield post + header + b"\r\n\r\n" + TOKENS[:16]
    for kind in range(12):  # frames of HTTP/2, each larger than it says, or of a stream that is not there
        yield PREFACE + b"\x01\0\0" + bytes([kind, 0xFF]) + b"\x7f\xff\xff\xff" + b"\xff" * 9
    chance = random.Random(4)
    for _ in range(40):
        yield chance.randbytes(chance.randrange(1, 3_000))
        yield ZMTP + chance.randbytes(chance.randrange(1, 300))
        yield PREFACE + chance.randbytes(chance.randrange(1, 300))
        yield HELLO + chance.randbytes(chance.randrange(1, 300))


@every_door
def test_garbage(service: Service, door: str) -> None:
    """Each on a connection of its own, which then is closed, or first closed for writing alone."""
    for number, said in enumerate(_garbage(door, service.key)):
        with service.connected(door) as sock, contextlib.suppress(OSError):  # it may hang up
            sock.sendall(said)
            if number % 2:
                sock.shutdown(socket.SHUT_WR)


@each_kind
def test_a_peer_that_speaks_the_oldest_protocol(service: Service) -> None:
    """A whole message in ZMTP 1.0, which noise is taken for: nobody is registered by it, and nobody else misses any."""
    parts = [b"kv@oldest@" + MODEL.encode(), bytes(8), b"\x93\xc0\x90\xc0"]
    frames = [bytes([len(part) + 1, number < 2]) + part for number, part in enumerate(parts)]
    with service.connected("zmq") as sock:
        for _ in range(20):
            sock.sendall(b"\x01\0" + b"".join(frames))
            service.engine.publish(1)
        service.assert_right()

    assert BOUND_POD in (pods := {source["pod"] for source in service.facts()})
    assert "oldest" not in pods


@each_kind
def test_garbage_in_messages_of_engines(service: Service) -> None:
    """Well framed, and nonsense inside: under no name, under odd ones, in too few frames and too many."""
    chance = random.Random(5)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        peer = context.socket(zmq.PUB)
        peer.set(zmq.LINGER, 0)
        peer.connect(service.bound)
        topics = (
            b"",
            b"kv",
            b"kv@",
            b"kv@@",
            b"kv@\xff\xfe@m",
            b"kv@a@b@c",
            b"kv@" + b"x" * 5_000 + b"@m",
            b"kv@odd@m",
        )
        for number in range(2_000):
            head = [chance.choice(topics), chance.choice((number.to_bytes(8, "big"), b"", b"\xff" * 8, b"1234567"))]
            body = [chance.randbytes(chance.randrange(200)) for _ in range(chance.randrange(4))]
            peer.send_multipart(head + body)
        service.assert_right()
    finally:
        context.destroy(linger=0)
