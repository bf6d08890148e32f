"""Lines and headers that a script can split at blanks and commas, whatever pods are called."""

import pytest

from api.pick.picked import PICKS_MAX, headers, lines, picks
from schemas.lookup import LookupAnswer, PodEntry, PrefixTokens, Shards, TierTokens

HERE = "10.0.0.1:8000"


def _entry(pod: str, matched: int, dp_rank: int = 0, expected: int = 0) -> PodEntry:
    return PodEntry(
        pod=pod,
        dp_rank=dp_rank,
        block_size=16,
        matched_tokens=matched,
        reusable_tokens=matched,
        tiers=TierTokens(gpu=matched),
        prefix=PrefixTokens(),
        speculative_tokens=expected,
        score=matched / 64,
        state="live",
        bound="exact",
        lag_ms=1,
        event_age_ms=1,
        generation="1",
        sequence=1,
        reason=None if matched else "no_match",
    )


def _answer(*entries: PodEntry) -> LookupAnswer:
    return LookupAnswer(
        request_id="r",
        model="m",
        lora_name=None,
        resolved_by=None,
        prompt_tokens=64,
        state="exact",
        reason=None,
        pods=list(entries),
        shards=Shards(),
        took_us=1,
    )


def test_a_pod_is_named_once_and_only_where_it_holds_something() -> None:
    """Its best rank stands for it; three at most."""
    ranks = [_entry(f"10.0.0.{i % 4}:80", 64 - i, i) for i in range(8)]
    found = picks(_answer(*ranks, _entry("10.0.0.9:80", 0)), lambda _: None)

    assert [("10.0.0.0:80", 64), ("10.0.0.1:80", 63), ("10.0.0.2:80", 62)] == [
        (pick.entry.pod, pick.entry.matched_tokens) for pick in found
    ]
    assert len(found) == PICKS_MAX
    assert [] == picks(_answer(_entry(HERE, 0)), lambda _: None)


def test_where_nobody_holds_anything_those_are_named_that_are_about_to() -> None:
    """With score 0; once somebody holds something they are not."""
    about_to = [_entry(HERE, 0, expected=48), _entry("[fd00::1]:80", 0, expected=16), _entry("10.0.0.9:80", 0)]
    found = picks(_answer(*about_to), lambda _: None)

    assert b"10.0.0.1:8000 0 0 live\n[fd00::1]:80 0 0 live\n" == lines(found)
    assert {
        "x-gateway-destination-endpoint": "10.0.0.1:8000,[fd00::1]:80",
        "x-kvindexer-state": "exact",
        "x-kvindexer-matched-tokens": "0",
        "x-kvindexer-request-id": "r",
    } == headers(found, "exact", "r")
    assert ["held"] == [pick.entry.pod for pick in picks(_answer(_entry("held", 16), *about_to), lambda _: None)]


def test_a_line_has_four_words() -> None:
    """And the headers say the same."""
    found = picks(_answer(_entry(HERE, 48), _entry("[fd00::1]:80", 32)), lambda _: None)

    assert b"10.0.0.1:8000 0.750000 48 live\n[fd00::1]:80 0.500000 32 live\n" == lines(found)
    assert {
        "x-gateway-destination-endpoint": "10.0.0.1:8000,[fd00::1]:80",
        "x-kvindexer-state": "exact",
        "x-kvindexer-matched-tokens": "48",
        "x-kvindexer-request-id": "r",
    } == headers(found, "exact", "r")


@pytest.mark.parametrize("name", ["a b", "a,b", "a\r\nx: y", "über", "100%", "a\x85b", "\U0001f600", "a\tb"])
def test_no_name_breaks_a_line_or_a_header(name: str) -> None:
    """Percent-encoded in the line; in the header there are addresses only."""
    found = picks(_answer(_entry(name, 16)), lambda _: None)
    told = lines(found)

    assert (1, 4) == (len(told.decode("ascii").splitlines()), len(told.split(b" ")))
    assert "x-gateway-destination-endpoint" not in headers(found, "exact", "r")


@pytest.mark.parametrize(
    ("name", "address", "endpoint"),
    [
        (HERE, None, HERE),
        ("http://10.0.0.1:8000/", None, HERE),
        ("engine-0", HERE, HERE),
        ("engine-0", None, None),
        ("engine-0.svc.local:8000", HERE, "engine-0.svc.local:8000"),
        ("engine-0", "[::1]:80", "[::1]:80"),
        ("engine-0", "a\r\nb:80", None),
        ("10.0.0.1:8000,10.0.0.2:8000", None, None),
    ],
)
def test_a_destination_is_an_address(name: str, address: str | None, endpoint: str | None) -> None:
    """The pod's name where it is one, else where the pod was said to be."""
    found = picks(_answer(_entry(name, 16)), lambda _: address)

    assert endpoint == found[0].endpoint
