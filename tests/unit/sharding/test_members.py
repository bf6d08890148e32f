"""Who is there, as transcripts: readings in, members out. Times are seconds on this replica's clock."""

from __future__ import annotations

from typing import Final

import pytest

from indexer.sharding.members import Member, Members, Reading

TIMEOUT_S: Final = 10.0
ME: Final = "a"


def said(
    ages_ms: dict[str, int], *, drains: dict[str, str] | None = None, changed: dict[str, Member] | None = None
) -> Reading:
    """A reading: how long ago each beat; a process is called as its replica, with a 1 behind it."""
    members = {name: Member(name=name, process=f"{name}1") for name in ages_ms} | (changed or {})
    return Reading({name: (age, members[name]) for name, age in ages_ms.items()}, drains or {})


def following(*readings: tuple[float, Reading]) -> Members:
    """Of `ME`, after these answers."""
    members = Members(ME, timeout_s=TIMEOUT_S)
    for now, reading in readings:
        members.heard(reading, now)
    return members


def beating(until: int, *names: str) -> list[tuple[float, Reading]]:
    """Everybody beats twice a second, this replica once, from 0 on."""
    return [(float(now), said({ME: 0} | dict.fromkeys(names, 500))) for now in range(until + 1)]


def test_at_the_start_nobody_is_known() -> None:
    """And nobody is judged."""
    members = following()

    assert {} == members.live(5.0)
    assert frozenset() == members.candidates(5.0)
    assert not members.is_judging(5.0)
    assert not members.is_draining("b")


def test_the_first_answer_names_all_that_beat() -> None:
    """Where all did lately there is nothing to wait for."""
    members = following((0.0, said({ME: 0, "b": 700})))

    assert {ME, "b"} == set(members.live(0.1))
    assert members.is_judging(0.1)


def test_a_newcomer_waits_before_it_calls_anybody_dead() -> None:
    """An old beat at the first answer: the other is dead, or cut off from a store that is only just back."""
    members = following((0.0, said({ME: 0, "b": 60_000})))
    assert {ME, "b"} == set(members.live(0.5))
    assert not members.is_judging(0.5)

    for now in range(1, 11):
        members.heard(said({ME: 0, "b": 60_000 + now * 1_000}), now)

    assert {ME} == set(members.live(10.0))
    assert members.is_judging(10.0)


def test_one_joins() -> None:
    """From the reading on that has it."""
    members = following(*beating(3, "b"))
    assert {ME, "b"} == members.candidates(3.5)

    members.heard(said({ME: 0, "b": 500, "c": 10}), 4.0)

    assert {ME, "b", "c"} == members.candidates(4.0)
    assert members.is_judging(4.0)


def test_one_leaves() -> None:
    """At once, while it still beats."""
    members = following(*beating(3, "b"))

    members.heard(said({ME: 0, "b": 10}, changed={"b": Member(name="b", process="b1", leaving=True)}), 3.2)

    assert {ME} == set(members.live(3.2))
    assert {ME} == members.candidates(3.2)
    assert {ME, "b"} == set(members.everyone(3.2))


def test_one_that_only_looks_things_up_is_no_candidate() -> None:
    """It is live, and owns nothing."""
    members = following((0.0, said({ME: 0, "b": 0}, changed={"b": Member(name="b", process="b1", collects=False)})))

    assert {ME, "b"} == set(members.live(0.0))
    assert {ME} == members.candidates(0.0)


def test_silence_is_death_after_the_time_out() -> None:
    """By the age that the server tells, counted on between two answers."""
    members = following(*beating(3, "b"))
    for now in range(4, 13):
        members.heard(said({ME: 0, "b": 500 + (now - 3) * 1_000}), now)

    assert {ME, "b"} == set(members.live(12.5))  # its last beat was at 2.5
    assert {ME} == set(members.live(12.6))
    assert members.is_judging(12.6)
    silent_s, _ = members.everyone(12.6)["b"]
    assert 10.1 == pytest.approx(silent_s)


def test_between_answers_silence_counts_for_little_longer_than_one_is_recent() -> None:
    """Nobody dies, and nobody comes back, because the store is slow to answer."""
    members = following(*beating(3, "b"))

    assert {ME, "b"} == set(members.live(1_000.0))
    assert not members.is_judging(1_000.0)


def test_a_late_answer_is_no_outage() -> None:
    """One beat was missed and the next one answered: judging goes on."""
    members = following(*beating(3, "b"))

    members.missed(4.2)
    assert not members.is_judging(4.3)
    members.heard(said({ME: 0, "b": 400}), 4.9)

    assert members.is_judging(4.9)


def away(members: Members, since: float, until: float) -> None:
    """Beats fail, one a second."""
    now = since
    while now < until:
        members.missed(now)
        now += 1.0


def test_after_an_outage_nobody_is_dead_for_one_time_out() -> None:
    """All beats are as old as the outage: who was live stays so until it could beat again."""
    members = following(*beating(3, "b", "c"))
    away(members, 4.0, 60.0)
    assert {ME, "b", "c"} == set(members.live(59.9))

    members.heard(said({ME: 0, "b": 57_500, "c": 57_500}), 60.0)
    assert {ME, "b", "c"} == set(members.live(60.0))
    assert not members.is_judging(60.0)
    for now in range(61, 70):
        members.heard(said({ME: 0, "b": 500, "c": 57_500 + (now - 60) * 1_000}), now)
    assert {ME, "b", "c"} == set(members.live(69.9))
    members.heard(said({ME: 0, "b": 500, "c": 67_500}), 70.0)

    assert {ME, "b"} == set(members.live(70.0))
    assert members.is_judging(70.0)


