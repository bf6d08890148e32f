"""The engine simulator on real sockets, seen by a plain subscriber and a plain replay client."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from api.demo.engine import EngineFailed, EngineSimulator
from api.demo.publisher import ReplayFault, Wire

END = b"\xff" * 8
DEADLINE_MS = 10_000
LARGE = 300


def number(value: int) -> bytes:
    """A sequence number as on the wire."""
    return struct.pack(">Q", value)


class Peers:
    """The sockets on the other side, closed when the test ends."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._open: list[zmq.Socket[bytes]] = []

    def connect(self, kind: int, endpoint: str | None, *, hwm: int = 0) -> zmq.Socket[bytes]:
        """A socket of this kind that loses nothing and waits for nothing longer than the deadline."""
        assert endpoint is not None
        socket = self._context.socket(kind)
        self._open.append(socket)
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.RCVHWM, hwm)
        socket.set(zmq.RCVTIMEO, DEADLINE_MS)
        socket.set(zmq.RECONNECT_IVL, 10)
        if kind == zmq.SUB:
            socket.subscribe(b"")
        socket.connect(endpoint)
        return socket

    def close(self) -> None:
        """All of them."""
        for socket in self._open:
            socket.close()
        self._context.term()


@pytest.fixture
def peers() -> Iterator[Peers]:
    """The other side."""
    made = Peers()
    yield made
    made.close()


def subscribe(peers: Peers, engine: EngineSimulator) -> zmq.Socket[bytes]:
    """A SUB socket that is surely connected: the engine has seen its subscription."""
    socket = peers.connect(zmq.SUB, engine.endpoint)
    engine.wait_subscribers(1)
    return socket


