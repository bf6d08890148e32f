"""What operators see of partitions, out of plain facts."""

from __future__ import annotations

import msgspec
import pytest

from indexer.partitions.options import PartitionProgress
from indexer.partitions.views import Around, Kept, OwnerFacts, partition_views, partitions_progress, replica_views
from indexer.sharding.members import Member, Members, Reading
from indexer.sharding.rendezvous import Share
from schemas.rest import PartitionView

OWNED = OwnerFacts(
    partition=0,
    role="owner",
    holder="a",
    epoch=3,
    position="3-17",
    age_s=0.25,
    pending_bytes=40,
    sources=2,
    has_loaded=True,
    is_held=True,
    is_lost=False,
)
FOLLOWED = PartitionProgress(partition=1, state="following", sources=3, loaded=2, position="5-9", age_s=0.5, reloads={})


def test_an_owned_and_a_followed_partition_stand_in_their_order() -> None:
    """Who writes it, how far it is written or applied, and how old that is."""
    owned, followed = partition_views(2, {0: OWNED}, {1: FOLLOWED}, {}, Around({1: "b"}))

    assert (owned.role, owned.state, owned.owner, owned.epoch, owned.position) == ("owner", "live", "a", 3, "3-17")
    assert (owned.age_ms, owned.pending_bytes, owned.sources) == (250, 40, 2)
    assert (followed.role, followed.state, followed.owner, followed.epoch) == ("follower", "live", "b", 5)
    assert (followed.position, followed.age_ms, followed.pending_bytes, followed.sources) == ("5-9", 500, None, 3)


def test_what_is_followed_is_shown_as_followed_though_it_is_tried_for() -> None:
    """A replica that waits for a lease follows meanwhile."""
    (view,) = partition_views(1, {0: OWNED._replace(role="waiting", holder="b")}, {0: FOLLOWED}, {}, Around())

    assert view.role == "follower"


@pytest.mark.parametrize(
    ("changed", "state"),
    [
        ({"role": "loading"}, "loading"),
        ({"role": "waiting", "has_loaded": False}, "waiting"),
        ({"role": "none", "has_loaded": False}, "waiting"),
        ({"role": "waiting"}, "stale"),
        ({"is_held": False}, "stale"),
        ({"is_lost": True}, "asserting"),
        ({}, "live"),
    ],
)
def test_states_of_what_is_owned_or_tried_for(changed: dict[str, object], state: str) -> None:
    """Only a partition whose lease runs and whose maps are whole is live."""
    (view,) = partition_views(1, {0: OWNED._replace(**changed)}, {}, {}, Around())

    assert view.state == state


def test_what_is_not_known_is_left_out() -> None:
    """Before the first entry there is no epoch and no position; of what is not written here no bytes wait here."""
    waiting = OWNED._replace(role="waiting", holder="", epoch=0, position="0-0", has_loaded=False)
    lost = PartitionProgress(partition=1, state="lost", sources=0, loaded=0, position="0-0", age_s=None, reloads={})

    tried, followed = partition_views(2, {0: waiting}, {1: lost}, {}, Around({1: ""}))

    assert (tried.owner, tried.epoch, tried.position, tried.age_ms, tried.pending_bytes) == (None,) * 5
    assert (followed.state, followed.owner, followed.epoch, followed.position) == ("stale", None, None, None)


def test_who_stands_by_is_told_and_what_is_kept_here() -> None:
    """The role is that of the replica that answers; what waits at the owner is as that one told."""
    members = {"a": Member(name="a", process="p"), "b": Member(name="b", process="p", owned={1: 70})}
    around = Around({1: "b"}, [Share("a", "b"), Share("b", "a")], members)

    owned, stood_by = partition_views(2, {0: OWNED}, {1: FOLLOWED}, {1: Kept(9_000, 12, 3)}, around)

    assert ("owner", "b", 40, None) == (owned.role, owned.standby, owned.pending_bytes, owned.standby_bytes)
    assert ("standby", "live", "b", "a", 70) == (
        stood_by.role,
        stood_by.state,
        stood_by.owner,
        stood_by.standby,
        stood_by.pending_bytes,
    )
    assert (9_000, 12, 3) == (stood_by.standby_bytes, stood_by.standby_batches, stood_by.standby_dropped)


@pytest.mark.parametrize(
    ("owner", "share", "standby"),
    [
        ("a", Share("a", "b"), "b"),
        ("c", Share("a", "b"), "a"),  # about to move
        ("", Share("a", "b"), "b"),  # nobody owns it at the moment
        ("a", Share("a", None), None),
        ("a", Share("a", "lazy"), None),
        ("a", Share("a", "gone"), None),
        ("a", Share(None, None), None),
    ],
)
def test_who_would_take_a_partition_over(owner: str, share: Share, standby: str | None) -> None:
    """Who listens along: a replica that is there and does so, or whom a planned move gives it to."""
    members = {
        name: Member(name=name, process="p", stands_by=name != "lazy", owned={} if name == "c" else {7: 1})
        for name in ("a", "b", "c", "lazy")
    }

    (view,) = partition_views(2, {}, {1: FOLLOWED}, {}, Around({1: owner}, [Share(None, None), share], members))

    assert standby == view.standby


def test_replicas_are_listed_with_their_state_and_share() -> None:
    """In the order of names, whoever is remembered."""
    members = Members("b", timeout_s=10.0)
    told = {
        "b": Member(name="b", process="p2", address="h:2", owned={1: 0, 2: 0}),
        "a": Member(name="a", process="p1", address="h:1", owned={0: 3}),
        "gone": Member(name="gone", process="p3", owned={3: 0}),
        "going": Member(name="going", process="p4", leaving=True, owned={0: 0}),
        "drained": Member(name="drained", process="p5"),
    }
    drains = {"drained": "p5", "a": "another process"}
    for second in range(12):
        beats = {name: (1000 * second if name == "gone" else 5, member) for name, member in told.items()}
        members.heard(Reading(beats, drains), float(second))
    views = [
        PartitionView(partition=0, role="none", state="live", owner="b", standby=name) for name in ("a", "a", None)
    ]

    assert [
        ("a", "h:1", "live", 1, 2, 255, False),
        ("b", "h:2", "live", 3, 0, 255, True),
        ("drained", "", "draining", 0, 0, 255, False),
        ("going", "", "leaving", 0, 0, 255, False),
        ("gone", "", "silent", 0, 0, 11_250, False),
    ] == [msgspec.structs.astuple(view) for view in replica_views("b", members, 11.25, views)]


def test_progress_counts_partitions_by_what_is_done_with_them() -> None:
    """For `/readyz`: owned, loading and followed ones, and the sources of these."""
    loading = PartitionProgress(
        partition=2, state="loading", sources=4, loaded=1, position="0-0", age_s=None, reloads={}
    )
    owners = [OWNED, OWNED._replace(partition=3, role="loading")]

    assert partitions_progress(4, owners, [FOLLOWED, loading], 2) == {
        "total": 4,
        "owned": 1,
        "loading": 2,
        "followed": 1,
        "waiting": 2,
        "sources_loaded": 3,
        "sources_followed": 7,
    }
