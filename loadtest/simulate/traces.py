"""The public traces, and the questions that were asked of recorded engines: `tests/golden/traces`. Reads files.

In the Mooncake files an id stands for a block of 512 tokens and all before it, also where the last block of a prompt is
a part of one. They name no sessions: one is taken to go on where a prompt has all whole blocks of an earlier one, and
more than one. In the Weka file ids are local to a session, blocks have 64 tokens, and nobody says when a session
begins: that is drawn from a Poisson process. Models share nothing.
"""

from __future__ import annotations

import gzip
import random
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from api.demo.trace import Trace as Recording
from api.demo.trace import read_truth
from loadtest.machine import ROOT
from loadtest.simulate.sessions import Numbers, Sessions
from loadtest.simulate.workload import Asked, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from loadtest.simulate.segments import Ids

RECORDINGS: Final = ROOT / "tests" / "golden" / "traces"
PUBLIC: Final = RECORDINGS / "public"
MOONCAKE_BLOCK: Final = 512
WEKA_BLOCK: Final = 64
SEED: Final = 11
"""Of when the sessions of the Weka file begin."""


class MooncakeLine(msgspec.Struct):
    """One request of a Mooncake file; times in milliseconds."""

    timestamp: float
    input_length: int
    hash_ids: list[int]
    output_length: int = 0


class WekaRequest(msgspec.Struct, rename={"tokens": "in", "output": "out"}):
    """One request of a session, or a subagent with requests of its own; times in seconds from the one it stands in."""

    t: float
    type: str = "n"
    model: str = ""
    tokens: int = 0
    output: int = 0
    keep: int = 0
    runs: list[tuple[int, int]] = []
    requests: list[WekaRequest] = []


class WekaLine(msgspec.Struct):
    """One session."""

    id: str
    requests: list[WekaRequest]


def conversation(requests: int | None = None) -> Trace:
    """An hour of a chat service: one block that all prompts begin with, little else shared."""
    return _mooncake("conversation", requests)


def synthetic(requests: int | None = None) -> Trace:
    """Long documents asked about again and again."""
    return _mooncake("synthetic", requests)


def weka(requests: int | None = None) -> Trace:
    """Coding sessions of 100,000 tokens a turn, of which nearly all were in the turn before."""
    return Trace("weka", WEKA_BLOCK, islice(_weka(), requests))


def recorded(requests: int | None = None, *, name: str = "eviction") -> Trace:
    """The questions asked of recorded engines, as if they were requests."""
    recording, truth = Recording(RECORDINGS / f"{name}.kvt.gz"), read_truth(RECORDINGS / f"{name}.truth.gz")
    size = recording.header.pods[0].block_size
    times_s = [message.t_us / 1e6 for message in recording.messages()]
    numbers, sessions = Numbers(), Sessions()
    asked = []
    for probe in islice(truth.probes, requests):
        tokens = truth.prompts[probe.prompt].tokens
        ids = numbers.chained([tokens[at : at + size] for at in range(0, len(tokens) - size + 1, size)])
        session = sessions.of(ids, len(ids))
        asked.append(Asked(times_s[max(probe.n - 1, 0)], 0.0, len(tokens), 1, session, np.array(ids, np.int64)))
    return Trace("recorded", size, asked)


TRACES: Final[Mapping[str, Callable[[int | None], Trace]]] = {
    "conversation": conversation,
    "synthetic": synthetic,
    "weka": weka,
    "recorded": recorded,
}


def _mooncake(name: str, requests: int | None) -> Trace:
    lines = _mooncake_lines(PUBLIC / f"mooncake_fast25_{name}_trace.jsonl.gz")
    return Trace(name, MOONCAKE_BLOCK, islice(lines, requests))


def _mooncake_lines(path: Path) -> Iterator[Asked]:
    sessions, decoder = Sessions(), msgspec.json.Decoder(MooncakeLine)
    with gzip.open(path) as lines:
        for line in map(decoder.decode, lines):
            session = sessions.of(line.hash_ids, line.input_length // MOONCAKE_BLOCK)
            ids = np.array(line.hash_ids, np.int64)
            yield Asked(line.timestamp / 1e3, 0.0, line.input_length, line.output_length, session, ids)


def _weka() -> Iterator[Asked]:
    draw, begins_s = random.Random(SEED), 0.0
    decoder = msgspec.json.Decoder(WekaLine)
    with gzip.open(PUBLIC / "weka_claude_code_agentic_delta.jsonl.gz") as lines:
        for line in map(decoder.decode, lines):
            begins_s += draw.expovariate(1.0)
            told = sorted(_said(line.requests, 0.0), key=itemgetter(0))
            for after_s, request, ids in told:
                scope = (line.id, request.model)
                yield Asked(begins_s, after_s, request.tokens, request.output, line.id, ids, scope)


def _said(requests: Sequence[WekaRequest], after_s: float) -> Iterator[tuple[float, WekaRequest, Ids]]:
    """All of a session with their times and ids, those of its subagents among them."""
    ids = np.array([], np.int64)
    for request in requests:
        if request.requests:
            yield from _said(request.requests, after_s + request.t)
        else:
            added = (np.arange(start, start + count, dtype=np.int64) for start, count in request.runs)
            ids = np.concatenate((ids[: request.keep], *added))
            yield after_s + request.t, request, ids