def test_who_was_dead_before_an_outage_stays_dead() -> None:
    """And who is only in a restored store never was live."""
    members = following(*beating(3, "b"))
    for now in range(4, 15):
        members.heard(said({ME: 0, "b": now * 1_000}), now)
    away(members, 15.0, 60.0)

    members.heard(said({ME: 0, "b": 60_000, "old": 9_000_000}), 60.0)

    assert {ME} == set(members.live(60.0))


def test_an_emptied_store_kills_nobody() -> None:
    """Missing members count from when they were last seen; they beat again, each in its time."""
    members = following(*beating(3, "b", "c"))

    members.heard(said({ME: 0}), 4.0)
    assert {ME, "b", "c"} == set(members.live(4.0))
    for now in range(5, 12):
        members.heard(said({ME: 0, "b": 500}), now)

    assert {ME, "b", "c"} == set(members.live(12.4))
    assert {ME, "b"} == set(members.live(12.6))


def test_who_is_missing_and_dead_is_forgotten() -> None:
    """What is remembered does not grow with the names that ever were."""
    members = following(*beating(3, "b"))
    for now in range(4, 15):
        members.heard(said({ME: 0}), now)

    assert {ME} == set(members.everyone(14.0))


def test_a_restored_store_that_remembers_an_old_life_is_not_believed() -> None:
    """The beat from before the snapshot said that it left; what was said since stands."""
    members = following(*beating(3, "b"))
    away(members, 4.0, 9.0)

    left = Member(name="b", process="b0", leaving=True)
    members.heard(said({ME: 0, "b": 900_000}, changed={"b": left}), 9.0)

    assert "b1" == members.live(9.0)["b"].process


def test_a_paused_replica_wakes_among_the_living() -> None:
    """Its clock jumped. Others have beaten meanwhile, which the next answer tells; before it nobody is judged."""
    members = following(*beating(3, "b", "c"))

    assert {ME, "b", "c"} == set(members.live(63.0))
    assert not members.is_judging(63.0)
    members.heard(said({ME: 0, "b": 500, "c": 59_000}), 63.0)

    assert {ME, "b", "c"} == set(members.live(63.0))
    assert not members.is_judging(63.0)
    for now in range(64, 74):
        members.heard(said({ME: 0, "b": 500, "c": 59_000 + (now - 63) * 1_000}), now)
    assert {ME, "b"} == set(members.live(73.0))


@pytest.mark.parametrize("age_ms", [10_300, 3_600_500])
def test_a_server_whose_clock_jumps_ahead_kills_nobody(age_ms: int) -> None:
    """A failover to one whose time differs: ages are wrong once, until each beats again."""
    members = following(*beating(3, "b"))

    members.heard(said({ME: 0, "b": age_ms}), 4.0)
    assert {ME, "b"} == set(members.live(4.0))
    members.heard(said({ME: 0, "b": 500}), 5.0)

    assert {ME, "b"} == set(members.live(5.0))


def test_a_mark_drains_the_process_it_names() -> None:
    """It is live and owns nothing; started again under its name it is a candidate like any other."""
    members = following((0.0, said({ME: 0, "b": 100}, drains={"b": "b1", "z": "z1"})))
    assert members.is_draining("b")
    assert not members.is_draining("z")
    assert {ME, "b"} == set(members.live(0.0))
    assert {ME} == members.candidates(0.0)

    again = Member(name="b", process="b2")
    members.heard(said({ME: 0, "b": 100}, drains={"b": "b1"}, changed={"b": again}), 1.0)

    assert not members.is_draining("b")
    assert {ME, "b"} == members.candidates(1.0)


def test_where_all_drain_nobody_is_a_candidate() -> None:
    """Whoever ordered it wanted that."""
    members = following((0.0, said({ME: 0, "b": 0}, drains={ME: "a1", "b": "b1"})))

    assert frozenset() == members.candidates(0.0)


def test_a_lifted_mark_counts_no_more() -> None:
    """From the next answer on."""
    members = following((0.0, said({ME: 0}, drains={ME: "a1"})), (1.0, said({ME: 0})))

    assert {ME} == members.candidates(1.0)


def test_two_processes_of_one_name_are_one_member() -> None:
    """Whoever beat last is it. The lease keeps them apart; a name is the operator's to choose."""
    members = following((0.0, said({ME: 0, "b": 100})))

    members.heard(said({ME: 0, "b": 50}, changed={"b": Member(name="b", process="b2", owned={3: 7})}), 1.0)
    assert ("b2", {3: 7}) == (members.live(1.0)["b"].process, members.live(1.0)["b"].owned)
    members.heard(said({ME: 0, "b": 50}), 2.0)

    assert "b1" == members.live(2.0)["b"].process
    assert {ME, "b"} == set(members.live(2.0))


def test_this_replica_is_live_by_its_own_word() -> None:
    """Until it says that it leaves."""
    members = following((0.0, said({ME: 0})))
    assert {ME} == set(members.live(500.0))

    members.heard(said({ME: 0}, changed={ME: Member(name=ME, process="a1", leaving=True)}), 1.0)

    assert {} == members.live(1.0)
