"""What nobody can know at once: the last message of an idle engine is lost, or it empties its cache in silence."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from loadtest.trust import losses
from loadtest.trust.caches import Moment
from loadtest.trust.playing import Play
from loadtest.trust.recordings import recorded
from loadtest.trust.serving import Served

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtest.trust.judging import Figures
    from loadtest.trust.recordings import Recorded

IDLE_S: Final = 1.0
"""After a silent reset; of which nothing is heard for as long as an engine is idle."""
LOOK_RARELY_S: Final = 0.1
TELLING: Final = 8
"""Prompts asked while nothing is known."""


def lost_last_message(*, replay: bool, count: int = 3) -> Figures:
    """One that takes away what prompts rest on, of one engine after the other; then it is idle.

    Its replay is probed as by default. Without replay the next message tells.
    """
    recording = recorded("eviction")
    resting = 0
    with Play(recording, replay=replay, lost=_last_of_some(recording, count)) as play:
        with Served(play.fleet.source_flags()) as service:
            play.ask_at(service.url)
            play.wait_heard()
            for number in sorted(play.lost):
                play.publish(number)
                play.settle()
                play.publish(number + 1)
                resting += _resting(play, _telling(recording, number))
                if replay:
                    play.heal(_telling(recording, number)[0])
                    play.ask(_telling(recording, number), settled=True)
                else:
                    _next_message_tells(play, number)
        assert resting, "no answer rested on what was before"
        return play.figures


def _resting(play: Play, prompts: Sequence[int]) -> int:
    """Ask while nobody can know; how many entries were certain and not right any more."""
    before = play.figures.unknown
    play.ask(prompts, settled=False)
    return play.figures.unknown - before


def _next_message_tells(play: Play, number: int) -> None:
    """Play on to it; from its publishing to the answer that is no longer certain."""
    pod = play.recorded.messages[number].pod
    following = next(place for place, each in enumerate(play.recorded.messages) if place > number and each.pod == pod)
    play.publish(following)
    play.settle()
    play.publish(following + 1)
    began = time.monotonic()
    play.settle()
    play.figures.noticed_s.append(time.monotonic() - began)
    answer = play.ask(_telling(play.recorded, number), settled=True)
    told = next(each for each in answer.pods if each.pod == play.pods[pod])
    play.figures.violations += told.certain


def _last_of_some(recording: Recorded, count: int) -> frozenset[int]:
    """Places of messages, of one engine after the other, by which a prompt's hit shrinks."""
    found: list[int] = []
    share = len(recording.messages) // (count + 1)
    for turn in range(count):
        pod = turn % len(recording.header.pods)
        places = range((turn + 1) * share, (turn + 2) * share)
        found.append(next(n for n in places if recording.messages[n].pod == pod and _telling(recording, n)))
    return frozenset(found)


def _telling(recording: Recorded, number: int) -> list[int]:
    """Prompts of which the engine holds less after that message of it than before."""
    message = recording.messages[number]
    before, after = (Moment(message.life, message.sequence - back) for back in (1, 0))
    held = recording.caches.held
    shrunk = (
        prompt
        for prompt, tokens in enumerate(recording.prompts)
        if held(message.pod, after, tokens) < held(message.pod, before, tokens)
    )
    return [prompt for prompt, _ in zip(shrunk, range(TELLING), strict=False)]


def silent_reset(*, replay: bool) -> Figures:
    """An engine empties its cache, idle or at work, and says so with its next message only, as engines do.

    It is idle for a while before that, though its replay is asked several times: that has nothing new either.
    """
    recording = recorded("clear")
    settings = {"events__probe_interval_s": str(losses.PROBE_S)}
    with Play(recording, replay=replay) as play, Served(play.fleet.source_flags(), **settings) as service:
        play.ask_at(service.url)
        play.wait_heard()
        for pod in play.published:
            for number in recording.clears(pod):
                play.publish(number)
                play.settle()
                play.reset_in_silence(pod)
                prompts = _held(play, pod)
                ends_at = time.monotonic() + IDLE_S
                while time.monotonic() < ends_at:
                    assert _resting(play, prompts), "no answer rested on what was before"
                    time.sleep(LOOK_RARELY_S)
                play.publish(number + 1)
                began = time.monotonic()
                play.heal(prompts[0])
                play.figures.noticed_s.append(time.monotonic() - began)
                play.ask(prompts, settled=True)
        return play.figures


def _held(play: Play, pod: int) -> list[int]:
    """Prompts of which the engine held something at its last message."""
    held, moment = play.recorded.caches.held, play.published[pod]
    prompts = (number for number, tokens in enumerate(play.recorded.prompts) if held(pod, moment, tokens))
    return [prompt for prompt, _ in zip(prompts, range(TELLING), strict=False)]
