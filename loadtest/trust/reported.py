"""What engines really reuse is reported back: the consistency report must say what is known here, to the token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from loadtest.trust.judging import Outcome
from loadtest.trust.playing import Play
from loadtest.trust.recordings import recorded
from loadtest.trust.serving import Served
from loadtest.trust.streams import losses

if TYPE_CHECKING:
    from loadtest.trust.judging import Figures

RATE: Final = 0.01
SEED: Final = 5
WINDOW: Final = "24h"


def reuse_reported(name: str = "eviction") -> Outcome:
    """Messages lost without replay, so that answers err both ways; and by how much the report differs, in all sums."""
    recording = recorded(name)
    lost = losses(recording.messages, RATE, SEED)
    with Play(recording, replay=False, lost=lost, fed=True) as play, Served(play.fleet.source_flags()) as service:
        play.ask_at(service.url)
        play.wait_heard()
        for place in recording.places:
            play.publish(place.n)
            play.settle()
            play.ask_place(place)
        (total,) = play.asker.get(f"/v1/reports/consistency?window={WINDOW}")["totals"]
        return Outcome(play.figures, "agrees to the token", difference(play.figures, total["windows"][WINDOW]))


def difference(figures: Figures, said: dict[str, int]) -> int:
    """Between what is known here and what the report says: samples, right ones, and all tokens."""
    known = {
        "samples": figures.samples,
        "exact": figures.right,
        "predicted_tokens": figures.told_tokens,
        "real_tokens": figures.true_tokens,
        "false_hit_tokens": figures.false_tokens,
        "lost_hit_tokens": figures.lost_tokens,
        "unjoined": 0,
    }
    return sum(abs(value - said[name]) for name, value in known.items())
