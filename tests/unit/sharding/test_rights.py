"""Who may take a partition that seems free, and when: transcripts."""

from __future__ import annotations

from typing import Final

from indexer.sharding.rendezvous import Share
from indexer.sharding.rights import GRACE_S, Claim, Seen, Standing

LEASE_S: Final = 10.0
OWNER: Final = Share("a", "b")


def standing(share: Share | None = OWNER, **more: object) -> Standing:
    """A calm one."""
    facts: dict[str, object] = {"is_candidate": True, "has_others": True, "calm_until": -1.0, "is_cut": False}
    return Standing(share, **{**facts, **more})  # type: ignore[arg-type]


def free(last: str = "", epoch: int = 7) -> Seen:
    """Nobody has it."""
    return Seen("", 0.0, "", last, epoch if last else 0)


def held(by: str, left_s: float = LEASE_S, epoch: int = 7) -> Seen:
    """Somebody has it."""
    return Seen(by, left_s, "", by, epoch)


def claim(me: str, *seen: tuple[Seen, float]) -> Claim:
    """After these answers; each takes a tenth of a second."""
    made = Claim(me, LEASE_S)
    for what, at in seen:
        made.saw(what, at, at + 0.1)
    return made


def test_of_a_partition_that_was_never_owned() -> None:
    """Whom the plan names takes it at once, the standby after a grace, others after two."""
    seen = (free(), 5.0)

    assert (5.1, 5.1 + GRACE_S, 5.1 + 2 * GRACE_S) == tuple(claim(me, seen).may_take_at(standing()) for me in "abc")


def test_what_is_held_is_nobody_elses() -> None:
    """As long as it is."""
    assert None is claim("b", (held("a"), 5.0)).may_take_at(standing())


def test_nothing_is_taken_unseen() -> None:
    """Nor before it is known who else is there."""
    assert None is Claim("a", LEASE_S).may_take_at(standing())
    assert None is claim("a", (free("x"), 5.0)).may_take_at(standing(None))


def test_a_lease_that_ran_out_is_the_standbys_at_once() -> None:
    """The plan still names the owner that died."""
    seen = ((held("a", 2.0), 5.0), (free("a"), 7.2))

    assert 7.3 == claim("b", *seen).may_take_at(standing())
    assert 7.3 + 2 * GRACE_S == claim("c", *seen).may_take_at(standing())


def test_a_reservation_that_lapsed_is_no_head_start() -> None:
    """Whoever was named waits no longer than anybody: ranks count from its end, not from when it was given up."""
    given_up = Seen("", 1.9, "a", "x", 7)
    seen = ((held("x", 9.0), 4.0), (given_up, 5.0), (free("x"), 7.2))

    assert (7.3, 7.3 + GRACE_S, 7.3 + 2 * GRACE_S) == tuple(claim(me, *seen).may_take_at(standing()) for me in "abc")


def test_a_lease_that_went_before_its_time_was_lost() -> None:
    """An emptied store says nothing of its owner, who has one lease time to take it again."""
    seen = ((held("a", 9.0), 5.0), (free(), 7.0))

    assert 7.1 + LEASE_S == claim("b", *seen).may_take_at(standing())
    assert 7.1 == claim("a", *seen).may_take_at(standing(None, is_cut=True))


def test_a_lost_lease_that_comes_back_is_held() -> None:
    """And what was thought of it before is of the past."""
    seen = ((held("a", 9.0), 5.0), (free(), 7.0), (held("a", 1.0), 8.0), (free("a"), 9.3))

    assert 9.4 == claim("b", *seen).may_take_at(standing())


def test_after_an_outage_the_last_holder_has_the_first_right() -> None:
    """Its lease ran out as all did; for one lease time nobody else takes it."""
    seen = (free("a"), 100.0)
    how = standing(calm_until=109.0)

    assert 100.1 == claim("a", seen).may_take_at(how)
    assert 109.0 == claim("b", seen).may_take_at(how)


