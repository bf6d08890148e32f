"""Looks at engines from outside, on real sockets: what is there, what is not, and what is something else."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

import pytest
import zmq

from api.demo.engine import EngineSimulator
from api.demo.publisher import ReplayFault
from indexer.clock import SystemClock
from indexer.doctor.facts import Engine, EngineHttp, Heard
from indexer.doctor.probes import engine_http, engines, listening, replaying
from indexer.doctor.probes.engine_http import Asked, ask_engines
from indexer.doctor.probes.engines import Looking
from indexer.doctor.probes.listening import listen
from indexer.doctor.probes.replaying import Asking
from indexer.doctor.probes.routes import no_route
from tests.support import nowhere
from tests.support.core_events import payload, prompt, stored
from tests.support.redis_servers import free_port
from tests.support.telling_engine import DRIPPING, NO_END, telling, tells

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLOCK = SystemClock()


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    """For the looks of one test."""
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield made
    made.destroy(linger=0)


@pytest.fixture
def engine() -> Iterator[EngineSimulator]:
    """One that publishes and replays."""
    with EngineSimulator() as made:
        yield made


@contextlib.contextmanager
def saying(engine: EngineSimulator) -> Iterator[None]:
    """A batch whenever somebody listens and heard the one before, until the block ends."""
    over = threading.Event()

    def speak() -> None:
        while not over.wait(0.01):
            if engine.subscribers:
                say(engine)

    thread = threading.Thread(target=speak, name="speaker")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def say(engine: EngineSimulator, *, lost: bool = False) -> None:
    """One batch, stamped now."""
    number = engine.sequence + 2
    engine.publish(payload(stored([number], prompt(1, number)), ts=CLOCK.wall_us() / 1e6), lost=lost)


def hear(context: zmq.Context[zmq.Socket[bytes]], endpoint: str, seconds: float = 0.5) -> Heard:
    """What one endpoint says."""
    return listen(context, [endpoint], seconds, CLOCK, threading.Event())[endpoint]


def test_an_engine_that_works_is_heard(context: zmq.Context[zmq.Socket[bytes]], engine: EngineSimulator) -> None:
    """Its batches, their rank, block size and age."""
    with saying(engine):
        heard = hear(context, engine.endpoint)

    assert heard.connected
    assert heard.batches > 1
    assert (0, 0, 0) == (heard.malformed, heard.undecodable, heard.missing)
    assert {4} == set(heard.block_sizes)
    assert [b""] == list(heard.topics)
    assert heard.skew_s is not None
    assert abs(heard.skew_s) < 5
    assert heard.first is not None
    assert heard.last is not None
    assert heard.first.sequence < heard.last.sequence


def test_an_idle_engine_is_connected_and_silent(
    context: zmq.Context[zmq.Socket[bytes]], engine: EngineSimulator
) -> None:
    """Nothing is heard, and nothing is said to be wrong."""
    heard = hear(context, engine.endpoint, 0.1)

    assert (True, False, 0, None) == (heard.connected, heard.refused, heard.batches, heard.first)


def test_what_is_missing_and_what_cannot_be_read_is_counted(
    context: zmq.Context[zmq.Socket[bytes]], engine: EngineSimulator
) -> None:
    """Numbers that are jumped over, messages that are no batches, batches that hold no events."""

    def speak() -> None:
        engine.wait_subscribers(1)
        say(engine)
        say(engine, lost=True)
        engine.publish_raw([b"hello"])
        engine.publish(b"\xc1 no MessagePack")

    speaker = threading.Thread(target=speak)
    speaker.start()
    heard = hear(context, engine.endpoint)
    speaker.join()

    assert (2, 1, 1, 1) == (heard.batches, heard.missing, heard.malformed, heard.undecodable)


def test_swapped_endpoints_are_recognised(context: zmq.Context[zmq.Socket[bytes]], engine: EngineSimulator) -> None:
    """A replay socket takes no subscriber, and answers as what it is."""
    heard = hear(context, str(engine.replay_endpoint), 0.1)

    assert (False, True, True) == (heard.connected, heard.refused, heard.is_replay)


def test_another_server_is_no_publisher(
    context: zmq.Context[zmq.Socket[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An HTTP server, for one."""
    monkeypatch.setattr(listening, "SHAKE_S", 0.2)
    monkeypatch.setattr(listening, "_REPLAY_SHAKE_MS", 200)
    with telling({}) as address:
        heard = hear(context, f"tcp://{address}", 0.1)

    assert (False, False) == (heard.connected, heard.is_replay)


