"""Who the recorded engines are, where they publish, and at which pace."""

from __future__ import annotations

import threading
from importlib.resources import files

import msgspec
import pytest

from api.demo.fleet import BadEndpointBase, PodIdentity, TraceFleet, losses, paced, ports_above, restamped, stamped
from api.demo.trace import Trace, TracePod

TRACE = Trace(files("api.demo") / "demo.kvt.gz")


@pytest.mark.parametrize(
    ("topic", "name", "identity"),
    [
        ("kv@10.0.0.1:8000@llama", "pod-0", ("10.0.0.1:8000", "llama")),
        ("kv@10.0.0.1:8000@org/llama@v2", "pod-0", ("10.0.0.1:8000", "org/llama@v2")),
        ("kv@pod", "pod-0", ("pod-0", None)),
        ("", "pod-0", ("pod-0", None)),
        ("", "", ("pod-7", None)),
        ("kv@@m", "pod-0", ("pod-0", None)),
    ],
)
def test_an_engine_is_who_its_topic_says(topic: str, name: str, identity: tuple[str, str | None]) -> None:
    """`kv@POD@MODEL`, else the recorded name."""
    recorded = TracePod(pod=7, topic=topic, block_size=16, name=name, data_parallel_rank=3)

    assert PodIdentity(*identity, dp_rank=3) == PodIdentity.of(recorded)


def test_each_engine_has_its_own_ports() -> None:
    """Consecutive from the base; port 0 stays 0, for a free one each."""
    assert ["tcp://h:5557", "tcp://h:5558"] == ports_above("tcp://h:5557", 2)
    assert ["tcp://[::1]:0", "tcp://[::1]:0"] == ports_above("tcp://[::1]:0", 2)
    for base in ("h:1", "tcp://h", "tcp://h:65535", "ipc:///run/kv", "tcp://h:123456"):
        with pytest.raises(BadEndpointBase):
            ports_above(base, 2)


def test_bases_that_overlap_are_refused() -> None:
    """The replay port of one engine would be the event port of another."""
    TraceFleet(TRACE.header, "tcp://127.0.0.1:5557", "tcp://127.0.0.1:5560")
    with pytest.raises(BadEndpointBase, match="closer than the 3 pods need"):
        TraceFleet(TRACE.header, "tcp://127.0.0.1:5557", "tcp://127.0.0.1:5559")


def test_messages_keep_their_recorded_numbers() -> None:
    """Another number would be another history: it is an error of the caller, and told."""
    fleet = TraceFleet(TRACE.header, "tcp://127.0.0.1:0", None)
    fleet.start()
    try:
        messages = list(TRACE.messages())
        fleet.publish(messages[0])
        with pytest.raises(ValueError, match="number 0 recorded where 1 is due"):
            fleet.publish(messages[0])
        fleet.restart_all()
        fleet.publish(messages[0])
    finally:
        fleet.close()


def test_the_next_process_has_a_later_clock() -> None:
    """Else its first batches would be those of the process before: same number, same time stamp. All else stays."""
    message = next(TRACE.messages())
    before = msgspec.msgpack.decode(message.payload)
    after = msgspec.msgpack.decode(restamped(message.payload, 600.0))

    assert [before[0] + 600.0, *before[1:]] == after
    assert [b"\x92\xcb", b"", b"\x93\x01"] == [restamped(odd, 600.0) for odd in (b"\x92\xcb", b"", b"\x93\x01")]
    assert [7.5, *after[1:]] == msgspec.msgpack.decode(stamped(message.payload, 7.5))
    assert b"\x92\xcb" == stamped(b"\x92\xcb", 7.5)


def test_a_fleet_with_a_clock_says_what_time_it_is() -> None:
    """Each batch as of the moment it is published, whichever process of the engine it is."""
    moments = iter((7.0, 8.0))
    fleet = TraceFleet(TRACE.header, "tcp://127.0.0.1:0", None, now=lambda: next(moments))
    payload = next(TRACE.messages()).payload

    assert [7.0, 8.0] == [msgspec.msgpack.decode(fleet._stamped(payload))[0] for _ in range(2)]
    plain = TraceFleet(TRACE.header, "tcp://127.0.0.1:0", None)
    assert payload == plain._stamped(payload)


def test_a_recording_as_fast_as_it_is_taken() -> None:
    """Every message, in order; none once the stop is set."""
    stop = threading.Event()
    assert list(TRACE.messages()) == list(paced(TRACE, stop, None))
    stop.set()
    assert [] == list(paced(TRACE, stop, None))


def test_losses_are_the_same_for_the_same_seed() -> None:
    """None at 0, all at 1, and about the share asked for in between."""
    assert [False] * 100 == [lost for lost, _ in zip(losses(0, 1), range(100), strict=False)]
    assert [True] * 100 == [lost for lost, _ in zip(losses(1, 1), range(100), strict=False)]
    some = [lost for lost, _ in zip(losses(0.5, 7), range(1000), strict=False)]
    assert some == [lost for lost, _ in zip(losses(0.5, 7), range(1000), strict=False)]
    assert 400 < sum(some) < 600
