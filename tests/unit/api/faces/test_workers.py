"""Sources in the words of Dynamo's `/workers`."""

import asyncio

import pytest

from api.faces.workers import BLOCK_SIZE_LABEL, listed
from indexer.model import Descriptor, SourceId
from schemas.rest import SourceView, StateName
from tests.support.fake_node import FakeNode


def _run(states: tuple[StateName, ...]) -> list[SourceView]:
    """One instance whose ranks are in these states."""
    node = FakeNode()
    for rank in range(len(states)):
        descriptor = Descriptor(pod="7", dp_rank=rank, labels={BLOCK_SIZE_LABEL: "16"})
        node.sources[SourceId("7", rank)] = descriptor
    views = asyncio.run(node.source_views())
    for view, state in zip(views, states, strict=True):
        view.state, view.why = state, f"it is {state}"
    return views


@pytest.mark.parametrize(
    ("states", "told"),
    [
        (("new",), "pending"),
        (("syncing",), "pending"),
        (("live",), "active"),
        (("suspect", "stale"), "active"),
        (("live", "new"), "pending"),
        (("live", "down", "new"), "failed"),
    ],
)
def test_the_worst_of_the_ranks(states: tuple[StateName, ...], told: str) -> None:
    """As Dynamo sums them up; why one failed is told."""
    (worker,) = listed(_run(states))

    assert told == worker["status"]
    errors = [listener.get("last_error") for listener in worker["listeners"].values()]
    assert ["it is down" if state == "down" else None for state in states] == errors


def test_a_cordoned_engine_is_paused() -> None:
    """And the others count."""
    views = _run(("live", "live"))
    views[0].cordoned = True
    assert "active" == listed(views)[0]["status"]
    views[1].cordoned = True
    assert "paused" == listed(views)[0]["status"]


def test_block_sizes_are_held_against_what_was_registered() -> None:
    """What the events say counts, and where it differs that is told."""
    views = _run(("live", "live"))
    assert 16 == listed(views)[0]["block_size"]
    views[0].block_size = 32
    views[1].block_size = 16
    (worker,) = listed(views)

    assert 32 == worker["block_size"]
    assert worker["listeners"]["0"]["last_error"] == "registered with a block size of 16, announces blocks of 32"
    assert "last_error" not in worker["listeners"]["1"]
    views[0].labels = {BLOCK_SIZE_LABEL: "many"}
    views[0].block_size = None
    assert 0 == listed(views[:1])[0]["block_size"]


def test_ids_are_numbers_where_names_are() -> None:
    """Exactly as they are written in decimal; other names stay names."""
    for pod, told in (
        ("7", 7),
        ("0", 0),
        ("07", "07"),
        ("10.0.0.1:8000", "10.0.0.1:8000"),
        ("-1", "-1"),
        ("\u0663", "\u0663"),
    ):
        views = _run(("live",))
        views[0].pod = pod
        assert told == listed(views)[0]["instance_id"]
