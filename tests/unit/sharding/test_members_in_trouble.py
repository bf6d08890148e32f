"""Several replicas and a store, second by second: what outages, losses and pauses must not be taken for."""

from __future__ import annotations

from typing import Final

from hypothesis import example, given
from hypothesis import strategies as st

from indexer.sharding.members import Member, Members, Reading

TIMEOUT_S: Final = 10.0
RETURNS_S: Final = 6
"""So long after the store is back a replica may take to find that out: its retries rest."""
NAMES: Final = ("a", "b", "c")

Second = tuple[bool, bool, int, int]
"""Whether the store is away, and loses all; who is paused (3: nobody), and how late the next one to return is."""


class Store:
    """The beats, as the script keeps them; times in seconds."""

    def __init__(self) -> None:
        self.beats: dict[str, int] = {}

    def beat(self, name: str, now: int) -> Reading:
        """Tell and hear."""
        self.beats[name] = now
        said = {each: Member(name=each, process="1") for each in self.beats}
        return Reading({each: ((now - at) * 1_000, said[each]) for each, at in self.beats.items()}, {})


class World:
    """Replicas that all live, each with its own clock; one joins late."""

    def __init__(self, joins_at: int) -> None:
        self.store = Store()
        self.now = 0
        self.members = {name: Members(name, timeout_s=TIMEOUT_S) for name in NAMES}
        self.joins_at = joins_at
        self.silent_until = dict.fromkeys(NAMES, 0)
        self.seen: dict[str, set[str]] = {name: set() for name in NAMES}

    def clock(self, name: str) -> float:
        """Clocks of machines have nothing in common."""
        return self.now + 1_000.0 * NAMES.index(name)

    def second(self, happens: Second) -> None:
        """Everybody who can beats once."""
        is_away, is_lost, paused, late = happens
        self.now += 1
        if is_lost:
            self.store.beats.clear()
        for number, name in enumerate(NAMES):
            if number == paused or (name == "c" and self.now < self.joins_at):
                continue
            if is_away:
                self.members[name].missed(self.clock(name))
                self.silent_until[name] = self.now + 1 + (late + number) % RETURNS_S
            elif self.now < self.silent_until[name]:
                self.members[name].missed(self.clock(name))
            else:
                self.members[name].heard(self.store.beat(name, self.now), self.clock(name))


def seconds(*, paused: int) -> st.SearchStrategy[list[Second]]:
    """Spells of trouble and of calm."""
    spell = st.tuples(st.booleans(), st.booleans(), st.just(paused), st.integers(0, RETURNS_S - 1), st.integers(1, 25))
    return st.lists(spell, max_size=8).map(
        lambda spells: [
            (is_away, is_lost and nth == 0, who, late)
            for is_away, is_lost, who, late, length in spells
            for nth in range(length)
        ]
    )


@given(seconds(paused=3), st.integers(1, 60))
@example([(3 <= at < 11, False, 3, 0) for at in range(14)], 3)  # it came in the last second before the store was away
def test_no_outage_or_loss_of_the_store_kills_anybody(happens: list[Second], joins_at: int) -> None:
    """However long, however often, and however late each finds out that it is over: who was seen live stays so."""
    world = World(joins_at)

    for each in happens:
        world.second(each)
        for name, members in world.members.items():
            live = set(members.live(world.clock(name)))
            assert world.seen[name] <= live, f"{name} at {world.now}"
            world.seen[name] = live


@given(seconds(paused=1), st.integers(1, 60))
def test_who_is_away_is_dead_in_the_end_and_kills_nobody_when_it_wakes(happens: list[Second], joins_at: int) -> None:
    """One is paused throughout. In calm the others agree that it is dead; woken, it sees them live at once."""
    world = World(joins_at)
    for _ in range(3):
        world.second((False, False, 3, 0))
    woken = world.members["b"]
    before = set(woken.live(world.clock("b")))
    for each in happens:
        world.second(each)
    world.now = max(world.now, joins_at)

    for _ in range(2 * int(TIMEOUT_S) + RETURNS_S):
        world.second((False, False, 1, 0))
    for name in ("a", "c"):
        assert {"a", "c"} == set(world.members[name].live(world.clock(name)))
        assert world.members[name].is_judging(world.clock(name))

    assert before == set(woken.live(world.clock("b")))
    assert not woken.is_judging(world.clock("b"))
    for _ in range(int(TIMEOUT_S)):
        world.second((False, False, 3, 0))
        assert set(NAMES) == set(woken.live(world.clock("b")))
    world.second((False, False, 3, 0))
    assert all(each.is_judging(world.clock(name)) for name, each in world.members.items())
