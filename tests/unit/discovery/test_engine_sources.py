"""What an engine says of where it publishes: what is taken of it, and what never is."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from indexer.discovery import engine_sources
from indexer.discovery.engine_sources import ANSWER_BYTES_MAX, event_sources
from indexer.discovery.event_endpoints import NotTold, read_event_sources
from tests.support.busy_engine import busy_engine, whole

if TYPE_CHECKING:
    from collections.abc import Callable

HOST = "10.0.0.5"


def _read(
    said: object, host: str = HOST, allows: Callable[[str], bool] | None = None
) -> dict[int, tuple[str, str | None]]:
    return {
        rank: tuple(told) for rank, told in read_event_sources(json.dumps(said).encode(), host, allows).of_rank.items()
    }


def _zmq(endpoint: object, replay: object = None) -> dict[str, object]:
    return {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": endpoint, "replay_endpoint": replay}


def test_the_ranks_of_an_engine_with_free_ports() -> None:
    """Each rank has the port that it was given, at the host that was asked."""
    said = {"0": _zmq("tcp://10.0.0.5:41234", "tcp://*:41235"), "1": _zmq("tcp://10.0.0.5:41236", "tcp://[::]:41237")}

    assert {
        0: ("tcp://10.0.0.5:41234", "tcp://10.0.0.5:41235"),
        1: ("tcp://10.0.0.5:41236", "tcp://10.0.0.5:41237"),
    } == _read(said)


def test_a_list_of_ranks() -> None:
    """The other form: the rank stands in each."""
    said = [{"data_parallel_rank": 3, "endpoint": "tcp://0.0.0.0:5560", "replay_endpoint": "", "topic": ""}]

    assert {3: ("tcp://10.0.0.5:5560", None)} == _read(said)


@pytest.mark.parametrize("endpoint", ["tcp://*:5557", "tcp://0.0.0.0:5557", "tcp://[::]:5557", "tcp://10.0.0.5:5557"])
def test_a_wildcard_is_the_host_that_was_asked(endpoint: str) -> None:
    """An engine binds everywhere; it is reached where it was asked."""
    assert {0: ("tcp://10.0.0.5:5557", None)} == _read({"0": _zmq(endpoint)})


def test_ipv6_is_compared_as_an_address() -> None:
    """Two spellings are one host, and the one that was asked is used."""
    said = {"0": _zmq("tcp://[FD00:0::5]:5557")}

    assert {0: ("tcp://[fd00::5]:5557", None)} == _read(said, "[fd00::5]")


@pytest.mark.parametrize(
    "endpoint",
    [
        *("tcp://10.0.0.6:5557", "tcp://169.254.169.254:80", "tcp://localhost:5557", "tcp://127.0.0.1:5557"),
        *("tcp://10.0.0.5:0", "tcp://10.0.0.5:65536", "tcp://10.0.0.5", "ipc:///run/kv", "inproc://x", "http://*:1"),
        *("tcp://*:5557\n", "tcp://a b:5557", "", None, 5557, ["tcp://*:5557"], "tcp://*:" + "9" * 5000),
    ],
)
def test_nothing_else_is_connected_to(endpoint: object) -> None:
    """Another host, another transport or no port: the rank is left out, its neighbour stays."""
    said = {"0": _zmq(endpoint), "1": _zmq("tcp://*:5558"), "2": _zmq("tcp://*:5559", endpoint or "x")}

    assert {1: ("tcp://10.0.0.5:5558", None)} == _read(said)


def test_another_host_where_it_is_allowed() -> None:
    """Who knows which hosts are engines may say so."""
    asked: list[str] = []

    def allows(endpoint: str) -> bool:
        return asked.append(endpoint) is None

    assert {1: ("tcp://10.0.0.6:5557", None)} == _read({"1": _zmq("tcp://10.0.0.6:5557")}, allows=allows)
    assert ["tcp://10.0.0.6:5557"] == asked


@pytest.mark.parametrize("off", [{"enable_kv_cache_events": False}, {"publisher": "null"}])
def test_events_that_are_off_are_no_source(off: dict[str, object]) -> None:
    """The engine says itself that it publishes nothing."""
    assert {} == _read({"0": _zmq("tcp://*:5557") | off})


def test_ranks_that_are_none_are_left_out() -> None:
    """Negative, too large, text, a truth value: none of them costs the others."""
    ranks = {rank: _zmq("tcp://*:5557") for rank in ("-1", "65536", "x", "٣", "1" * 5000, "7")}
    listed = [{"data_parallel_rank": rank, "endpoint": "tcp://*:5557"} for rank in (True, -1, 1.5, "0", 2, 2)]

    assert [7] == [*_read(ranks)]
    assert [2] == [*_read([*listed, None, "x"])]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"null", b"7", b'"x"', b"\xff", b"[" * 100_000, json.dumps([{}] * 257).encode()]
)
def test_what_is_no_answer(content: bytes) -> None:
    """No JSON, no map, or too much of it."""
    with pytest.raises(NotTold):
        read_event_sources(content, HOST)


def _asked(body: object, status: str = "200 OK") -> tuple[object, list[str]]:
    """What an engine that answers so is taken to say, and what it was asked."""

    async def ask() -> tuple[object, list[str]]:
        async with busy_engine() as engine:
            engine.answer = whole(json.dumps(body), status)
            return await event_sources(engine.address), engine.asked

    return asyncio.run(ask())


def test_an_engine_is_asked() -> None:
    """Over a real connection, once."""
    told, asked = _asked({"0": _zmq("tcp://*:5557", "tcp://*:6557")})

    assert {0: ("tcp://127.0.0.1:5557", "tcp://127.0.0.1:6557")} == told
    assert ["/kv_event_sources"] == asked


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        ({}, "200 OK", "names no source"),
        ({"0": _zmq("tcp://10.9.9.9:1")}, "200 OK", "another host"),
        ({}, "404 Not Found", "404"),
        ({}, "302 Found", "302"),
    ],
)
def test_why_nothing_is_told(body: object, status: str, why: str) -> None:
    """In words, for whoever looks why a pod is no source."""
    with pytest.raises(NotTold, match=why):
        _asked(body, status)


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an answer without end no more is read, and one that never comes is not waited for."""

    async def ask() -> None:
        async with busy_engine() as engine:
            engine.answer = b"HTTP/1.1 200 OK\r\n\r\n"
            engine.without_end = True
            with pytest.raises(NotTold, match=str(ANSWER_BYTES_MAX)):
                await event_sources(engine.address)
            engine.answer, engine.without_end = b"", False
            monkeypatch.setattr(engine_sources, "PATIENCE_S", 0.05)
            with pytest.raises(NotTold, match="in time"):
                await event_sources(engine.address)
        with pytest.raises(NotTold, match="refused"):
            await event_sources(engine.address)
        with pytest.raises(NotTold, match="address"):
            await event_sources("nowhere")

    asyncio.run(ask())
