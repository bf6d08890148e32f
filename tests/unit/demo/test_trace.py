"""Reading recorded traces, and what damaged ones are told."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import msgspec
import pytest

from api.demo.trace import Trace, TraceError, read_truth

GOLDEN = Path(__file__).parents[2] / "golden" / "traces"
HEADER = {"format": "kvtrace/1", "name": "n", "pods": [{"pod": 0, "topic": "t", "block_size": 16, "more": 1}]}


def record(value: object) -> bytes:
    """One record as in the file."""
    body = msgspec.msgpack.encode(value)
    return struct.pack(">I", len(body)) + body


def written(path: Path, *parts: bytes) -> Path:
    """A gzip file of these parts."""
    path.write_bytes(gzip.compress(b"".join(parts)))
    return path


@pytest.mark.parametrize(
    ("name", "messages", "probes"),
    [("basic", 1578, 120), ("basic-sameseed", 750, 80), ("clear", 1513, 400), ("eviction", 9095, 450)],
)
def test_the_recorded_traces_are_read_whole(name: str, messages: int, probes: int) -> None:
    """Every life of a pod counts from 0 without a gap, and every probe points into the trace."""
    trace = Trace(GOLDEN / f"{name}.kvt.gz")
    truth = read_truth(GOLDEN / f"{name}.truth.gz")

    last: dict[int, tuple[int, int]] = {pod.pod: (0, -1) for pod in trace.header.pods}
    at = {0: tuple(last.values())}
    for n, message in enumerate(trace.messages(), start=1):
        life, sequence = last[message.pod]
        assert message.sequence == (sequence + 1 if message.life == life else 0)
        last[message.pod] = message.life, message.sequence
        at[n] = tuple(last.values())

    assert (messages, probes) == (len(at) - 1, len(truth.probes))
    assert all(0 <= probe.prompt < len(truth.prompts) and probe.n in at for probe in truth.probes)
    assert all(len(probe.cached) == len(probe.chain) == len(trace.header.pods) for probe in truth.probes)
    assert all(p.at == at[p.n] for p in truth.probes if all(sequence >= 0 for _, sequence in p.at))


def test_a_trace_can_be_read_again() -> None:
    """Each reading begins at the first message."""
    trace = Trace(GOLDEN / "basic.kvt.gz")

    assert next(trace.messages()) == next(trace.messages())


def test_frames_are_those_of_the_recording(tmp_path: Path) -> None:
    """Nothing is decoded but the envelope of the record."""
    path = written(
        tmp_path / "x.kvt.gz", b"KVTRACE1", record(HEADER), record([0, 1, 7, b"t", bytes(7) + b"\x09", b"p"])
    )
    (message,) = Trace(path).messages()

    assert (0, 1, 7, b"t", 9, b"p") == (
        message.pod,
        message.life,
        message.t_us,
        message.topic,
        message.sequence,
        message.payload,
    )


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ((), "x.kvt.gz: does not begin with KVTRACE1"),
        ((b"KVTRACE2",), "x.kvt.gz: does not begin with KVTRACE1"),
        ((b"KVTRACE1",), "x.kvt.gz: no header"),
        ((b"KVTRACE1", record([1])), "x.kvt.gz: not a header (Expected `object`, got `array`) in record 0"),
        ((b"KVTRACE1", record({**HEADER, "format": "kvtrace/2"})), "x.kvt.gz: format 'kvtrace/2'"),
        ((b"KVTRACE1", b"\x00"), "x.kvt.gz: ends in the middle of a length in record 0"),
        ((b"KVTRACE1", record(HEADER)[:-1]), "x.kvt.gz: ends after 62 of 63 bytes in record 0"),
        ((b"KVTRACE1", b"\xff\xff\xff\xff"), "x.kvt.gz: a length of 4294967295 bytes"),
        ((b"KVTRACE1", record(HEADER), record([0, 0])), "x.kvt.gz: not a message"),
        (
            (b"KVTRACE1", record(HEADER), record([5, 0, 0, b"", b"", b""])),
            "x.kvt.gz: pod 5 is not in the header in record 1",
        ),
    ],
)
def test_a_damaged_trace_is_told(tmp_path: Path, parts: tuple[bytes, ...], problem: str) -> None:
    """The file, what is wrong with it, and in which record."""
    with pytest.raises(TraceError) as caught:
        list(Trace(written(tmp_path / "x.kvt.gz", *parts)).messages())

    assert str(caught.value).startswith(problem)


def test_a_trace_cut_anywhere_is_told(tmp_path: Path) -> None:
    """At every offset of the compressed file: an error of ours, or no message less than what stands before the cut."""
    path = written(tmp_path / "x.kvt.gz", b"KVTRACE1", record(HEADER), record([0, 0, 0, b"t", bytes(8), b"p" * 50]))
    whole = path.read_bytes()
    assert 1 == len(list(Trace(path).messages()))
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(TraceError):
            list(Trace(path).messages())


def test_what_is_no_gzip_stream_is_told(tmp_path: Path) -> None:
    """A trace that somebody unpacked, a damaged one, a truth file that is none."""
    path = tmp_path / "x.kvt.gz"
    path.write_bytes(b"KVTRACE1")
    with pytest.raises(TraceError, match="not a gzip stream"):
        Trace(path)
    with pytest.raises(TraceError, match="not a gzip stream"):
        read_truth(path)
    path.write_bytes(gzip.compress(b"KVTRACE1" * 100)[:20])
    with pytest.raises(TraceError, match="cut off"):
        read_truth(path)
    with pytest.raises(TraceError, match="not a truth file"):
        read_truth(written(path, b"\x01"))
