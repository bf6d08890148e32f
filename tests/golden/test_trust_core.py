"""The core on recorded streams of which messages get lost or are not true: nothing certain is wrong.

The same judge as in `python -m loadtest trust`, without sockets and with no replay.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from loadtest.trust.caches import Caches, Moment
from loadtest.trust.judging import Figures, Told, Truth
from loadtest.trust.lies import evictions_unsaid
from loadtest.trust.recordings import Recorded, recorded
from loadtest.trust.streams import altered, losses, without_removals
from tests.support.core import Core
from tests.support.listener import Listener

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from api.demo.trace import TraceMessage
    from loadtest.trust.unsaid import Words
    from schemas.lookup import PodEntry

LIAR = 1
BLOCKS = 300


class CarelessListener(Listener):
    """What a core would be that notes no doubts: for the judge to be judged."""

    def hear(self, message: TraceMessage) -> None:
        super().hear(message)
        facts = self.sink.source.facts
        facts.doubts.clear()
        facts.shortfalls.clear()
        facts.complete = True
        self.sink.alive(connected=True)


def told(entry: PodEntry) -> Told:
    """What the judge looks at."""
    return Told(
        pod=entry.pod,
        reusable_tokens=entry.reusable_tokens,
        state=entry.state,
        bound=entry.bound,
        generation=entry.generation,
        sequence=entry.sequence,
    )


def judged(
    recording: Recorded,
    listeners: Sequence[Listener],
    core: Core,
    *,
    messages: Sequence[TraceMessage] | None = None,
    lost: Collection[int] = (),
    words: Words | None = None,
) -> Figures:
    """Play all that is not lost, ask at every place, and judge."""
    figures, position = Figures(), 0
    published = [Moment(0, -1)] * len(listeners)
    for place in recording.places:
        for number in range(position, place.n):
            message = (messages or recording.messages)[number]
            published[message.pod] = Moment(message.life, message.sequence)
            if number not in lost:
                listeners[message.pod].hear(message)
                core.ingest.tidy_slice()
        position = place.n
        for prompt in place.prompts:
            tokens = recording.prompts[prompt]
            answer = core.ask(tokens)
            figures.note_answer(answer.state, settled=True)
            for pod, listener in enumerate(listeners):
                entry = told(answer[str(pod)])
                then = Moment(listener.life, -1 if entry.sequence is None else entry.sequence)
                by_its_words = words.unknown(pod, then, tokens) if words else None
                held = recording.caches.held
                truth = Truth(held(pod, published[pod], tokens), held(pod, then, tokens), by_its_words)
                if by_its_words is None and then < published[pod]:
                    truth = replace(truth, unknown=truth.then)  # without replay, what is lost since
                figures.note(entry, truth, settled=True, where=f"n={place.n} prompt={prompt}")
    return figures


def listening(core: Core, recording: Recorded, kind: type[Listener] = Listener) -> list[Listener]:
    """One to each recorded engine."""
    return [kind(core.engine(str(pod.pod), blocks_total=pod.num_gpu_blocks).sink) for pod in recording.header.pods]


@pytest.mark.parametrize("rate", [0.0, 0.001, 0.01, 0.05])
@pytest.mark.parametrize("name", ["basic", "clear"])
def test_nothing_certain_is_wrong_whatever_is_lost(name: str, rate: float) -> None:
    """At the message it names; and where nothing is lost, everything is certain and right."""
    recording, core = recorded(name), Core()
    lost = losses(recording.messages, rate, 11)

    figures = judged(recording, listening(core, recording), core, lost=lost)

    assert 0 == figures.violations, figures.examples
    assert figures.settled > 300
    if not rate:
        assert (1.0, 0, 0, 0) == (
            figures.exact_share,
            figures.false_tokens,
            figures.lost_tokens,
            figures.unknown,
        )
    assert 0 == figures.outrun


def test_what_is_lost_is_certain_again_after_a_clear_or_restart() -> None:
    """Of each engine something is lost at first; all of them empty their caches later, or are restarted."""
    recording, core = recorded("clear"), Core()
    first_of_each = {next(n for n, each in enumerate(recording.messages) if each.pod == pod) for pod in range(3)}
    listeners = listening(core, recording)

    figures = judged(recording, listeners, core, lost=first_of_each)

    assert 0 == figures.violations, figures.examples
    assert 0.0 < figures.exact_share < 1.0
    assert "exact" == core.ask(recording.prompts[0]).state


@pytest.mark.parametrize("capacity", [BLOCKS, None])
def test_an_engine_that_takes_nothing_back(capacity: int | None) -> None:
    """It is certain for no longer than its words excuse: it holds more than it can, or computes anew what it holds."""
    recording, core = recorded("eviction"), Core()
    messages = altered(recording.messages, {LIAR}, without_removals)
    words = evictions_unsaid(Caches(messages), capacity)
    listeners = [Listener(core.engine(str(pod.pod), blocks_total=capacity).sink) for pod in recording.header.pods]

    figures = judged(recording, listeners, core, messages=messages, words=words)

    assert 0 == figures.violations, figures.examples
    assert figures.false_tokens > 0
    assert figures.exact_share < 0.05
    assert ("suspect", "estimate") == (
        core.ask(recording.prompts[0])[str(LIAR)].state,
        core.ask(recording.prompts[0])[str(LIAR)].bound,
    )


def test_an_engine_that_is_believed_for_too_long_is_found_out() -> None:
    """The judge can fail: the engine's own words are no excuse once they show that they are not true."""
    recording, core = recorded("eviction"), Core()
    messages = altered(recording.messages, {LIAR}, without_removals)
    words = evictions_unsaid(Caches(messages), BLOCKS)

    figures = judged(recording, listening(core, recording, CarelessListener), core, messages=messages, words=words)

    assert figures.violations > 200


def test_a_careless_core_is_found_out() -> None:
    """The judge can fail: doubts that are not told are violations."""
    recording, core = recorded("eviction"), Core()
    lost = losses(recording.messages, 0.05, 11)

    figures = judged(recording, listening(core, recording, CarelessListener), core, lost=lost)

    assert figures.violations > 20
    assert "where Truth(now=" in figures.examples[0]
