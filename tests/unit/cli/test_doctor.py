"""What doctor makes of answers, also of those that a service never gives, and how it shows what it found."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from api.cli.client import ServiceClient
from api.cli.doctor_screen import print_findings
from api.cli.doctor_service import _skew_s, ask_service
from indexer.clock import SystemClock
from indexer.doctor.checks import found
from indexer.settings import Settings, masked
from tests.support.telling_engine import telling

MOMENT_US = 1_700_000_000_500_000
DATE = "Tue, 14 Nov 2023 22:13:20 GMT"
"""The second of that moment."""


@pytest.mark.parametrize(
    ("date", "off_us", "skew_s"),
    [
        (DATE, 0, 0.0),
        (DATE, 400_000, 0.0),
        (DATE, -600_000, 0.1),
        (DATE, 10_000_000, -9.5),
        (DATE, -10_000_000, 9.5),
        (None, 0, None),
        ("yesterday", 0, None),
        ("Fri, 31 Dec 99999 23:59:59 GMT", 0, None),
        ("Fri, 31 Dec 2023 23:59:59 +99999999999", 0, None),
    ],
)
def test_the_clock_of_a_date_in_whole_seconds(date: str | None, off_us: int, skew_s: float | None) -> None:
    """What the second explains is no skew."""
    now = MOMENT_US + off_us

    assert pytest.approx(skew_s) == _skew_s(date, now, now) if skew_s is not None else _skew_s(date, now, now) is None


def answers(**changed: bytes) -> dict[str, bytes | str]:
    """Of a service without sources."""
    told: dict[str, object] = {
        "/v1/version": {"version": "1"},
        "/readyz": {"ready": True, "detail": {}},
        "/v1/sources": {"sources": [], "next": None},
        "/v1/partitions": {"mode": "memory", "partitions": [], "replicas": []},
        "/v1/reports/staleness": {"sources": [{"pod": "a", "dp_rank": 1, "gaps": {"unhealed": 2}}]},
        "/v1/config": masked(Settings()),
    }
    encoded: dict[str, bytes | str] = {path: json.dumps(value).encode() for path, value in told.items()}
    metrics = b'kvindexer_limit_reached_total{limit="limits.sources"} 3.0\n'
    return {**encoded, "/metrics": metrics, **{f"/{name.replace('__', '/')}": body for name, body in changed.items()}}


def test_all_that_a_service_tells() -> None:
    """Read path by path, with the settings in force."""
    with telling(answers()) as address:
        told = ask_service(ServiceClient(f"http://{address}"), SystemClock())

    assert (None, {}, "1", True) == (told.seen.trouble, told.seen.refused, told.seen.version, told.seen.ready)
    assert ({"a#1": 2}, {"limits.sources": 3}) == (told.seen.unhealed, told.seen.limits_reached)
    assert [] == told.engines
    assert Settings() == told.settings
    assert told.seen.clock_skew_s is not None


def test_one_answer_that_is_odd_hides_no_other() -> None:
    """It is named; settings of another version are not guessed at."""
    odd = answers(v1__sources=b"<html>", v1__config=b'{"server": {"hostess": "x"}}', v1__partitions=b"[]")
    with telling(odd) as address:
        told = ask_service(ServiceClient(f"http://{address}"), SystemClock())

    assert {"/v1/sources", "/v1/config", "/v1/partitions"} == set(told.seen.refused)
    assert (None, None, None) == (told.engines, told.settings, told.seen.partitions)
    assert told.seen.ready


@pytest.mark.parametrize(
    ("path", "status", "is_shut"), [("config", 401, True), ("config", 403, False), ("sources", 403, True)]
)
def test_who_is_not_let_in_is_told_so(path: str, status: int, *, is_shut: bool) -> None:
    """A token that is missing is a problem; one that reads some of it and not all is none, but for the sources."""
    with telling({**answers(), f"/v1/{path}": status}) as address:
        told = ask_service(ServiceClient(f"http://{address}"), SystemClock())

    assert {f"/v1/{path}"} == set(told.seen.refused)
    assert is_shut == bool(told.seen.shut)


_DEEP = b'{"other":' + b"[" * 100_000


@pytest.mark.parametrize("body", [_DEEP, b'{"other":"\xff"}', b'"\xff"'], ids=["deep", "no UTF-8", "no text"])
@pytest.mark.parametrize(
    "path", ["readyz", "v1__sources", "v1__partitions", "v1__reports__staleness", "v1__config", "metrics"]
)
def test_what_cannot_be_read_to_its_end_hides_no_other(path: str, body: bytes) -> None:
    """Nothing that answers there makes doctor fall over."""
    with telling(answers(**{path: body})) as address:
        told = ask_service(ServiceClient(f"http://{address}"), SystemClock())

    named = f"/{path.replace('__', '/')}"
    assert {named} >= set(told.seen.refused)
    assert None is told.seen.trouble
    assert "1" == told.seen.version


def test_a_count_that_is_no_number_is_passed_over() -> None:
    """Anything may stand where a number should."""
    name = "kvindexer_limit_reached_total"
    lines = [f'{name}{{limit="{n}"}} {value}' for n, value in enumerate(("NaN", "+Inf", "-Inf", "1e999", "x", "2"))]
    with telling(answers(metrics="\n".join(lines).encode())) as address:
        told = ask_service(ServiceClient(f"http://{address}"), SystemClock())

    assert {"5": 2} == told.seen.limits_reached


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({"/v1/version": _DEEP}, "answers, and otherwise than kvindexer does"),
        ({}, "answers 404 at /v1/version: is this kvindexer?"),
        ({"/v1/version": b"<html>"}, "answers, and otherwise than kvindexer does"),
    ],
)
def test_another_server_is_no_service(answers: dict[str, bytes | str], why: str) -> None:
    """It is not asked on."""
    with telling(answers) as address:
        told = ask_service(ServiceClient(f"http://{address}"), SystemClock())

    assert f"http://{address} {why}" == told.seen.trouble
    assert (None, None) == (told.engines, told.settings)


def shown(*findings: object, width: int = 80) -> str:
    """As a person reads it."""
    out = io.StringIO()
    print_findings(findings, Console(file=out, width=width, markup=False, highlight=False))  # type: ignore[arg-type]
    return out.getvalue()


def test_what_is_well_is_one_line() -> None:
    """With what was seen of one, and the number of several."""
    one = shown(found("service.reachable", "ok", "http://h:1"))
    several = shown(*(found("sources.replay", "ok", "", f"pod-{n}") for n in range(3)))

    assert "Service\n  ok      the service answers (http://h:1)\n\n0 problems" in one
    assert "Sources\n  ok      each source has a replay endpoint (3)\n" in several


def test_what_is_not_is_told_once_for_all_of_whom_it_is() -> None:
    """Some of them by name, then what it means and what to do; as wide as the screen and no wider."""
    many = [found("endpoint.reachable", "problem", "connection refused", f"pod-{n}") for n in range(7)]
    text = shown(
        *many, found("endpoint.reachable", "ok", "", "pod-7"), found("unknowable.idle_reset", "unknown"), width=60
    )
    lines = text.splitlines()

    assert "  problem not so: event endpoints take connections (7 of 8)\n          [endpoint.reachable]\n" in text
    assert "          pod-4: connection refused" in lines
    assert "pod-5" not in text
    assert "          and 2 more (--json has all)" in lines
    assert 1 == text.count("nothing of this engine is heard")
    assert "  ok      event endpoints take connections (1 of 8)" in lines
    assert "7 problems, 0 warnings, 1 cannot be known, 1 ok" == lines[-1]
    assert max(map(len, lines)) <= 60


def test_a_name_is_said_once() -> None:
    """Where what was seen begins with it, as of an engine that goes by its address."""
    place = "10.0.0.1:8000"

    assert 1 == shown(found("engine.reachable", "warning", f"{place}: no HTTP server", place)).count(place)


def test_names_alone_share_a_line() -> None:
    """Where of each nothing more was seen."""
    text = shown(*(found("sources.replay", "warning", "", f"pod-{n}") for n in range(6)))

    assert "          pod-0, pod-1, pod-2, pod-3, pod-4 and 1 more (--json has all)\n" in text


def test_words_of_others_do_not_steer_the_terminal() -> None:
    """An engine may name its model as it likes."""
    for level in ("warning", "ok"):
        text = shown(found("engine.model", level, "the engine \x1b[2J\n\u202e", "pod"))  # type: ignore[arg-type]
        assert "the engine \\x1b[2J\\n\\u202e" in text