def test_a_server_that_keeps_the_line_is_no_replay_socket(
    context: zmq.Context[zmq.Socket[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it says is taken for an old ZMQ's greeting; only an answer counts."""
    monkeypatch.setattr(listening, "SHAKE_S", 0.2)
    monkeypatch.setattr(listening, "_REPLAY_SHAKE_MS", 200)
    with socket.create_server(("127.0.0.1", 0)) as server:
        lines: list[socket.socket] = []

        def chatter() -> None:
            with contextlib.suppress(OSError):
                while True:
                    lines.append(server.accept()[0])
                    lines[-1].sendall(b"HTTP/1.1 400 Bad Request\r\nconnection: keep-alive\r\n\r\n")

        thread = threading.Thread(target=chatter)
        thread.start()
        heard = hear(context, f"tcp://127.0.0.1:{server.getsockname()[1]}", 0.1)
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for each in lines:
            each.close()

    assert not heard.is_replay


def test_nothing_and_what_is_no_address_are_told_apart(tmp_path: Path) -> None:
    """Refused, unknown, not there; and open, where it is."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert no_route(f"tcp://127.0.0.1:{port}") is None
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as path:
        path.bind(str(tmp_path / "s"))
        path.listen()
        assert no_route(f"ipc://{tmp_path / 's'}") is None

    assert "connection refused" == no_route(f"tcp://127.0.0.1:{free_port()}")
    assert "no such file or directory" == no_route(f"ipc://{tmp_path / 'none'}")
    assert "its name is not known here" == no_route("tcp://no-such-host.invalid:1")


@pytest.fixture
def asking(context: zmq.Context[zmq.Socket[bytes]]) -> Asking:
    """Of replay endpoints."""
    return Asking(context, CLOCK, threading.Event())


def test_replay_reaches_back_to_the_start(asking: Asking, engine: EngineSimulator) -> None:
    """The oldest batch, and the one that was heard, are the engine's."""
    for _ in range(40):
        say(engine)
    first = asking.replayed(str(engine.replay_endpoint), None).oldest
    assert first is not None
    again = asking.replayed(str(engine.replay_endpoint), first)

    assert (True, True, True) == (again.connected, again.answers, again.same)
    assert 0 == first.sequence
    assert first.ts is not None


def test_replay_of_another_engine_is_recognised(asking: Asking, engine: EngineSimulator) -> None:
    """By the stamp of a batch of that number; and where it has nothing while something was heard."""
    with EngineSimulator() as other:
        say(engine)
        heard = asking.replayed(str(engine.replay_endpoint), None).oldest
        empty = asking.replayed(str(other.replay_endpoint), heard)
        say(other)
        full = asking.replayed(str(other.replay_endpoint), heard)

    assert (True, None, False) == (empty.answers, empty.oldest, empty.same)
    assert (True, False) == (full.answers, full.same)


def test_replay_that_is_asked_in_vain(asking: Asking, engine: EngineSimulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher in its place is none, and one that stands still does not answer."""
    monkeypatch.setattr(replaying, "PATIENCE_S", 0.5)
    engine.fault_next_replay(ReplayFault(silent=True))
    still = asking.replayed(str(engine.replay_endpoint), None)
    wrong = asking.replayed(engine.endpoint, None)

    assert (True, False) == (still.connected, still.answers)
    assert (False, False) == (wrong.connected, wrong.answers)


def asked(address: str) -> EngineHttp:
    """What an engine at that address says."""
    return ask_engines({"a": Asked(address, 0)}, threading.Event())["a"]


def test_what_an_engine_tells_of_itself() -> None:
    """All of it; of a path that is not there nothing."""
    with telling(tells(block_size=32, caching=False, version="0.31.0", model="llama")) as address:
        whole = asked(address)
    with telling({"/metrics": b""}) as address:
        bare = asked(address)

    assert (None, "0.31.0", 32, 500, False, ("llama",)) == (
        whole.trouble,
        whole.version,
        whole.block_size,
        whole.num_gpu_blocks,
        whole.prefix_caching,
        whole.models,
    )
    assert (3.0, 1.0) == whole.load
    assert whole.events is not None
    assert (True, "tcp://*:6557", 10_000) == (
        whole.events.enabled,
        whole.events.replay_endpoint,
        whole.events.buffer_steps,
    )
    assert (None, None, None, None, None) == (bare.trouble, bare.version, bare.prefix_caching, bare.models, bare.events)
    assert bare.load is None
    text = b"trtllm_num_requests_running 2\ntrtllm_num_requests_waiting 5\n"
    with telling({"/metrics": b'[{"iter": 1}]', "/prometheus/metrics": text}) as address:
        assert (2.0, 5.0) == asked(address).load


@pytest.mark.parametrize(
    ("answers", "trouble"),
    [
        ({}, "/metrics is not there"),
        ({"/metrics": "http://127.0.0.1:1/"}, "/metrics is not there"),
        *(({"/metrics": place}, "/metrics is not there") for place in nowhere.LOCATIONS),
        ({"/metrics": NO_END}, "an answer of more than 8388608 bytes"),
    ],
)
def test_an_engine_that_tells_nothing(answers: dict[str, bytes | str], trouble: str) -> None:
    """A redirect is not followed, and an answer without end is cut."""
    with telling(answers) as address:
        assert trouble == asked(address).trouble


@pytest.mark.parametrize("host", nowhere.HOSTS)
def test_an_engine_whose_name_is_none(host: str) -> None:
    """As one that is not there."""
    assert "no HTTP server answers there" == asked(f"{host}:80").trouble


def test_an_engine_that_does_not_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the connection, and that is all; or does not even."""
    monkeypatch.setattr(engine_http, "PATIENCE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        silent = asked(f"127.0.0.1:{server.getsockname()[1]}")
    gone = asked(f"127.0.0.1:{free_port()}")

    assert ("no whole answer in 0.2 s", "no HTTP server answers there") == (silent.trouble, gone.trouble)


def test_an_engine_whose_headers_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line comes in time, and the whole does not; whoever stops does not wait for it."""
    stop = threading.Event()
    with telling({"/metrics": DRIPPING}) as address:
        stopped = threading.Thread(target=ask_engines, args=({"a": Asked(address, 0)}, stop))
        stopped.start()
        stop.set()
        stopped.join(engine_http.PATIENCE_S / 2)
        assert not stopped.is_alive()
        monkeypatch.setattr(engine_http, "PATIENCE_S", 0.2)
        assert "no whole answer in 0.2 s" == asked(address).trouble


def test_answers_that_say_something_else() -> None:
    """JSON of another form is as good as none."""
    odd = {"/metrics": b"\xff\xfe", "/version": b"[1]", "/v1/models": b'{"data": [1, {"id": 2}]}'}
    deep = dict.fromkeys(("/version", "/v1/models", "/kv_event_sources"), b'{"0":' + b"[" * 100_000)
    with telling({**odd, "/kv_event_sources": b'{"0": {"buffer_steps": true}}'}) as address:
        told = asked(address)
    with telling({"/metrics": b"", **deep}) as address:
        nothing = asked(address)

    assert (None, None, None) == (told.trouble, told.version, told.models)
    assert (None, None, None, None) == (nothing.trouble, nothing.version, nothing.models, nothing.events)
    assert told.events is not None
    assert told.events.enabled is None


def test_many_are_looked_at_together(engine: EngineSimulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by its own endpoints; what is not to be looked at, or is beyond the limit, is told so."""
    monkeypatch.setattr(engines, "ENGINES_MAX", 2)
    said: list[str] = []
    with telling(tells()) as address, saying(engine):
        fleet = [
            Engine(pod="a", endpoint=engine.endpoint, replay_endpoint=engine.replay_endpoint, address=address),
            Engine(pod="gone", endpoint=f"tcp://127.0.0.1:{free_port()}"),
            Engine(pod="one too many", endpoint=engine.endpoint),
        ]
        looking = Looking(CLOCK, threading.Event(), said.append)
        found = looking.look(fleet, 0.3, lambda _: None)
        left = looking.look(fleet[:1], 0.3, lambda _: "elsewhere")

    assert found["a"].heard is not None
    assert found["a"].heard.batches
    assert found["a"].replayed is not None
    assert found["a"].replayed.same
    assert found["a"].http is not None
    assert 500 == found["a"].http.num_gpu_blocks
    assert ("connection refused", None) == (found["gone"].no_route, found["gone"].heard)
    assert "doctor looks at 2 at most" == found["one too many"].skipped
    assert ("elsewhere", None) == (left["a"].skipped, left["a"].heard)
    assert any("listening to 1 endpoints" in each for each in said)


def test_a_stop_ends_all_early(engine: EngineSimulator) -> None:
    """What was not begun is missing, and nobody waits."""
    stop = threading.Event()
    done: list[dict[str, object]] = []

    def look() -> None:
        fleet = [Engine(pod="a", endpoint=engine.endpoint, replay_endpoint=engine.replay_endpoint)]
        done.append(dict(Looking(CLOCK, stop, lambda _: None).look(fleet, 600.0, lambda _: None)))

    thread = threading.Thread(target=look)
    thread.start()
    engine.wait_subscribers(1)
    stop.set()
    thread.join(timeout=20)

    assert not thread.is_alive()
    assert ["a"] == list(done[0])
    assert 0 == engine.replays_answered


def test_who_takes_connections_and_is_silent(
    context: zmq.Context[zmq.Socket[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waited for as long as a handshake may take, and no longer."""
    monkeypatch.setattr(listening, "SHAKE_S", 0.2)
    monkeypatch.setattr(listening, "_REPLAY_SHAKE_MS", 200)
    with socket.create_server(("127.0.0.1", 0)) as server:
        heard = hear(context, f"tcp://127.0.0.1:{server.getsockname()[1]}", 0.1)

    assert (False, False, 0) == (heard.connected, heard.is_replay, heard.batches)


def test_an_endpoint_that_is_none_harms_no_other(
    context: zmq.Context[zmq.Socket[bytes]], engine: EngineSimulator
) -> None:
    """It counts as refused."""
    heard = listen(context, ["tcp://a b:1", engine.endpoint], 0.1, CLOCK, threading.Event())

    assert [True, False] == [heard["tcp://a b:1"].refused, heard[engine.endpoint].refused]
    assert heard[engine.endpoint].connected
