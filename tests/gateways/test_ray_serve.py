"""A real Ray Serve with our router: requests go where their prompts are, and never miss an index that is away."""

from __future__ import annotations

import contextlib
import signal
import socket
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.engine.waiting import wait_until
from tests.gateways.conftest import PODS, Beside
from tests.support.answering import answering, saying
from tests.support.core_events import BLOCK
from tests.support.core_service import RunningService

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ASKED = 12


def test_replicas_are_known_by_their_ids_and_by_what_they_say(beside: Beside) -> None:
    """The README's deployment and the one that records routing stats."""
    assert PODS == wait_until("names are told", lambda: beside.ray.do("names", "named"), holds=PODS.__eq__)
    assert {*PODS, *beside.ray.do("names", "engines")} == set(beside.engines)


def test_requests_land_where_their_prompt_is(beside: Beside) -> None:
    """Each of them, at each replica."""
    wait_until("names are told", lambda: beside.ray.do("names", "named"), holds=PODS.__eq__)
    for pod in PODS:
        assert [pod] * ASKED == beside.ask("named", beside.prompt_of(pod), ASKED)


def test_the_lines_of_the_readme_route_by_prefix(beside: Beside) -> None:
    """As they stand, but for address and model: each answer that came within their 5 ms decided."""
    for replica in beside.ray.do("names", "engines"):
        prompt = beside.prompt_of(replica)
        before, answered = beside.counts("engines"), []
        while beside.counts("engines")["ranked"] < before["ranked"] + ASKED:
            answered += beside.ask("engines", prompt, 1)
        elsewhere = len(answered) - answered.count(replica)

        assert elsewhere <= len(answered) - (beside.counts("engines")["ranked"] - before["ranked"])


def test_requests_follow_what_the_index_says(beside: Beside) -> None:
    """When one engine has lost a prompt and another computed it."""
    wait_until("names are told", lambda: beside.ray.do("names", "named"), holds=PODS.__eq__)
    prompt = beside.prompt_of(PODS[0])
    assert [PODS[0]] * ASKED == beside.ask("named", prompt, ASKED)
    beside.hold(PODS[1], prompt)
    assert 204 >= beside.service.call("POST", f"/v1/sources/{PODS[0]}/clear").status_code
    wait_until("it is forgotten", lambda: not beside.held(PODS[0], prompt))

    assert [PODS[1]] * ASKED == beside.ask("named", prompt, ASKED)


def test_where_requests_went_is_told_the_index(beside: Beside) -> None:
    """All of them, behind their backs: also those of a prompt that nobody holds."""
    before = _routed(beside)
    unheard = [9] * (2 * BLOCK)
    beside.ask("named", beside.prompt_of(PODS[0]), ASKED)
    beside.ask("named", unheard, ASKED)

    wait_until("all are told", lambda: _routed(beside) - before, holds=lambda told: told == 2 * ASKED)


def _routed(beside: Beside) -> float:
    """Reports that were taken."""
    metrics, results = beside.service.metrics(), ("expected", "held", "not_placed")
    return sum(metrics.get(f'kvindexer_routed_total{{result="{result}"}}', 0.0) for result in results)


def test_a_full_replica_does_not_hold_its_requests_up(beside: Beside, tmp_path: Path) -> None:
    """They go to the next; where all are full they wait, with pauses, and each is served in the end."""
    wait_until("names are told", lambda: beside.ray.do("names", "named"), holds=PODS.__eq__)
    released = tmp_path / "released"
    request = {"token_ids": beside.prompt_of(PODS[0]), "until": str(released)}
    try:
        beside.ray.do("send", "named", request=request, times=6)
        wait_until("two wait for a place", lambda: beside.ray.do("pausing", "named"), holds=lambda count: count == 2)
    finally:
        released.touch()
    served = beside.ray.do("receive", "named")

    assert 6 == len(served)
    assert 2 <= served.count(PODS[0])
    assert 2 <= served.count(PODS[1])


def test_http_requests_are_served(beside: Beside) -> None:
    """Serve's proxy forwards them unread: there is nothing to ask of."""
    answer = httpx.post(f"http://127.0.0.1:{beside.ray.http_port}/named", json={"token_ids": [1]}, timeout=30)

    assert (200, True) == (answer.status_code, answer.text in PODS)


@contextlib.contextmanager
def _aimed(beside: Beside, port: int) -> Iterator[None]:
    """The router's connections are cut, and lead there until the block ends."""
    beside.way.aim(port)
    beside.way.set("reset")
    beside.way.set("pass")
    try:
        yield
    finally:
        beside.way.aim(beside.index_port())


@contextlib.contextmanager
def _nowhere(beside: Beside) -> Iterator[None]:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    with _aimed(beside, port):
        yield


@contextlib.contextmanager
def _killed(beside: Beside) -> Iterator[None]:
    """Another service, which the router has come to ask, is gone at once."""
    with RunningService([]) as other, _aimed(beside, int(other.url.rpartition(":")[2])):
        before = beside.counts("engines")["unknown"]
        wait_until(
            "it is asked", lambda: beside.ask("engines", [1], 1) and beside.counts("engines")["unknown"] - before
        )
        other.kill()
        yield


@contextlib.contextmanager
def _frozen(beside: Beside) -> Iterator[None]:
    beside.service.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        beside.service.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def _garbage(beside: Beside) -> Iterator[None]:
    said = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>"
    with answering(saying(said)) as url, _aimed(beside, int(url.rpartition(":")[2])):
        yield


@pytest.mark.parametrize("dead", [_nowhere, _killed, _frozen, _garbage])
def test_a_dead_index_costs_nothing(beside: Beside, dead: object) -> None:
    """All requests are served, and but for a few they do not even ask; when it is back they land as before."""
    replica = beside.ray.do("names", "engines")[0]
    prompt = beside.prompt_of(replica)
    with dead(beside):  # type: ignore[operator]  # one of the above
        wait_until("it is left alone", lambda: beside.ask("engines", prompt, 1) and _rests(beside))
        before = beside.counts("engines")
        answered = beside.ask("engines", prompt, 100)
        counts = {name: counted - before[name] for name, counted in beside.counts("engines").items()}
    assert 100 == len(answered)
    assert set(answered) <= set(beside.engines)
    assert (0, 0, 100) == (counts["ranked"], counts["unknown"], counts["late"] + counts["failed"] + counts["rested"])
    assert counts["rested"] >= 10 * (counts["late"] + counts["failed"])

    ranked = beside.counts("engines")["ranked"]
    wait_until(
        "it is asked again", lambda: beside.ask("engines", prompt, 1) and beside.counts("engines")["ranked"] > ranked
    )


def _rests(beside: Beside) -> bool:
    before = beside.counts("engines")["rested"]
    beside.ask("engines", [1], 1)
    return beside.counts("engines")["rested"] > before