def test_a_store_that_does_not_answer_gives_nothing_but_what_was_ones_own() -> None:
    """The first call that gets through again may be this one."""
    seen = (free("a"), 100.0)

    assert None is claim("b", seen).may_take_at(standing(is_cut=True))
    assert 100.1 == claim("a", seen).may_take_at(standing(is_cut=True))


def test_what_is_handed_over_is_for_one() -> None:
    """Others take it when that one does not, and then by rank."""
    reserved = Seen("", 2.0, "a", "x", 7)

    assert 5.1 == claim("a", (reserved, 5.0)).may_take_at(standing())
    assert None is claim("b", (reserved, 5.0)).may_take_at(standing())
    assert 7.6 == claim("x", (reserved, 5.0), (free("x"), 7.5)).may_take_at(standing())


def test_who_is_no_candidate_takes_only_where_nobody_is() -> None:
    """A draining replica alone in the world goes on owning."""
    seen = (free("x"), 5.0)

    assert None is claim("b", seen).may_take_at(standing(is_candidate=False))
    assert 5.1 + 3 * GRACE_S == claim("b", seen).may_take_at(standing(is_candidate=False, has_others=False))


def test_the_standby_of_another_owner_waits_a_grace() -> None:
    """The plan's owner is there and asks for it, as the one that had it last was another."""
    assert 5.1 + GRACE_S == claim("b", (free("z"), 5.0)).may_take_at(standing())


def test_what_was_taken_is_to_be_seen_anew() -> None:
    """A partition of one's own that is free in an emptied store is one's own still."""
    made = claim("a", (free(), 5.0))
    made.took(8)

    assert None is made.may_take_at(standing())
    made.saw(free(), 50.0, 50.1)
    assert 50.1 == made.may_take_at(standing(Share("b", "c")))


def test_a_store_that_lost_everything_in_an_outage_knows_no_last_holder() -> None:
    """Those that were there know it, and leave it the first right."""
    seen = ((held("a", 9.0), 5.0), (free(), 100.0))
    how = standing(calm_until=109.0)

    assert 109.0 == claim("b", *seen).may_take_at(how)
    assert 100.1 == claim("a", *seen).may_take_at(how)


def test_a_store_that_went_back_names_an_earlier_holder() -> None:
    """Who had it since is known here, and has the first right; the earlier one has none."""
    seen = ((held("a", 9.0, epoch=9), 5.0), (free("b", epoch=7), 100.0))
    how = standing(calm_until=109.0)

    assert 109.0 == claim("b", *seen).may_take_at(how)
    assert 100.1 == claim("a", *seen).may_take_at(how)
    assert claim("a", *seen).went_back()
    assert not claim("a", seen[0]).went_back()


def test_what_was_given_away_is_not_ones_own_in_a_store_that_is_emptied_then() -> None:
    """Nor in one that remembers an epoch of before: whom it was given to has it by now, and a lease time to say so.

    Whether or not this replica has looked since it gave it, and stands by or not.
    """
    for looked in ([], [Seen("", 0.0, "b", "a", 8)]):
        for seen in (free(), free("a", epoch=7)):
            for share in (Share("b", "a"), Share("b", "c")):
                made = claim("a")
                made.took(8)
                made.gave("b")
                for before in looked:
                    made.saw(before, 49.0, 49.1)
                made.saw(seen, 50.0, 50.1)
                assert 50.1 + LEASE_S == made.may_take_at(standing(share))


def test_what_was_given_and_not_taken_comes_back() -> None:
    """The store is as it was, but for the reservation, which has lapsed."""
    made = claim("a")
    made.took(8)
    made.gave("b")
    made.saw(Seen("", 0.0, "b", "a", 8), 49.0, 49.1)
    made.saw(free("a", epoch=8), 50.0, 50.1)
    assert 50.1 == made.may_take_at(standing(Share("a", "b")))
    assert 50.1 == made.may_take_at(standing(Share("b", "a")))
