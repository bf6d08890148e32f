"""What could not be known of an engine, and for how long answers rested on what was before."""

from __future__ import annotations

from api.demo.trace import TraceMessage
from loadtest.trust.caches import Caches, Moment
from loadtest.trust.lies import evictions_unsaid
from loadtest.trust.unsaid import Rest, Rests, Unsaid
from tests.support.core_events import payload, removed
from tests.unit.loadtest.test_trust_caches import TOKENS, stored

POD = 0
START = Moment(0, -1)


def test_lost_messages_are_unknown_until_one_is_heard() -> None:
    """From the first of them on that who is asked does not know."""
    unsaid = Unsaid()
    for sequence, now in ((3, 10.0), (4, 11.0)):
        unsaid.does(POD, Moment(0, sequence), now)

    heard = Moment(0, 2)
    assert [None, 10.0, 11.0, None] == [unsaid.lost_since(POD, Moment(0, named), heard) for named in (1, 2, 3, 4)]
    unsaid.speaks(POD)
    assert unsaid.lost_since(POD, Moment(0, 2), Moment(0, 5)) is None


def test_a_new_process_is_unknown_until_it_speaks() -> None:
    """Whatever is named of the one before."""
    unsaid = Unsaid()
    unsaid.does(POD, Moment(1, -1), 7.0)

    assert 7.0 == unsaid.lost_since(POD, Moment(0, 9), Moment(1, -1))
    assert unsaid.lost_since(POD, Moment(1, -1), Moment(1, -1)) is None
    unsaid.does(POD, Moment(1, 0), 8.0)
    assert 8.0 == unsaid.lost_since(POD, Moment(1, -1), Moment(1, -1))
    unsaid.speaks(POD)
    assert unsaid.lost_since(POD, Moment(0, 9), Moment(1, 1)) is None


def test_a_silent_reset_is_unknown_until_the_next_message() -> None:
    """Only to who knows all that was said before; a lost message says it, too."""
    unsaid = Unsaid()
    unsaid.empties(POD, 5.0)

    assert (True, 5.0) == (unsaid.is_empty(POD), unsaid.emptied_since(POD, Moment(0, 3), Moment(0, 3)))
    assert unsaid.emptied_since(POD, Moment(0, 2), Moment(0, 3)) is None
    unsaid.publishes(POD)
    assert (False, None) == (unsaid.is_empty(POD), unsaid.emptied_since(POD, Moment(0, 3), Moment(0, 3)))


def test_words_without_removals_excuse_until_they_show_it() -> None:
    """By more than the engine can hold, or by blocks computed anew; before, what they come to is what can be known."""
    events = [stored(1, 2), stored(3, first=2, parent=2), stored(1, 2)]
    messages = [TraceMessage(POD, 0, 0, b"", n.to_bytes(8, "big"), payload(each)) for n, each in enumerate(events)]

    def unknown(words: list[TraceMessage], capacity: int | None) -> list[int | None]:
        told = evictions_unsaid(Caches(words), capacity)
        return [told.unknown(POD, Moment(0, sequence), (*TOKENS, 7)) for sequence in (-1, 0, 1, 2)]

    assert [0, 32, 48, None] == unknown(messages, None)
    assert [0, 32, None, None] == unknown(messages, 2)
    honest = [TraceMessage(POD, 0, 0, b"", bytes(8), payload(stored(1, 2), removed(2))), *messages[1:]]
    assert unknown(honest, None)[-1] is not None


def test_how_long_answers_rested() -> None:
    """Until one names more, or is not certain; of an engine that lies, until it is doubted."""
    rests = Rests()
    rests.goes_on(0, Rest(1.0, Moment(0, 4), 5))
    rests.goes_on(0, Rest(2.0, Moment(0, 4), 5))
    rests.goes_on(1, Rest(1.0, None, 10))
    for pod in (0, 1, 2):
        rests.hears(pod, Moment(0, 4), Moment(0, 12), certain=True, now=3.0)
    assert ([], 2) == (rests.lasted, rests.unending)

    for pod in (0, 1):
        rests.hears(pod, Moment(0, 12), Moment(0, 12), certain=True, now=4.0)
    assert ([(3.0, 0)], 1) == (rests.lasted, rests.unending)

    rests.hears(1, Moment(0, 12), Moment(0, 12), certain=False, now=6.0)
    assert ([(3.0, 0), (5.0, 2)], 0) == (rests.lasted, rests.unending)
