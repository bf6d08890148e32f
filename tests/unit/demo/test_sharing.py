"""What the demo reads from the list of partitions."""

from __future__ import annotations

import pytest

from api.demo.sharing import PartitionFacts, Sharing

NAMES = ("r1", "r2", "r3")


def _sharing(owners: str, standbys: str, state: str = "live") -> Sharing:
    """A digit a partition; 0 is nobody."""
    names = {"0": None, **{name[1]: name for name in NAMES}}
    return Sharing(
        [
            PartitionFacts(number, state, names[owner], names[standby])
            for number, (owner, standby) in enumerate(zip(owners, standbys, strict=True))
        ]
    )


def test_shares_are_counted() -> None:
    """By owner and by standby; of a replica that is not there, none."""
    sharing = _sharing("1123", "2211")

    assert [2, 1, 1, 0] == [sharing.owned(name) for name in (*NAMES, "r4")]
    assert [2, 2, 0] == [sharing.stood_by(name) for name in NAMES]


@pytest.mark.parametrize(
    ("owners", "standbys", "is_even"),
    [
        ("1123", "2211", True),
        ("1113", "2211", False),  # one owns nothing
        ("112311", "221123", False),  # 4, 1 and 1
        ("1120", "2211", False),
        ("1123", "2210", False),
        ("1123", "2111", False),  # stands by itself
        ("", "", False),
    ],
)
def test_an_even_share(owners: str, standbys: str, is_even: bool) -> None:
    """All own, differ by one at most, and every partition has another standby."""
    assert is_even == _sharing(owners, standbys).is_even(NAMES)


def test_an_even_share_without_standbys() -> None:
    """As replicas are set that have none."""
    assert _sharing("1123", "0000").is_even(NAMES, stood_by=False)
    assert not _sharing("1113", "0000").is_even(NAMES, stood_by=False)


def test_what_is_being_loaded_is_not_there_yet() -> None:
    """Neither even nor taken over."""
    loading = _sharing("1123", "2211", "loading")

    assert not loading.is_even(NAMES)
    assert not loading.is_without("r4")


def test_without_one() -> None:
    """Another one owns each."""
    assert _sharing("2233", "1111").is_without("r1")
    assert not _sharing("2213", "1111").is_without("r1")
    assert not _sharing("2203", "1111").is_without("r1")
    assert not Sharing().is_without("r1")
