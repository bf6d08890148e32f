"""Engines whose words are not true: another block size than their tokens have, or no removals.

Where nothing in its words contradicts itself or what is known of the engine, nobody can know; otherwise no answer may
be certain and wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from loadtest.trust.caches import Caches
from loadtest.trust.judging import Outcome
from loadtest.trust.playing import Play
from loadtest.trust.recordings import recorded
from loadtest.trust.serving import Served
from loadtest.trust.streams import altered, elsewhere_without_removals, without_removals, wrong_block_size
from loadtest.trust.unsaid import Words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadtest.trust.caches import Moment
    from loadtest.trust.judging import Figures
    from loadtest.trust.streams import Events

LIAR: Final = 1
OTHER_SIZE: Final = 32
WATCHED_MAX: Final = 300
"""Wrong answers in a row for which a liar is believed: it will be so to the end."""
BLOCK_SIZES: Final[dict[str, Callable[[int, Events], Events]]] = {
    "always": wrong_block_size(OTHER_SIZE, 1),
    "at first": wrong_block_size(OTHER_SIZE, 1 << 40),
    "now and then": wrong_block_size(OTHER_SIZE, 9, 3),
}


def block_size(when: str, *, replay: bool) -> Figures:
    """One engine names a block size that is not that of its tokens. Its words show it: nothing excuses an answer."""
    recording = recorded("basic")
    messages = altered(recording.messages, {LIAR}, BLOCK_SIZES[when])
    with Play(recording, replay=replay, messages=messages) as play:
        _ask_all(play, play.fleet.source_flags())
        return play.figures


def no_removals(*, replay: bool, capacity: bool) -> Outcome:
    """One engine never says what it evicts, until its words show it.

    The staleness report remarks on it at the end.
    """
    recording = recorded("eviction")
    messages = altered(recording.messages, {LIAR}, without_removals)
    blocks = recording.header.pods[LIAR].num_gpu_blocks or 0
    words = evictions_unsaid(Caches(messages), blocks if capacity else None)
    with Play(recording, replay=replay, messages=messages, words=words) as play:
        flags = play.fleet.source_flags()
        if not capacity:
            flags = [flag.replace(f",blocks={blocks}", "") for flag in flags]
        remarks = _ask_all(play, flags, words)
        return _remarked(play, remarks, "gpu")


def evictions_unsaid(heard: Caches, capacity: int | None) -> Words:
    """What words without removals come to: they show that they are not true once an engine holds more than it can.

    Or computes anew, several blocks at once, what it is held to hold.
    """

    def shows(pod: int, moment: Moment) -> bool:
        is_over = capacity is not None and heard.size(pod, moment) > capacity
        return is_over or heard.has_computed_again(pod, moment)

    return Words(heard, shows)


def no_removals_of(tier: str, *, replay: bool) -> Outcome:
    """The same of an engine whose blocks lie in another tier, of which no capacity is ever told.

    That nobody takes blocks of the storage tier back is known: it has a time to live by default. Blocks of the cpu tier
    may be stored there anew although they are held, as engines offload to it.
    """
    recording = recorded("eviction")
    messages = altered(recording.messages, {LIAR}, elsewhere_without_removals(tier.upper()))
    words = None if tier == "storage" else Words(Caches(messages), lambda _pod, _moment: False)
    with Play(recording, replay=replay, messages=messages, words=words) as play:
        remarks = _ask_all(play, play.fleet.source_flags(), words)
        return _remarked(play, remarks, tier)


def _remarked(play: Play, remarks: Sequence[str], tier: str) -> Outcome:
    is_told = any(f"no removals seen in tier {tier}" in each for each in remarks)
    return Outcome(play.figures, "remarks on it", int(not is_told))


def _ask_all(play: Play, flags: Sequence[str], words: Words | None = None) -> list[str]:
    """Play all of it; what the report remarks on the engine that lies.

    While its `words` are believed it is asked after each of its messages for what it has evicted, too.
    """
    with Served(flags) as service:
        play.ask_at(service.url)
        play.wait_heard()
        is_believed = words is not None
        for place in play.recorded.places:
            if words is not None and is_believed:
                is_believed = _ask_while_believed(play, place.n, words)
            play.publish(place.n)
            play.settle()
            play.ask_place(place)
        rows = play.asker.get(f"/v1/reports/staleness?pod={play.pods[LIAR]}")["sources"]
        return [remark for row in rows for remark in row["warnings"]]


def _ask_while_believed(play: Play, until: int, words: Words) -> bool:
    """Play up to that place; whether answers are still certain, and not yet so often wrong."""
    for number in range(play.position, until):
        if play.figures.unknown >= WATCHED_MAX:
            return False
        play.publish(number + 1)
        if play.recorded.messages[number].pod == LIAR:
            play.settle()
            answer = play.ask([_evicted(play, words)], settled=False)
            if not next(each for each in answer.pods if each.pod == play.pods[LIAR]).certain:
                return False
    return True


def _evicted(play: Play, words: Words) -> int:
    """A prompt of which the engine holds less than by its words; the first one where there is none."""
    held, moment = play.recorded.caches.held, play.published[LIAR]
    prompts = enumerate(play.recorded.prompts)
    return next((i for i, each in prompts if held(LIAR, moment, each) != words.heard.held(LIAR, moment, each)), 0)
