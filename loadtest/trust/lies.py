"""Engines whose words are not true: another block size than their tokens have, or no removals.

Where nothing in its words contradicts itself or what is known of the engine, nobody can know; otherwise no answer may
be certain and wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from loadtest.trust.caches import Caches, Moment
from loadtest.trust.judging import Outcome
from loadtest.trust.playing import Play
from loadtest.trust.recordings import recorded
from loadtest.trust.serving import Served
from loadtest.trust.streams import altered, elsewhere_without_removals, without_removals, wrong_block_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadtest.trust.judging import Figures
    from loadtest.trust.streams import Events

LIAR: Final = 1
OTHER_SIZE: Final = 32
BLOCK_SIZES: Final[dict[str, Callable[[int, Events], Events]]] = {
    "always": wrong_block_size(OTHER_SIZE, 1),
    "at first": wrong_block_size(OTHER_SIZE, 1 << 40),
    "now and then": wrong_block_size(OTHER_SIZE, 9, 3),
}


def block_size(when: str) -> Figures:
    """One engine names a block size that is not that of its tokens."""
    recording = recorded("basic")
    messages = altered(recording.messages, {LIAR}, BLOCK_SIZES[when])
    with Play(recording, replay=True, messages=messages) as play:
        _ask_all(play, play.fleet.source_flags())
        return play.figures


def no_removals(*, capacity: bool) -> Outcome:
    """One engine never says what it evicts. With its `capacity` told, it is known to lie once it holds more than that.

    The staleness report remarks on it at the end.
    """
    recording = recorded("eviction")
    messages = altered(recording.messages, {LIAR}, without_removals)
    heard = Caches(messages)
    blocks = recording.header.pods[LIAR].num_gpu_blocks or 0

    def said(pod: int, moment: Moment, tokens: Sequence[int]) -> int:
        knowable = capacity and heard.size(pod, moment) > blocks
        return (recording.caches if knowable else heard).held(pod, moment, tokens)

    with Play(recording, replay=True, messages=messages, said=said) as play:
        flags = play.fleet.source_flags()
        if not capacity:
            flags = [flag.replace(f",blocks={blocks}", "") for flag in flags]
        remarks = _ask_all(play, flags)
        return _remarked(play, remarks, "gpu")


def no_removals_of(tier: str) -> Outcome:
    """The same of an engine whose blocks lie in another tier, of which no capacity is ever told.

    That nobody takes blocks of the storage tier back is known: it has a time to live by default.
    """
    recording = recorded("eviction")
    messages = altered(recording.messages, {LIAR}, elsewhere_without_removals(tier.upper()))
    heard = recording.caches if tier == "storage" else Caches(messages)
    with Play(recording, replay=True, messages=messages, said=heard.held) as play:
        remarks = _ask_all(play, play.fleet.source_flags())
        return _remarked(play, remarks, tier)


def _remarked(play: Play, remarks: Sequence[str], tier: str) -> Outcome:
    is_told = any(f"no removals seen in tier {tier}" in each for each in remarks)
    return Outcome(play.figures, "remarks on it", int(not is_told))


def _ask_all(play: Play, flags: Sequence[str]) -> list[str]:
    """Play all of it; what the report remarks on the engine that lies."""
    with Served(flags) as service:
        play.ask_at(service.url)
        play.wait_heard()
        for place in play.recorded.places:
            play.publish(place.n)
            play.settle()
            play.ask_place(place)
        rows = play.asker.get(f"/v1/reports/staleness?pod={play.pods[LIAR]}")["sources"]
        return [remark for row in rows for remark in row["warnings"]]
