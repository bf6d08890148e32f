"""A picker that reads what responses say of reuse, behind a real Envoy: clients get them as engines send them."""

from __future__ import annotations

import http.client
import json
import signal
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.gateway_fleet import running_fleet
from tests.support.gateway_traffic import Sent, failures, mixed
from tests.support.gateways import DEADLINE_S, Gateway
from tests.support.openai_engines import MODEL, answer_to

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow
REUSED: Final = 32
WORDS: Final = 6
CLIENTS: Final = 16
UNDER_WAY: Final = 150
"""Requests before, and after, the picker goes away."""
SEED: Final = 11
WAYS: Final = {"ext-proc.yaml": "STREAMED", "ext-proc-duplex.yaml": "FULL_DUPLEX_STREAMED"}
"""By configuration, how its bodies of responses may be sent to the picker."""
HEADERS: Final = "response_header_mode: SEND"


def _with_bodies(kind: str) -> Callable[[str], str]:
    """The configuration as README says for `epp.reads_usage`."""
    duplex = kind == "ext-proc-duplex.yaml"
    more = [f"response_body_mode: {WAYS[kind]}", *(["response_trailer_mode: SEND"] if duplex else [])]
    return lambda text: text.replace(HEADERS, (f"\n{' ' * 16}" if duplex else ", ").join([HEADERS, *more]))


@pytest.mark.parametrize("kind", WAYS)
def test_events_come_one_by_one_and_what_was_reused_is_reported(kind: str) -> None:
    """The first is with the client before the engine has said the second; all are as the engine said them."""
    with running_fleet(epp__reads_usage="true") as fleet:
        asked = {"model": MODEL, "prompt": fleet.prompt(0), "max_tokens": WORDS, "stream": True}
        asked["stream_options"] = {"include_usage": True}
        fleet.engines.reuse(lambda _: REUSED)
        first_is_there, told = threading.Event(), iter([True])
        fleet.engines.before_chunks(lambda: next(told, False) or first_is_there.wait(DEADLINE_S))
        with (
            Gateway(kind, fleet.picker, fleet.ports, edited=_with_bodies(kind), patient=True) as gateway,
            closing(http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=DEADLINE_S)) as client,
        ):
            client.request("POST", "/v1/completions", json.dumps(asked))
            answer = client.getresponse()
            content = answer.read1()
            assert not first_is_there.is_set()
            first_is_there.set()
            content += answer.read()
        events = [*map(json.dumps, answer_to("/v1/completions", asked, REUSED)[1]), "[DONE]"]
        assert (200, "".join(f"data: {event}\n\n" for event in events).encode()) == (answer.status, content)

        fleet.service.wait_for(lambda: _reused(fleet.service.call("GET", "/v1/reports/consistency").json()), "a report")


def _reused(report: dict[str, list[dict[str, dict[str, dict[str, int]]]]]) -> bool:
    told = [row["windows"]["1m"] for row in report["sources"]]
    return [(1, REUSED)] == [(each["samples"], each["real_tokens"]) for each in told if each["samples"]]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_a_picker_that_goes_away_takes_nothing_of_a_response_with_it(number: signal.Signals) -> None:
    """Of whole ones and of streams, while they come: all are as the engine said them."""
    kind = "ext-proc.yaml"
    with (
        running_fleet(epp__reads_usage="true") as fleet,
        Gateway(kind, fleet.picker, fleet.ports, edited=_with_bodies(kind)) as gateway,
    ):
        fleet.engines.before_chunks(lambda: time.sleep(0.005))
        requests = mixed(2 * UNDER_WAY, SEED, [fleet.prompt(i) for i in range(3)])

        def each() -> Iterator[Sent]:
            for count, sent in enumerate(requests):
                if count == UNDER_WAY:
                    fleet.service.send_signal(number)
                yield sent

        assert [] == failures(gateway.port, each(), CLIENTS)
