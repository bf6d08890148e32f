"""The ring: what is durable goes, by number and stamp; what finds no room goes; changes of the connection stay."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from indexer.collect.lanes import cost_bytes
from indexer.collect.ring import (
    AWAY_MAX,
    CHANGE_OVERHEAD_BYTES,
    RUN_OVERHEAD_BYTES,
    SETTLED,
    Anchor,
    Change,
    Down,
    Link,
    Ring,
    RingBudget,
    Run,
    Up,
)
from indexer.decode.envelope import stamp
from indexer.model import RawBatch
from tests.support.collect_batches import batch, batches

COST = cost_bytes(batch(1))
HWM = 4
EVERYTHING = 1_000_000


def ring_for(count: int = 1_000, budget: RingBudget | None = None) -> Ring:
    """A ring with room for so many batches in a row, and for a new run behind them."""
    return Ring(count * COST + 2 * RUN_OVERHEAD_BYTES, budget or RingBudget(EVERYTHING), HWM)


def filled(*items: RawBatch | Change, count: int = 1_000, budget: RingBudget | None = None) -> Ring:
    """A ring that these came into, in this order."""
    ring = ring_for(count, budget)
    for item in items:
        if isinstance(item, RawBatch):
            ring.push(item)
        else:
            ring.change(item)
    return ring


def drained(ring: Ring) -> list[RawBatch | Change]:
    """All that it tells, one after the other."""
    told: list[RawBatch | Change] = []
    while (item := ring.take(3, EVERYTHING)) is not None:
        if isinstance(item, list):
            told += item
        else:
            told.append(item)
    assert not ring
    assert (0, 0) == (ring.batches, ring.changes)
    return told


def note(ring: Ring, message: RawBatch, alive_at: float | None = None) -> None:
    """The owner has made it durable."""
    ring.note(message.sequence, stamp(message.payload), alive_at)


def told_of(ring: Ring, *messages: RawBatch, at: float) -> bool:
    """The owner made these durable, one a second from then on. Whether the connection is a strange one."""
    for nth, message in enumerate(messages):
        ring.note(message.sequence, stamp(message.payload), None, at + nth)
    return ring.is_strange


def test_a_connection_that_does_not_bring_what_is_said_meanwhile_is_strange() -> None:
    """It was there when the owner knew of less, and brought nothing younger. Given up, it never was anybody's."""
    ring = filled(Up(1.0), *batches(3, 5))

    assert not told_of(ring, *batches(3, 4), at=5.0)
    assert told_of(ring, batch(0, 1), at=7.0)
    assert ring.part()
    assert not ring.part()
    assert [batch(5), Down(1.0)] == drained(ring)

    assert told_of(filled(Up(1.0)), batch(3), batch(0, 1), at=5.0)  # where nothing ever came, too


def test_what_need_not_have_come_makes_no_connection_strange() -> None:
    """It was said before the connection stood, is older than what came, or comes yet; or none stands."""
    assert not told_of(filled(Up(1.0), *batches(3, 5)), batch(0, 1), at=5.0)
    assert not told_of(filled(Up(5.5), *batches(3, 5)), batch(3), batch(0, 1), at=5.0)
    assert not told_of(filled(Up(1.0), *batches(3, 5, 1)), batch(0), batch(1), at=5.0)
    assert not told_of(filled(Up(1.0), *batches(3, 5), Down(2.0)), batch(3), batch(0, 1), at=5.0)

    ring = filled(Up(1.0), *batches(3, 5))
    assert told_of(ring, batch(3), batch(6), at=5.0)
    ring.push(batch(6))
    assert not ring.is_strange

    ring = filled(Up(1.0), *batches(3, 5))
    assert told_of(ring, batch(3), batch(6), at=5.0)
    for change in (Down(7.0), Up(7.5)):  # that was another one
        ring.change(change)
    assert not ring.part()

    ring = filled(Up(1.0), *batches(3, 5))
    assert told_of(ring, batch(3), batch(6), at=5.0)
    ring.push(batch(7))  # the one before was lost on its way here alone
    assert not ring.is_strange


def test_what_came_is_told_in_its_order() -> None:
    """Messages, and between them what happened to the connection."""
    items = [Up(1.0), *batches(3, 5), Down(2.0), Up(9.0), batch(0, 1), SETTLED, *batches(1, 2, life=1)]

    assert items == drained(filled(*items))


def test_a_quantum_is_bounded_in_messages_and_in_bytes() -> None:
    """At least one message; never over a change, nor over a hole in the numbers."""
    ring = filled(*batches(0, 9), *batches(12, 13))
    assert batches(0, 2) == ring.take(3, EVERYTHING)
    assert batches(3, 3) == ring.take(3, 1)
    assert batches(4, 9) == ring.take(30, EVERYTHING)
    assert batches(12, 13) == ring.take(30, EVERYTHING)
    assert ring.take(30, EVERYTHING) is None


