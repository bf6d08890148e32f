"""Messages that get lost, at random, with a replay endpoint and without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from loadtest.trust.judging import Figures
from loadtest.trust.playing import Play
from loadtest.trust.recordings import recorded
from loadtest.trust.serving import Served
from loadtest.trust.streams import losses

if TYPE_CHECKING:
    from collections.abc import Sequence

PROBE_S: Final = 0.3
"""How often an idle engine is probed here: many last messages are lost, one after the other."""


def lossy(names: Sequence[str], rate: float, *, replay: bool) -> Figures:
    """All of these recordings, of whose messages this share never arrives."""
    return Figures().add([_played(name, rate, replay=replay) for name in names])


def lossy_replay(names: Sequence[str], rate: float) -> Figures:
    """The same, where replays lose messages, too, as engines up to vLLM 0.32 do: not all of it is healed."""
    return Figures().add([_played(name, rate, replay=True, replay_loses=True) for name in names])


def _played(name: str, rate: float, *, replay: bool, replay_loses: bool = False) -> Figures:
    recording = recorded(name)
    lost = losses(recording.messages, rate, f"{name} {rate}")
    settings = {"events__probe_interval_s": str(PROBE_S)}
    with Play(recording, replay=replay, lost=lost, replay_loses=replay_loses, probe_s=PROBE_S) as play:
        with Served(play.fleet.source_flags(), **settings) as service:
            play.ask_at(service.url)
            play.wait_heard()
            for place in recording.places:
                play.publish(place.n)
                play.settle()
                if replay and not replay_loses:
                    play.heal(place.prompts[0])
                play.ask_place(place)
        return play.figures
