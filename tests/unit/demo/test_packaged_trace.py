"""The trace that travels with the package is the beginning of a recorded one, with the truth of the same engines."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from api.demo.trace import Trace, read_truth

GOLDEN = Path(__file__).parents[2] / "golden" / "traces"
PACKAGE = files("api.demo")
BYTES_MAX = 300_000


def test_its_messages_are_the_first_of_the_recording() -> None:
    """Byte for byte, of the same three engines."""
    ours, recorded = Trace(PACKAGE / "demo.kvt.gz"), Trace(GOLDEN / "basic.kvt.gz")
    messages = list(ours.messages())

    assert recorded.header.pods == ours.header.pods
    assert messages == [message for message, _ in zip(recorded.messages(), messages, strict=False)]
    assert 1023 == len(messages)


def test_its_truth_is_that_of_the_recording() -> None:
    """Every probe up to its end, about the same prompts."""
    ours, recorded = read_truth(PACKAGE / "demo.truth.gz"), read_truth(GOLDEN / "basic.truth.gz")
    told = [(p.n, p.at, ours.prompts[p.prompt].tokens, p.cached, p.chain) for p in ours.probes]

    assert told == [
        (p.n, p.at, recorded.prompts[p.prompt].tokens, p.cached, p.chain) for p in recorded.probes if p.n <= 1023
    ]
    assert 1023 == ours.probes[-1].n


def test_it_is_small_enough_to_travel() -> None:
    """Some hundreds of kilobytes at most."""
    assert sum(len((PACKAGE / name).read_bytes()) for name in ("demo.kvt.gz", "demo.truth.gz")) < BYTES_MAX