def reconnected(socket: zmq.Socket[bytes], engine: EngineSimulator) -> None:
    """Return when the engine sees the subscription again. A SUB socket repeats it only while somebody polls it."""
    for _ in range(DEADLINE_MS // 10):
        if engine.subscribers:
            break
        socket.poll(10)
    assert 1 == engine.subscribers


def dealer(peers: Peers, engine: EngineSimulator) -> zmq.Socket[bytes]:
    """A socket to ask for replay."""
    return peers.connect(zmq.DEALER, engine.replay_endpoint)


def replay(socket: zmq.Socket[bytes], start: int) -> list[list[bytes]]:
    """Everything that comes for this request, the end marker included."""
    socket.send_multipart([b"", number(start)])
    got = [socket.recv_multipart()]
    while got[-1][-2] != END:
        got.append(socket.recv_multipart())
    return got


def test_a_batch_is_three_frames(peers: Peers) -> None:
    """Topic, 8-byte big-endian number from 0, payload as given."""
    with EngineSimulator(topic=b"kv@pod@model") as engine:
        socket = subscribe(peers, engine)
        assert [0, 1] == [engine.publish(b"first"), engine.publish(b"second", topic=b"other")]
        assert [b"kv@pod@model", number(0), b"first"] == socket.recv_multipart()
        assert [b"other", number(1), b"second"] == socket.recv_multipart()
        assert 1 == engine.sequence


def test_replay_in_the_three_frame_form(peers: Peers) -> None:
    """Batches from the start on, oldest first, then the marker; the payload is that of the live message."""
    with EngineSimulator(topic=b"t") as engine:
        for payload in (b"a", b"b", b"c"):
            engine.publish(payload)
        engine.flush()
        assert [
            [b"", b"t", number(1), b"b"],
            [b"", b"t", number(2), b"c"],
            [b"", b"", END, b""],
        ] == replay(dealer(peers, engine), 1)


def test_replay_in_the_two_frame_form(peers: Peers) -> None:
    """Engines before 0.26 leave the topic out, in the marker too."""
    with EngineSimulator(topic=b"t", wire=Wire(replay_topic_frame=False)) as engine:
        engine.publish(b"a")
        engine.flush()
        assert [[b"", number(0), b"a"], [b"", END, b""]] == replay(dealer(peers, engine), 0)


def test_replay_beyond_the_newest_is_only_the_marker(peers: Peers) -> None:
    """Also for an engine that has published nothing."""
    with EngineSimulator() as engine:
        socket = dealer(peers, engine)
        assert [[b"", b"", END, b""]] == replay(socket, 0)
        engine.publish(b"a")
        engine.flush()
        assert [[b"", b"", END, b""]] == replay(socket, 1)


def test_replay_is_bounded_and_does_not_tell(peers: Peers) -> None:
    """What is older than the buffer is silently not there."""
    with EngineSimulator(wire=Wire(buffer_steps=3)) as engine:
        for _ in range(5):
            engine.publish(b"x")
        engine.flush()
        assert [number(2), number(3), number(4), END] == [frames[2] for frames in replay(dealer(peers, engine), 0)]


def test_a_long_replay_arrives_whole(peers: Peers) -> None:
    """10,000 batches to a reader that reads at once: none is missing."""
    with EngineSimulator() as engine:
        for _ in range(10_000):
            engine.publish(b"x" * 100)
        engine.flush()
        got = replay(dealer(peers, engine), 0)
        assert [*map(number, range(10_000)), END] == [frames[2] for frames in got]


@pytest.mark.parametrize("request_frames", [[number(0)], [b"", b"", number(0)], [b"x", number(0)]])
def test_a_request_without_its_delimiter_is_not_answered(peers: Peers, request_frames: list[bytes]) -> None:
    """It is dropped; the next request on the same socket is answered."""
    with EngineSimulator() as engine:
        engine.publish(b"a")
        engine.flush()
        socket = dealer(peers, engine)
        socket.send_multipart(request_frames)
        assert [[b"", b"", number(0), b"a"], [b"", b"", END, b""]] == replay(socket, 0)
        assert 1 == engine.replays_answered


def test_a_req_socket_gets_its_first_reply(peers: Peers) -> None:
    """It adds the delimiter itself; a start of any length is a number."""
    with EngineSimulator() as engine:
        socket = peers.connect(zmq.REQ, engine.replay_endpoint)
        socket.send(b"\x00")
        assert [b"", END, b""] == socket.recv_multipart()


def test_a_lost_batch_is_numbered_and_can_be_replayed(peers: Peers) -> None:
    """The subscriber sees a jump; replay fills it."""
    with EngineSimulator() as engine:
        socket = subscribe(peers, engine)
        engine.publish(b"a")
        engine.publish(b"b", lost=True)
        engine.publish(b"c")
        assert [number(0), number(2)] == [socket.recv_multipart()[1] for _ in range(2)]
        assert [b"b", b"c", b""] == [frames[-1] for frames in replay(dealer(peers, engine), 1)]


def test_a_dropped_number_is_gone_for_good(peers: Peers) -> None:
    """An encode error uses a number up: neither sent nor replayed."""
    with EngineSimulator() as engine:
        engine.publish(b"a")
        engine.drop(2)
        assert 3 == engine.publish(b"d")
        engine.flush()
        assert [number(0), number(3), END] == [frames[2] for frames in replay(dealer(peers, engine), 0)]


def test_raw_frames_leave_as_they_are(peers: Peers) -> None:
    """Not numbered, not kept."""
    with EngineSimulator() as engine:
        socket = subscribe(peers, engine)
        engine.publish_raw([b"only one frame"])
        assert 0 == engine.publish(b"a")
        assert [[b"only one frame"], [b"", number(0), b"a"]] == [socket.recv_multipart() for _ in range(2)]


def test_a_restart_counts_from_zero_on_the_same_ports(peers: Peers) -> None:
    """The subscriber's socket reconnects by itself; nothing of the old life can be replayed."""
    with EngineSimulator() as engine:
        socket = subscribe(peers, engine)
        ports = engine.endpoint, engine.replay_endpoint
        engine.publish(b"old")
        engine.publish(b"old")
        assert [number(0), number(1)] == [socket.recv_multipart()[1] for _ in range(2)]
        engine.restart()
        assert ports == (engine.endpoint, engine.replay_endpoint)
        reconnected(socket, engine)
        assert 0 == engine.publish(b"new")
        assert [b"", number(0), b"new"] == socket.recv_multipart()
        assert [b"new", b""] == [frames[-1] for frames in replay(dealer(peers, engine), 0)]


def test_what_was_published_before_a_restart_is_delivered(peers: Peers) -> None:
    """More than the sockets' buffers hold, as a busy machine leaves it there; then the new life's first."""
    with EngineSimulator() as engine:
        socket = peers.connect(zmq.SUB, engine.endpoint, hwm=1)  # the rest waits in the engine
        engine.wait_subscribers(1)
        for _ in range(LARGE):
            engine.publish(bytes(100_000))
        engine.restart()
        assert [number(each) for each in range(LARGE)] == [socket.recv_multipart()[1] for _ in range(LARGE)]
        reconnected(socket, engine)
        engine.publish(b"new")
        assert [b"", number(0), b"new"] == socket.recv_multipart()


def test_a_broken_connection_keeps_the_life(peers: Peers) -> None:
    """What is published while it is broken is missed, and can be replayed."""
    with EngineSimulator() as engine:
        socket = subscribe(peers, engine)
        engine.publish(b"a")
        assert number(0) == socket.recv_multipart()[1]
        engine.hang_up()
        assert 0 == engine.subscribers
        engine.publish(b"b")
        engine.come_back()
        reconnected(socket, engine)
        engine.publish(b"c")
        assert number(2) == socket.recv_multipart()[1]
        assert [b"b", b"c", b""] == [frames[-1] for frames in replay(dealer(peers, engine), 1)]


def test_an_ended_process_forgets_everything() -> None:
    """Between `stop` and `restart` batches go nowhere and the next life does not know them."""
    with EngineSimulator() as engine:
        engine.publish(b"a")
        engine.stop()
        assert -1 == engine.sequence
        engine.restart()
        assert 0 == engine.publish(b"b")


def test_without_replay_endpoint_there_is_none(peers: Peers) -> None:
    """As is the engine's default."""
    with EngineSimulator(replay_endpoint=None) as engine:
        socket = subscribe(peers, engine)
        engine.publish(b"a")
        assert number(0) == socket.recv_multipart()[1]
        assert engine.replay_endpoint is None


def test_replay_faults_happen_once_each(peers: Peers) -> None:
    """Silence, a lost middle, a missing end; then all is well again."""
    with EngineSimulator() as engine:
        for payload in (b"a", b"b", b"c"):
            engine.publish(payload)
        engine.flush()
        for fault in (ReplayFault(silent=True), ReplayFault(end_marker=False), ReplayFault(omit=frozenset({1}))):
            engine.fault_next_replay(fault)
        socket = dealer(peers, engine)
        socket.send_multipart([b"", number(0)])  # no answer
        socket.send_multipart([b"", number(0)])  # no end
        assert [b"a", b"b", b"c", b"a", b"c", b""] == [frames[-1] for frames in replay(socket, 0)]
        assert [b"a", b"b", b"c", b""] == [frames[-1] for frames in replay(socket, 0)]


def test_a_taken_port_is_an_error_and_leaves_nothing() -> None:
    """The start fails with the endpoint in the message, and the engine is closed."""
    with EngineSimulator() as first:
        second = EngineSimulator(first.endpoint)
        with pytest.raises(EngineFailed, match=first.endpoint):
            second.start()
        with pytest.raises(EngineFailed, match="not running"):
            second.publish(b"a")
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("engine ")]


