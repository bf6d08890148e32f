"""Recorded traffic without its events: what routed prompts alone tell of engines, against those engines' own answers.

A request is told as a router would tell it, with the tokens that it led to: what each announcement says of content is
taken for a report of it, and no event reaches the core.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pytest

from indexer.decode.vllm import decode
from indexer.model import BlocksStored, EventBatch
from tests.support.core import Core
from tests.support.core_traces import Recording, recording

MODEL: Final = "m"


class Shares(NamedTuple):
    """Tokens that were expected and held, and expected in vain, each beside all that the engines held."""

    found: float
    false: float


class Router:
    """Tells a core of each request that a recording shows, at its time."""

    def __init__(self, recorded: Recording, ttl_s: float) -> None:
        self.core = Core(silent_block_sizes={MODEL: recorded.header.pods[0].block_size}, silent_ttl_s=ttl_s)
        self.began = self.core.clock.at
        self.recorded = recorded
        self.position = 0
        self._contents: dict[tuple[int, int, int], bytes] = {}
        """By pod, life and engine hash: the tokens of a block and all before it."""
        for pod in recorded.header.pods:
            self.core.engine(str(pod.pod), model=MODEL, connected=False)

    def play(self, until: int) -> None:
        """Messages up to that one; then the time is that of the last."""
        for message in self.recorded.messages[self.position : until]:
            self.core.clock.at = self.began + message.t_us / 1e6
            batch = decode(message.payload)
            assert isinstance(batch, EventBatch)
            for event in batch.events:
                if isinstance(event, BlocksStored):
                    self._route(message.pod, message.life, event)
        self.position = until
        self.core.tidy_receipts()

    def _route(self, pod: int, life: int, event: BlocksStored) -> None:
        tokens = b"" if event.parent is None else self._contents[pod, life, event.parent]
        step = len(event.tokens) // len(event.hashes)
        for nth, engine_hash in enumerate(event.hashes, 1):
            self._contents[pod, life, engine_hash] = tokens + event.tokens[: nth * step]
        self.core.route(tokens + event.tokens, str(pod), model=MODEL)

    def shares(self) -> Shares:
        """Over all questions that the engines were asked."""
        held = found = false = 0
        for probe in self.recorded.probes:
            self.play(probe.n)
            answer = self.core.ask(self.recorded.prompts[probe.prompt], model=MODEL)
            assert ("degraded", "approximate") == (answer.state, answer.reason)
            for pod, chain in enumerate(probe.chain):
                entry = answer[str(pod)]
                assert (0, 0.0, "live", "estimate", "approximate") == (
                    entry.matched_tokens,
                    entry.score,
                    entry.state,
                    entry.bound,
                    entry.reason,
                )
                held += chain
                found += min(chain, entry.speculative_tokens)
                false += max(0, entry.speculative_tokens - chain)
        return Shares(found / held, false / held)


@pytest.mark.parametrize(
    ("name", "ttl_s", "found", "false"),
    [
        ("basic", 600.0, 1.0, 0.0),
        ("basic", 0.3, 0.888, 0.0),
        ("eviction", 600.0, 1.0, 0.320),
        ("eviction", 0.3, 1.0, 0.153),
        ("clear", 1.0, 0.903, 0.050),
    ],
)
def test_what_was_routed_tells_most_of_what_is_held(name: str, ttl_s: float, found: float, false: float) -> None:
    """All of it where engines evict nothing; less, and some in vain, where the time is not the engine's own."""
    shares = Router(recording(name), ttl_s).shares()

    assert (found, false) == pytest.approx(shares, abs=0.0006)
