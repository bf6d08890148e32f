"""What has to come of a fault, and that the command fails where it does not."""

from __future__ import annotations

import pytest

from loadtest.__main__ import _keeps_promises
from loadtest.report import Result, Target, begin
from loadtest.trust.judging import Figures, Outcome, Told, Truth
from loadtest.trust.run import LIKE_OTHERS, NAMES, RATES, Fault, _row, _targets, faults

HONEST = Fault("nothing lost", "yes", Figures, 1.5, whole=True)


def figures(*, exact: int = 1_000, noticed_s: float = 1.0) -> Figures:
    """Of a thousand answers."""
    return Figures(answers=1_000, settled=1_000, exact=exact, noticed_s=[0.1, noticed_s])


@pytest.mark.parametrize(
    ("outcome", "missed"),
    [
        (Outcome(figures()), 0),
        (Outcome(figures(exact=999)), 0),
        (Outcome(figures(exact=998)), 1),
        (Outcome(figures(noticed_s=1.6)), 1),
        (Outcome(figures(), "remarks on it"), 0),
        (Outcome(figures(), "remarks on it", 1), 1),
    ],
    ids=["well", "99.9 %", "99.8 %", "noticed too late", "the report says so", "it does not"],
)
def test_what_has_to_come_of_a_fault(outcome: Outcome, missed: int) -> None:
    """Each promise is a target of its own."""
    assert missed == sum(not target.met for target in _targets(HONEST, outcome))


def test_a_row_tells_the_longest_times_and_the_shares() -> None:
    """What was not measured stays empty."""
    one = figures()
    told = Told(pod="pod", reusable_tokens=32, state="live", bound="exact", generation="1", sequence=5)
    one.note(told, Truth(64, 64), settled=True)
    row = _row(HONEST, Outcome(one, "agrees", 3))

    assert (32, 0, None, None) == (
        row["lost hit tokens"],
        row["could not be known"],
        row["until noticed s"],
        row["messages until then"],
    )

    assert (1, 1.0, None, 50.0, 0.0, "off by 3") == (
        row["violations"],
        row["noticed within s"],
        row["healed within s"],
        row["lost %"],
        row["false %"],
        row["report"],
    )


def test_a_row_tells_what_could_not_be_known() -> None:
    """For how long at most; and whether it ever was."""
    one = Figures(unknown=3, unknown_tokens=48, rested=[(1.234, 0), (0.5, 12)])
    row = _row(HONEST, Outcome(one))

    assert (3, 48, 1.23, 12) == tuple(
        row[name] for name in ("could not be known", "tokens of these", "until noticed s", "messages until then")
    )
    silent = HONEST._replace(by="its next message")
    assert ["its replay", "its next message"] == [_row(each, Outcome(one))["noticed by"] for each in (HONEST, silent)]
    one.unending = 1
    assert ("never", None) == tuple(_row(HONEST, Outcome(one))[name] for name in ("until noticed s", "noticed by"))


def test_a_brief_run_leaves_out_what_is_like_others() -> None:
    """Each of those is a row of the whole run."""
    whole, brief = (
        {(fault.name, fault.replay) for fault in faults(names=NAMES, rates=RATES, last_lost=1, brief=each)}
        for each in (False, True)
    )

    assert LIKE_OTHERS < whole
    assert brief < whole - LIKE_OTHERS


def test_a_broken_promise_fails_the_command_and_a_slow_machine_does_not() -> None:
    """What is missed of speed is told; what is missed here is an answer that was wrong."""

    def of(scenario: str, value: float) -> Result:
        result = begin(scenario, {})
        result.targets.append(Target("violations", value, 0.0, at_least=False))
        return result

    assert [True, False, True] == [_keeps_promises(of(*each)) for each in (("trust", 0), ("trust", 1), ("ingest", 1))]