def test_what_is_durable_goes_and_all_before_it() -> None:
    """Its bytes are given back."""
    budget = RingBudget(EVERYTHING)
    ring = filled(Up(1.0), *batches(3, 9), budget=budget)
    used = budget.used_bytes
    note(ring, batch(6))

    assert used - 4 * COST == budget.used_bytes == ring.used_bytes
    assert Anchor(6, stamp(batch(6).payload)) == ring.anchor
    assert batches(7, 9) == drained(ring)
    assert 0 == budget.used_bytes


def test_a_note_about_what_has_not_arrived_yet_waits_for_it() -> None:
    """The owner may be ahead of this process."""
    ring = filled(*batches(3, 5))
    note(ring, batch(7))
    ring.push(batch(6))
    assert 4 == ring.batches
    ring.push(batch(7))
    assert 0 == ring.batches
    ring.push(batch(8))

    assert [batch(8)] == drained(ring)


def test_the_same_number_of_another_life_is_another_batch() -> None:
    """Nothing goes for it: neither what is newer, nor what may be."""
    ring = filled(*batches(0, 9), Down(1.0), Up(7.0), *batches(0, 9, life=1))
    note(ring, batch(5, 2))
    assert 20 == ring.batches
    note(ring, batch(5))
    assert 14 == ring.batches
    note(ring, batch(3, 1))

    assert batches(4, 9, life=1) == drained(ring)


def test_a_note_that_cannot_name_a_batch_lets_nothing_go() -> None:
    """After a gap the owner knows no stamp, and before the first batch no number."""
    ring = filled(*batches(0, 3))
    ring.note(2, None, 5.0)
    ring.note(None, None, 4.0)

    assert (4, 5.0) == (ring.batches, ring.alive_at)


def test_a_note_takes_the_changes_before_it_along() -> None:
    """How the connection stood at that batch is where it goes on."""
    ring = filled(Up(1.0), *batches(0, 3), Down(2.0), Up(3.0), *batches(4, 5), Down(4.0))
    note(ring, batch(4))
    assert Link(connected=True, since=3.0, settled=False) == ring.base
    note(ring, batch(5))

    assert [Down(4.0)] == drained(ring)


def test_full_the_oldest_goes() -> None:
    """Counted, here and over the process."""
    budget = RingBudget(EVERYTHING)
    ring = filled(*batches(0, 19), count=10, budget=budget)
    assert 0 < ring.dropped == budget.dropped
    assert ring.used_bytes <= 10 * COST + 2 * RUN_OVERHEAD_BYTES

    assert batches(ring.dropped, 19) == drained(ring)


def test_what_goes_for_want_of_room_leaves_its_changes() -> None:
    """As far as they matter to whoever goes on from any moment: a short absence before a longer one does not."""
    blink = [Down(1.25), Up(1.5)]
    before = [Up(1.0), batch(0), *blink, Down(2.0), Up(9.0), batch(1), SETTLED, Down(10.0), Up(11.0)]
    ring = filled(*before, *batches(2, 30), count=5)

    assert [Up(2.0), Down(2.0), Up(9.0), Down(10.0), Up(11.0), SETTLED, *batches(ring.dropped, 30)] == drained(ring)


def test_an_empty_ring_takes_one_batch_of_any_size() -> None:
    """As long as the process may hold it."""
    large = batch(1, size_bytes=50 * COST)
    ring = filled(batch(0), large, count=10)

    assert 1 == ring.dropped
    assert [large] == drained(ring)


def test_where_others_have_spent_the_budget_the_new_one_is_lost() -> None:
    """Whoever has something to let go takes its own."""
    budget = RingBudget(3 * COST + 3 * RUN_OVERHEAD_BYTES)
    first = filled(*batches(0, 2), budget=budget)
    second = filled(*batches(0, 5), budget=budget)
    assert (0, 3) == (first.dropped, first.batches)
    assert second.dropped + second.batches == 6
    budget.used_bytes += EVERYTHING
    second.push(batch(6))
    assert (True, 0, 7) == (second.tail_lost, second.batches, second.dropped)
    budget.used_bytes -= EVERYTHING
    second.push(batch(7))

    assert not second.tail_lost
    assert [batch(7)] == drained(second)


