"""Processes that are killed: engines, and the service in memory mode."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from loadtest.trust.asking import WAIT_MAX_S
from loadtest.trust.playing import LOOK_S, Play
from loadtest.trust.recordings import recorded
from loadtest.trust.serving import Served

if TYPE_CHECKING:
    from loadtest.trust.judging import Figures


def engines_killed(*, replay: bool) -> Figures:
    """The recorded restarts, each by SIGKILL's like: what was not sent yet is gone, and numbers begin anew."""
    recording = recorded("clear")
    with Play(recording, replay=replay) as play, Served(play.fleet.source_flags()) as service:
        play.ask_at(service.url)
        play.wait_heard()
        births = [number + 1 for number in recording.births()]
        for place in recording.places:
            for birth in births:
                if play.position < birth <= place.n:
                    play.publish(birth)
                    play.heal(place.prompts[0])
            play.publish(place.n)
            play.settle()
            play.ask_place(place)
        return play.figures


def service_killed(*, replay: bool) -> Figures:
    """In memory mode: another process knows nothing, and asks the engines.

    Without replay it is exact again for an engine once that one restarts or empties its cache; all three do.
    """
    recording = recorded("clear")
    with Play(recording, replay=replay) as play:
        flags, killed_at = play.fleet.source_flags(), len(recording.messages) // 5
        with Served(flags) as service:
            play.ask_at(service.url)
            play.wait_heard()
            play.publish(killed_at)
            play.settle()
            service.kill()
        play.ails()
        _wait_deaf(play)
        with Served(flags) as service:
            play.ask_at(service.url)
            play.wait_heard()
            play.begin_to_listen()
            for place in recording.places:
                if place.n > killed_at:
                    play.publish(place.n)
                    if replay:
                        play.heal(place.prompts[0])
                    play.settle()
                    play.ask_place(place)
            play.heal()
        return play.figures


def _wait_deaf(play: Play) -> None:
    """Until no engine has a subscriber."""
    ends_at = time.monotonic() + WAIT_MAX_S
    while any(engine.subscribers for engine in play.fleet.engines.values()):
        assert time.monotonic() < ends_at, "subscriptions of a process that is gone"
        time.sleep(LOOK_S)
