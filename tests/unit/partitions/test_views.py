"""What operators see of partitions, out of plain facts."""

from __future__ import annotations

import pytest

from indexer.partitions.options import PartitionProgress
from indexer.partitions.views import OwnerFacts, partition_views, partitions_progress

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
    owned, followed = partition_views(2, {0: OWNED}, {1: FOLLOWED}, {1: "b"})

    assert (owned.role, owned.state, owned.owner, owned.epoch, owned.position) == ("owner", "live", "a", 3, "3-17")
    assert (owned.age_ms, owned.pending_bytes, owned.sources) == (250, 40, 2)
    assert (followed.role, followed.state, followed.owner, followed.epoch) == ("follower", "live", "b", 5)
    assert (followed.position, followed.age_ms, followed.pending_bytes, followed.sources) == ("5-9", 500, None, 3)


def test_what_is_followed_is_shown_as_followed_though_it_is_tried_for() -> None:
    """A replica that waits for a lease follows meanwhile."""
    (view,) = partition_views(1, {0: OWNED._replace(role="waiting", holder="b")}, {0: FOLLOWED}, {})

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
    (view,) = partition_views(1, {0: OWNED._replace(**changed)}, {}, {})

    assert view.state == state


def test_what_is_not_known_is_left_out() -> None:
    """Before the first entry there is no epoch and no position; of what is not written here no bytes wait here."""
    waiting = OWNED._replace(role="waiting", holder="", epoch=0, position="0-0", has_loaded=False)
    lost = PartitionProgress(partition=1, state="lost", sources=0, loaded=0, position="0-0", age_s=None, reloads={})

    tried, followed = partition_views(2, {0: waiting}, {1: lost}, {1: ""})

    assert (tried.owner, tried.epoch, tried.position, tried.age_ms, tried.pending_bytes) == (None,) * 5
    assert (followed.state, followed.owner, followed.epoch, followed.position) == ("stale", None, None, None)


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