def test_a_durable_batch_that_found_no_room_is_not_lost() -> None:
    """It is not needed."""
    budget = RingBudget(0)
    ring = ring_for(budget=budget)
    ring.push(batch(3))
    assert ring.tail_lost
    note(ring, batch(4))
    ring.push(batch(4))

    assert not ring.tail_lost
    assert Anchor(4, stamp(batch(4).payload)) == ring.anchor


def test_a_connection_that_comes_and_goes_is_bounded() -> None:
    """Nothing but changes: few absences of them are kept, and the sum of the others."""
    flapping = [change for at in range(10_000) for change in (Up(at * 2.0), Down(at * 2.0 + 1.0))]
    assert 0 == filled(*flapping).used_bytes
    ever_shorter = filled(*(change for n in range(99) for change in (Up(n * 99.0), Down(n * 99.0 + n))))
    assert 2 * AWAY_MAX + 2 >= len([change for change in drained(ever_shorter) if change is not SETTLED])
    behind = filled(batch(0), *flapping, count=10)

    assert behind.used_bytes <= 10 * COST + 2 * RUN_OVERHEAD_BYTES
    assert CHANGE_OVERHEAD_BYTES * behind.changes == behind.used_bytes


@pytest.mark.parametrize("emptied", [False, True])
def test_a_reconnect_is_settled_once_its_queue_was_read(emptied: bool) -> None:
    """Or found empty: what comes before that may be of the connection before."""
    ring = filled(Up(1.0), batch(0), Down(2.0), Up(3.0))
    ring.take_in([], batches(1, 2), emptied=emptied)
    ring.take_in([], batches(3, 5), emptied=False)
    expected = [*batches(1, 2), SETTLED, *batches(3, 5)] if emptied else [*batches(1, 4), SETTLED, batch(5)]

    assert [Up(1.0), batch(0), Down(2.0), Up(3.0), *expected] == drained(ring)


def test_what_was_taken_out_and_not_applied_comes_first_again() -> None:
    """In its order, before what came since."""
    ring = filled(Up(1.0), *batches(0, 5), *batches(9, 11))
    assert Up(1.0) == ring.take(2, EVERYTHING)
    taken = ring.take(2, EVERYTHING)
    assert isinstance(taken, list)
    ring.return_to_front(taken)
    ring.return_to_front(batches(20, 21))

    assert [*batches(20, 21), *batches(0, 5), *batches(9, 11)] == drained(ring)


# --- any order of anything ---


class Machine(RuleBasedStateMachine):
    """Against a list of all that ever came. The owner's notes follow the stream, ahead of this process or behind it."""

    @initialize(count=st.sampled_from([6, 1_000]))
    def begin(self, count: int) -> None:
        self.budget = RingBudget(EVERYTHING)
        self.ring = ring_for(count, self.budget)
        self.is_large = count > 6
        self.came: list[RawBatch] = []
        self.gone = 0
        self.ahead: RawBatch | None = None
        self.life = self.number = 0

    @rule(count=st.integers(1, 4))
    def arrive(self, count: int) -> None:
        for each in batches(self.number, self.number + count - 1, self.life):
            self.came.append(each)
            self.ring.push(each)
            if each == self.ahead:
                self.gone = len(self.came)
        self.number += count

    @rule(count=st.integers(1, 3))
    def lose(self, count: int) -> None:
        self.number += count

    @rule()
    def restart(self) -> None:
        self.ring.change(Down(1.0))
        self.ring.change(Up(9.0))
        self.life, self.number = self.life + 1, 0

    @rule()
    def blink(self) -> None:
        self.ring.change(Down(1.0))
        self.ring.change(Up(2.0))

    @precondition(lambda self: self.gone < len(self.came))
    @rule(data=st.data())
    def note_what_came(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(self.gone, len(self.came) - 1))
        self.gone, self.ahead = place + 1, None
        note(self.ring, self.came[place])

    @rule(count=st.integers(0, 3))
    def note_what_has_not_come(self, count: int) -> None:
        self.ahead = batch(self.number + count, self.life)
        note(self.ring, self.ahead)

    @invariant()
    def it_holds_what_is_behind_the_newest_note(self) -> None:
        """Or the newest of it, where there was no room for all."""
        if not hasattr(self, "ring"):
            return
        held = [each for run in self.ring.entries if isinstance(run, Run) for each in run.batches]
        left = self.came[self.gone :]
        assert held == left[len(left) - len(held) :]
        assert len(held) == len(left) if self.is_large else len(held) + self.ring.dropped >= len(left)
        assert len(held) == self.ring.batches
        assert self.budget.used_bytes == self.ring.used_bytes

    def teardown(self) -> None:
        if hasattr(self, "ring"):
            drained(self.ring)
            assert 0 == self.budget.used_bytes


TestRing = Machine.TestCase
