"""`kvindexer compare`: two real services, engines that both, or only one of them, listened to."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.redis_servers import wait_for
from tests.support.served_fleet import COMMAND, ENVIRONMENT, MODEL, PODS, ServedFleet

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def told() -> Iterator[ServedFleet]:
    """A service with three engines that have spoken."""
    with ServedFleet() as fleet:
        fleet.play_to_first_probe()
        yield fleet


@pytest.fixture(scope="module")
def untold() -> Iterator[ServedFleet]:
    """A service with three engines of the same names that have said nothing."""
    with ServedFleet() as fleet:
        yield fleet


def _compare(*arguments: str, given: str = "") -> tuple[int, str, str]:
    done = subprocess.run(
        [*COMMAND, "compare", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env=ENVIRONMENT,
    )
    return done.returncode, done.stdout, done.stderr


def _outcome(*arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, errors = _compare(*arguments, "--json", "--model", MODEL)
    assert "" == errors
    return code, json.loads(out)


def _some(fleet: ServedFleet, count: int = 5) -> str:
    return "".join(json.dumps(list(prompt.tokens)) + "\n" for prompt in fleet.truth.prompts[:count])


def test_a_service_agrees_with_itself_through_either_door(told: ServedFleet) -> None:
    """Its own lookup, and the one that speaks as Dynamo's."""
    for face in ([], ["--face", "dynamo"], ["--face-a", "dynamo", "--face", "dynamo"]):
        code, outcome = _outcome(told.url, told.url, "--prompts", "demo", *face)

        assert (0, len(told.truth.prompts)) == (code, outcome["asked"]) == (code, outcome["agreed"])
        assert outcome["held"] > 0
        assert {} == outcome["reasons"]


def test_what_one_has_not_heard_is_a_difference_with_its_reason(told: ServedFleet, untold: ServedFleet) -> None:
    """Exit code 1; each number with both sides."""
    code, out, errors = _compare(told.url, untold.url, "--prompts", "-", "--model", MODEL, given=_some(told))
    head, titles, *rows, _ = out.splitlines()

    assert (1, "") == (code, errors)
    assert head.startswith("5 prompts: ")
    assert ["reason", "numbers", "prompt", "tokens", "pod", "tier", "a", "b"] == titles.split()
    assert ["b: block_size_unknown"] == [" ".join(row.split()[:2]) for row in rows]


def test_where_nobody_holds_anything_nothing_is_compared(told: ServedFleet, untold: ServedFleet) -> None:
    """Agreeing on nothing is not agreeing: exit code 3, also for programs, at either face."""
    mistyped = ["--prompts", "demo", "--model", "mistyped"]
    for url, flags, given in (
        (told.url, mistyped, ""),
        (told.url, [*mistyped, "--json"], ""),
        (told.url, [*mistyped, "--face", "dynamo"], ""),
        (untold.url, ["--prompts", "-", "--model", MODEL], "[1, 2, 3]"),
    ):
        code, out, errors = _compare(url, url, *flags, given=given)
        assert (3, "") == (code, errors)
        assert '"held":0' in out or "which compares nothing" in out
    assert out.startswith("1 prompt: 1 agree, ")


def test_names_that_differ_are_told_which_is_which(told: ServedFleet) -> None:
    """Without that, nobody knows the other's pods."""
    renamed = [f"--pod={b}={a}" for a, b in zip(PODS, [*PODS[1:], PODS[0]], strict=True)]
    code, outcome = _outcome(told.url, told.url, "--prompts", "demo", *renamed)
    moved, listed = outcome["differed"], outcome["differences"]

    assert 1 == code
    assert moved > 0
    assert {pod["pod"] for pod in listed} <= set(PODS)


def test_what_cannot_be_asked_is_one_line(told: ServedFleet) -> None:
    """A service that is not there, a face without a model, prompts that are none."""
    for arguments, code, line in (
        ((told.url, "http://127.0.0.1:1", "--prompts", "demo"), 1, "cannot be reached: connection refused"),
        ((told.url, told.url, "--prompts", "demo", "--face", "dynamo"), 2, "--model: the dynamo face wants one"),
        ((told.url, told.url, "--prompts", "-"), 2, "--prompts: no prompt in -"),
        ((told.url, "ftp://x", "--prompts", "demo"), 2, "http://HOST:PORT"),
    ):
        status, out, errors = _compare(*arguments)
        assert (code, "") == (status, out)
        assert line in errors
        assert 1 == errors.count("\n")


def test_ctrl_c_shows_what_was_compared(told: ServedFleet, untold: ServedFleet) -> None:
    """And ends with its own exit code, without a traceback."""
    prompts = _some(told, 3) * 300
    process = subprocess.Popen(
        [*COMMAND, "compare", told.url, untold.url, "--prompts", "-", "--model", MODEL],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert process.stdin is not None
    process.stdin.write(prompts)
    process.stdin.close()
    process.stdin = None
    before = _lookups(untold)
    wait_for(lambda: _lookups(untold) > before, "the first question")
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=DEADLINE_S)

    assert (130, "") == (process.returncode, errors)
    assert " of 900 prompts, interrupted: " in out.splitlines()[0]


def _lookups(fleet: ServedFleet) -> float:
    metrics = fleet.metrics()
    return sum(float(line.split()[-1]) for line in metrics.splitlines() if line.startswith("kvindexer_lookups_total"))
