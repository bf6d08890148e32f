"""Lines and headers that a script can split at blanks and commas, whatever pods are called."""

from typing import Literal

import pytest

from api.pick.picked import PICKS_MAX, headers, lines, picks
from schemas.recommend import DetailedPod, LoadsUsed, PickTerms, RecommendAnswer

HERE = "10.0.0.1:8000"


def _pod(pod: str, matched: int, expected: int = 0, load: float = 0.0, penalty: float = 0.0) -> DetailedPod:
    score, speculative = matched / 64, expected / 128
    terms = PickTerms(prefix=score, load=load, speculative=speculative, penalty=penalty)
    return DetailedPod(pod, 0, score + speculative + load - penalty, terms, score, matched, "live")


def _answer(*pods: DetailedPod, loads: Literal["metrics", "none"] = "none") -> RecommendAnswer:
    return RecommendAnswer(request_id="r", state="exact", picks=list(pods), load=LoadsUsed(loads, None))


def test_without_loads_those_are_named_that_hold_something() -> None:
    """Three at most; nobody where nobody does, for then the gateway knows better."""
    held = [_pod(f"10.0.0.{i}:80", 64 - i) for i in range(8)]
    found = picks(_answer(*held, _pod("10.0.0.9:80", 0)), lambda _: None)

    assert ["10.0.0.0:80", "10.0.0.1:80", "10.0.0.2:80"] == [pick.pod.pod for pick in found]
    assert len(found) == PICKS_MAX
    assert [] == picks(_answer(_pod(HERE, 0)), lambda _: None)


def test_a_pod_that_is_passed_over_is_not_named() -> None:
    """It got more than its share of this prefix: the gateway balances."""
    assert [] == picks(_answer(_pod("10.0.0.9:80", 0), _pod(HERE, 64, penalty=1.8)), lambda _: None)


def test_with_loads_all_may_be_named() -> None:
    """In the order of the whole."""
    ranked = [_pod("10.0.0.1:80", 0, load=0.3), _pod(HERE, 16), _pod("10.0.0.3:80", 0), _pod("10.0.0.4:80", 0)]
    found = picks(_answer(*ranked, loads="metrics"), lambda _: None)

    assert b"10.0.0.1:80 0 0 live\n10.0.0.1:8000 0.250000 16 live\n10.0.0.3:80 0 0 live\n" == lines(found)


def test_where_nobody_holds_anything_those_are_named_that_are_about_to() -> None:
    """With score 0; once somebody holds something they are not."""
    about_to = [_pod(HERE, 0, expected=48), _pod("[fd00::1]:80", 0, expected=16), _pod("10.0.0.9:80", 0)]
    found = picks(_answer(*about_to), lambda _: None)

    assert b"10.0.0.1:8000 0 0 live\n[fd00::1]:80 0 0 live\n" == lines(found)
    assert {
        "x-gateway-destination-endpoint": "10.0.0.1:8000,[fd00::1]:80",
        "x-kvindexer-state": "exact",
        "x-kvindexer-matched-tokens": "0",
        "x-kvindexer-request-id": "r",
    } == headers(found, "exact", "r")
    assert ["held"] == [pick.pod.pod for pick in picks(_answer(_pod("held", 16), *about_to), lambda _: None)]


def test_a_line_has_four_words() -> None:
    """And the headers say the same."""
    found = picks(_answer(_pod(HERE, 48), _pod("[fd00::1]:80", 32)), lambda _: None)

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
    found = picks(_answer(_pod(name, 16)), lambda _: None)
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
    found = picks(_answer(_pod(name, 16)), lambda _: address)

    assert endpoint == found[0].endpoint
