"""Where two answers differ, and by which of the reasons that the services give themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.cli.compare import tokens_shown
from api.cli.compared import UNEXPLAINED, Difference, Said, differences, said_by_dynamos, said_by_ours
from api.cli.parser import build_parser


def _ours(*pods: dict[str, Any]) -> Said:
    filled = [{"dp_rank": 0, "bound": "exact", "reason": None, "generation": "g", "sequence": 7, **pod} for pod in pods]
    return said_by_ours(json.dumps({"state": "exact", "pods": filled}).encode())


def _pod(name: str = "p", gpu: int = 0, cpu: int = 0, storage: int = 0, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"pod": name, "prefix": {"gpu": gpu, "cpu": max(gpu, cpu), "storage": max(gpu, cpu, storage)}, **more}


def _dynamos(**instances: dict[str, int]) -> Said:
    return said_by_dynamos(json.dumps({"scores": {}, "frequencies": [], "instances": instances}).encode())


def _found(a: Said, b: Said, **names: str) -> list[tuple[str, int | None, str, int | None, int | None, str]]:
    return [(d.pod, d.dp_rank, d.tier, d.a, d.b, d.reason) for d in differences(3, 100, a, b, names)]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ([], ("ours", "ours")),
        (["--token-b", "other"], ("ours", "other")),
        (["--face", "dynamo"], ("ours", None)),
        (["--face-a", "dynamo"], (None, "ours")),
        (["--face", "dynamo", "--token-b", "other"], ("ours", "other")),
    ],
)
def test_a_token_is_shown_to_services_of_this_kind_alone(given: list[str], shown: tuple[str | None, ...]) -> None:
    """Another project's has no business with it, wherever it was taken from."""
    arguments = build_parser("0").parse_args(
        ["compare", "http://a", "http://b", "--prompts", "demo", "--token", "ours", *given]
    )

    assert shown == tokens_shown(arguments)


def test_equal_answers_do_not_differ() -> None:
    """Whatever they say besides."""
    assert [] == _found(_ours(_pod(gpu=16), _pod("q")), _ours(_pod("q", reason="no_match"), _pod(gpu=16, sequence=9)))


def test_each_number_that_differs_is_one() -> None:
    """With where it is, and both sides."""
    (only,) = differences(3, 100, _ours(_pod(gpu=16, cpu=32)), _ours(_pod(gpu=32)), {})

    assert Difference(3, 100, "p", 0, "gpu", 16, 32, UNEXPLAINED) == only


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ({}, {}, UNEXPLAINED),
        ({}, {"reason": "no_match"}, UNEXPLAINED),
        ({}, {"reason": "stale"}, "b: stale"),
        ({"reason": "syncing"}, {"reason": "stale"}, "a: syncing"),
        ({}, {"bound": "lower"}, "b: bound lower"),
        ({"bound": "estimate"}, {"reason": "down"}, "b: down"),
        ({"sequence": 6}, {}, "a: behind"),
        ({}, {"sequence": 6}, "b: behind"),
        ({}, {"generation": "h", "sequence": 6}, "another generation"),
        ({}, {"generation": "h", "sequence": None}, UNEXPLAINED),
    ],
)
def test_the_reason_is_what_the_services_say_of_themselves(a: dict[str, Any], b: dict[str, Any], reason: str) -> None:
    """The first that applies; only what neither can say is unexplained."""
    assert [("p", 0, tier, 16, 0, reason) for tier in ("gpu", "cpu", "storage")] == _found(
        _ours(_pod(gpu=16, **a)), _ours(_pod(**b))
    )


def test_a_pod_that_one_does_not_know_is_told_where_it_holds_something() -> None:
    """And else not: there is nothing to differ about."""
    assert [("q", 0, "storage", None, 16, "a: pod not known")] == _found(_ours(_pod()), _ours(_pod("q", storage=16)))
    assert [] == _found(_ours(_pod()), _ours(_pod("q")))


def test_a_foreign_service_is_compared_by_pod() -> None:
    """In each tier by the best rank; who is left out there holds nothing."""
    ours = _ours(_pod(gpu=16, cpu=48), _pod(gpu=32, dp_rank=1), _pod("q"))

    assert [] == _found(ours, _dynamos(p={"longest_matched": 48, "gpu": 32, "cpu": 48, "disk": 48}))
    assert [] == _found(ours, _dynamos(**{"7": {"gpu": 32, "cpu": 48, "disk": 48}}), **{"7": "p"})
    assert [("p", None, tier, n, 0, UNEXPLAINED) for tier, n in (("gpu", 32), ("cpu", 48), ("storage", 48))] == _found(
        ours, _dynamos()
    )
    assert [("r", None, "storage", None, 16, "a: pod not known")] == _found(
        _ours(_pod("q")), _dynamos(r={"gpu": 0, "cpu": 0, "disk": 16})
    )