def test_close_may_be_called_at_any_time(peers: Peers) -> None:
    """Never started, twice, and with a subscriber that reads nothing."""
    never = EngineSimulator()
    never.close()
    engine = EngineSimulator()
    with engine:
        subscribe(peers, engine)
        for _ in range(20_000):
            engine.publish(b"x" * 500)
        engine.close()
        engine.close()
        with pytest.raises(EngineFailed):
            engine.publish(b"a")


def test_what_was_published_arrives_although_the_engine_closes(peers: Peers) -> None:
    """With time to linger, a close loses nothing on its way."""
    engine = EngineSimulator()
    engine.start()
    socket = subscribe(peers, engine)
    for _ in range(2_000):
        engine.publish(b"x" * 2_000)
    engine.close(linger_ms=DEADLINE_MS)
    assert list(map(number, range(2_000))) == [socket.recv_multipart()[1] for _ in range(2_000)]


def test_waiting_for_a_subscriber_has_an_end() -> None:
    """And says what it waited for."""
    with EngineSimulator() as engine, pytest.raises(EngineFailed, match="1 subscribers"):
        engine.wait_subscribers(1, timeout_s=0.01)


def test_an_ipc_endpoint_works(peers: Peers, tmp_path: Path) -> None:
    """Engines on the same host may publish on a path."""
    with EngineSimulator(f"ipc://{tmp_path}/kv", None) as engine:
        socket = subscribe(peers, engine)
        engine.publish(b"a")
        assert b"a" == socket.recv_multipart()[2]
