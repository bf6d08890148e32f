"""`kvindexer replay` as its own process, seen by plain ZMQ sockets: the recording arrives byte for byte."""

from __future__ import annotations

import re
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from api.demo.trace import Trace

TRACES = Path(__file__).parents[1] / "golden" / "traces"
DEADLINE_MS = 30_000
FREE_PORTS = ("--endpoint-base", "tcp://127.0.0.1:0", "--replay-base", "tcp://127.0.0.1:0")
FLAG = re.compile(
    r"--source (?P<pod>\S+?)=(?P<endpoint>tcp://[^,\s]+)(,replay=(?P<replay>[^,\s]+))?,model=(?P<model>[^,\s]+)(,blocks=(?P<blocks>\d+))?"
)


class Replaying:
    """The command and the sockets that listen to it."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._sockets: list[zmq.Socket[bytes]] = []
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, trace: str, *arguments: str, engines: int = 3) -> tuple[subprocess.Popen[str], list[re.Match[str]]]:
        """Start it, and read the flags that it prints."""
        process = subprocess.Popen(
            [sys.executable, "-m", "indexer", "replay", str(TRACES / trace), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        assert process.stdout is not None
        flags: list[re.Match[str]] = []
        for line in process.stdout:
            found = FLAG.search(line)
            flags.extend([found] if found else [])
            if len(flags) == engines:
                break
        return process, flags

    def connect(self, kind: int, endpoint: str) -> zmq.Socket[bytes]:
        """A socket that loses nothing."""
        socket = self._context.socket(kind)
        self._sockets.append(socket)
        socket.set(zmq.RCVHWM, 0)
        socket.set(zmq.RCVTIMEO, DEADLINE_MS)
        socket.set(zmq.RECONNECT_IVL, 10)
        if kind == zmq.SUB:
            socket.subscribe(b"")
        socket.connect(endpoint)
        return socket

    def close(self) -> None:
        """Nothing is left."""
        for socket in self._sockets:
            socket.close(linger=0)
        self._context.term()
        for process in self._processes:
            process.kill()
            process.communicate()


@pytest.fixture
def replaying() -> Iterator[Replaying]:
    """Closed at the end."""
    made = Replaying()
    yield made
    made.close()


def recorded(trace: str, pod: int) -> list[list[bytes]]:
    """The frames of one engine."""
    messages = Trace(TRACES / trace).messages()
    return [[m.topic, m.sequence_frame, m.payload] for m in messages if m.pod == pod]


@pytest.mark.parametrize("trace", ["basic.kvt.gz", "clear.kvt.gz"])
def test_every_message_arrives_as_recorded(replaying: Replaying, trace: str) -> None:
    """On each engine's own port, over its restarts too, and the command ends by itself with 0."""
    process, flags = replaying.start(trace, *FREE_PORTS, "--speed", "max", "--wait-subscribers", "--hold", "0")
    sockets = [replaying.connect(zmq.SUB, flag["endpoint"]) for flag in flags]
    poller = zmq.Poller()
    for socket in sockets:
        poller.register(socket, zmq.POLLIN)
    got: dict[zmq.Socket[bytes], list[list[bytes]]] = {socket: [] for socket in sockets}
    wanted = [recorded(trace, pod) for pod in range(len(sockets))]
    while sum(map(len, got.values())) < sum(map(len, wanted)):
        ready = poller.poll(DEADLINE_MS)
        assert ready, "nothing came"
        for socket, _ in ready:
            got[socket].append(socket.recv_multipart())

    assert wanted == [got[socket] for socket in sockets]
    assert 0 == process.wait(30)


def test_the_flags_name_pod_model_and_both_endpoints(replaying: Replaying) -> None:
    """As the topic says; ready to be given to `serve`."""
    process, flags = replaying.start("basic.kvt.gz", *FREE_PORTS, "--speed", "max")

    assert [f"10.0.0.{n}:8000" for n in (1, 2, 3)] == [flag["pod"] for flag in flags]
    assert {("tiny-llama", "20000")} == {(flag["model"], flag["blocks"]) for flag in flags}
    assert 6 == len({flag[name] for flag in flags for name in ("endpoint", "replay")})
    assert process.poll() is None


def test_what_is_lost_on_the_way_can_be_replayed(replaying: Replaying) -> None:
    """Every batch is lost here; the engines stay and replay them all until the command is told to end, then 0."""
    process, flags = replaying.start("basic.kvt.gz", *FREE_PORTS, "--speed", "max", "--loss", "1")
    wanted = recorded("basic.kvt.gz", 0)
    assert process.stdout is not None
    assert "engines stay" in process.stdout.readline()
    socket = replaying.connect(zmq.DEALER, flags[0]["replay"])
    socket.send_multipart([b"", struct.pack(">Q", 0)])
    got = [socket.recv_multipart() for _ in range(len(wanted) + 1)]

    assert [[b"", *frames] for frames in wanted] == got[:-1]
    assert [b"", b"", b"\xff" * 8, b""] == got[-1]
    process.send_signal(signal.SIGINT)
    assert (0, "") == (process.wait(30), process.stdout.read())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_in_the_middle(replaying: Replaying, number: signal.Signals) -> None:
    """Ends at once, without a traceback, and says by 130 that not all was published."""
    process, _ = replaying.start(
        "basic.kvt.gz", "--endpoint-base", "tcp://127.0.0.1:0", "--no-replay", "--speed", "0.001"
    )
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)

    assert (130, "") == (process.returncode, errors)


def test_a_loop_begins_again_as_new_processes(replaying: Replaying) -> None:
    """After the last number comes 0."""
    _, flags = replaying.start("basic.kvt.gz", *FREE_PORTS, "--speed", "max", "--wait-subscribers", "--loop")
    sockets = [replaying.connect(zmq.SUB, flag["endpoint"]) for flag in flags]
    poller = zmq.Poller()
    for socket in sockets:
        poller.register(socket, zmq.POLLIN)
    began: dict[zmq.Socket[bytes], int] = dict.fromkeys(sockets, 0)
    while min(began.values()) < 2:
        ready = poller.poll(DEADLINE_MS)
        assert ready, "nothing came"
        for socket, _ in ready:
            began[socket] += socket.recv_multipart()[1] == bytes(8)


def test_mistakes_are_one_line() -> None:
    """No trace, a taken port: which, why, and no traceback."""
    with zmq.Context() as context, context.socket(zmq.PUB) as taken:
        port = taken.bind_to_random_port("tcp://127.0.0.1")
        for arguments, code, told in (
            (["nowhere.kvt.gz"], 2, "no such file"),
            ([str(TRACES / "README.md")], 2, "not a gzip stream"),
            ([str(TRACES / "basic.kvt.gz"), "--endpoint-base", "udp://h:1"], 2, "tcp://HOST:PORT wanted"),
            ([str(TRACES / "basic.kvt.gz"), "--replay-base", "tcp://127.0.0.1:5558"], 2, "closer than the 3 pods need"),
            ([str(TRACES / "basic.kvt.gz"), "--endpoint-base", f"tcp://127.0.0.1:{port}"], 2, "Address already in use"),
        ):
            ended = subprocess.run(
                [sys.executable, "-m", "indexer", "replay", *arguments], capture_output=True, text=True, check=False
            )
            assert code == ended.returncode, arguments
            assert ended.stderr.startswith("kvindexer: "), ended.stderr
            assert told in ended.stderr
            assert 1 == ended.stderr.count("\n")
