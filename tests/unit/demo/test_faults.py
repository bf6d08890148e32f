"""When the demo kills and pauses replicas, and what it says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from api.demo.facts import SourceFacts
from api.demo.faults import CALM_S, Faults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.demo.faults import Kind


class Words:
    """Replicas of which a test says what they do; notes what is done to them."""

    lease_s = 2.0

    def __init__(self) -> None:
        self.even, self.others, self.back = True, False, False
        self.done: list[tuple[str, ...]] = []

    def busiest(self, *, other_than: str) -> str:
        self.done.append(("not", other_than))
        return "r2"

    def take(self, replica: str, kind: Kind) -> int:
        self.done.append((kind, replica))
        self.even = self.back = self.others = False
        return 5

    def bring_back(self, replica: str) -> None:
        self.done.append(("back", replica))

    def is_back(self, replica: str) -> bool:
        return self.back and replica == "r2"

    def others_own_all(self, replica: str) -> bool:
        return self.others and replica == "r2"

    def is_even(self) -> bool:
        return self.even

    def first_words(self, replica: str, engines: Sequence[str]) -> str:
        return f"{replica} says {' '.join(engines)} stale"


class Course:
    """Steps in a time of its own."""

    def __init__(self) -> None:
        self.words, self.at = Words(), 0.0
        self.sources = {
            "a": SourceFacts("a", "live", "exact", generation="1f", owner="r2"),
            "b": SourceFacts("b", "live", "exact", generation="20", owner="r1"),
        }
        self.faults = Faults(self.words, lambda: self.sources, lambda: self.at)

    def step(self, after_s: float, *, all_live: bool = True, may_begin: bool = True) -> list[str]:
        """What it says anew."""
        self.at += after_s
        before = len(self.faults.said)
        self.faults.step(all_live=all_live, may_begin=may_begin)
        return self.faults.said[before:]

    def take(self) -> list[str]:
        """Calm for long enough, then one falls."""
        assert [] == self.step(0)
        return self.step(CALM_S)

    def come(self) -> list[str]:
        """Its share is taken over, it comes back and gets it again."""
        self.words.others = True
        said = self.step(4.0)
        self.words.back = self.words.even = True
        return said + self.step(1.0)


def test_killed_then_paused() -> None:
    """In turns, not the same one where another would do; each told: it falls, is replaced, is back, has its share."""
    course = Course()
    killed, came = course.take(), course.come()
    paused, went_on = course.take(), course.come()

    assert [
        *(("not", ""), ("killed", "r2"), ("back", "r2")),
        *(("not", "r2"), ("paused", "r2"), ("back", "r2")),
    ] == course.words.done
    assert ["r2 is killed (SIGKILL); it owned 5 partitions, with 1 of 2 engines"] == killed
    assert [
        "all it owned has another owner after 4.0 s (the lease is 2 s)",
        "r2 is started again",
        "r2 has its share again; nothing was lost: every engine in the same generation",
    ] == came
    assert ["r2 is paused (SIGSTOP), for longer than its lease; it owned 5 partitions, with 1 of 2 engines"] == paused
    assert "r2 goes on (SIGCONT), asked at once it says: r2 says a stale" == went_on[1]
    assert [True, True] == [fault.kept for fault in course.faults.done]


def test_never_two_at_a_time() -> None:
    """The next one waits until all have their share again and every engine is live everywhere."""
    course = Course()
    course.take()
    course.words.others = True
    course.step(10.0)
    course.words.back = course.words.even = True
    waiting = course.step(10.0, all_live=False)

    assert [] == waiting
    assert course.faults.under_way
    assert [("not", ""), ("killed", "r2"), ("back", "r2")] == course.words.done


def test_not_before_it_is_calm() -> None:
    """For a while without a break, and only where the moment is right."""
    course = Course()
    course.step(0)
    course.words.even = False
    course.step(CALM_S)
    course.words.even = True
    course.step(CALM_S)
    course.step(CALM_S, may_begin=False)

    assert not course.faults.under_way


def test_it_comes_back_no_sooner_than_its_lease_is_over() -> None:
    """Even where others took over at once."""
    course = Course()
    course.take()
    course.words.others = True
    course.step(1.0)

    assert [("not", ""), ("killed", "r2")] == course.words.done


def test_what_was_lost_is_said() -> None:
    """An engine in a new generation, and one of which it is not sure any more what it holds."""
    course = Course()
    course.take()
    course.sources = {
        "a": SourceFacts("a", "live", "exact", generation="ff", owner="r1"),
        "b": SourceFacts("b", "live", "estimate", generation="20", owner="r1"),
    }

    assert "lost on the way: begun anew a, in doubt b" == course.come()[-1]
    assert [False] == [fault.kept for fault in course.faults.done]
