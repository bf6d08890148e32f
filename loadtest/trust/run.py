"""Scenario `trust`: how far answers can be trusted while parts fail, over recorded engines and their own truth.

Real services, engines on real sockets, faults. No answer may be certain and wrong at the message that it names; what
nobody could know is counted apart, with the time until it was noticed; and where nothing is lost answers are exact.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from loadtest.report import Result, Target, begin
from loadtest.trust import lies, losses, replicas, reported, restarts, silences
from loadtest.trust.judging import NOTICED_MAX_S, PROBE_S, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loadtest.report import Row
    from loadtest.trust.judging import Figures

NAMES: Final = ("basic", "clear", "eviction")
RATES: Final = (0.0, 0.001, 0.01, 0.05)
EXACT_MIN: Final = 99.9
"""Percent of settled answers."""
NEXT: Final = "its next message"
REPLAY: Final = "its replay"
LIKE_OTHERS: Final = frozenset(
    {
        ("owner of two replicas killed", "yes"),
        ("owner of two replicas killed", "no"),
        ("owner of two replicas killed, 1 % of messages lost", "no"),
        ("another block size told at first", "yes"),
        ("another block size told now and then", "yes"),
        ("no removals told of the storage tier", "yes"),
    }
)
"""Left out where it has to be brief, and all lies without replay."""


class Fault(NamedTuple):
    """One row: what fails, and what has to come of it.

    `noticed_max_s`: how long answers may rest on what nobody could know; None where they may for good. `whole`: all
    settled answers are exact, as nothing is lost or all of it is replayed. `by`: what tells of what nobody could know,
    where that is not the replay, or the next message where there is none.
    """

    name: str
    replay: str
    play: Callable[[], Figures | Outcome]
    noticed_max_s: float | None = None
    whole: bool = False
    by: str | None = None


def run(
    *, names: Sequence[str] = NAMES, rates: Sequence[float] = RATES, last_lost: int = 9, brief: bool = False
) -> Result:
    """Measure. `last_lost`: how many last messages get lost; `brief`: without faults that are most like others."""
    result = begin("trust", {"recordings": ", ".join(names), "probe interval s": PROBE_S, "lease s": replicas.LEASE_S})
    rows: list[Row] = []
    for fault in faults(names=names, rates=rates, last_lost=last_lost, brief=brief):
        began = time.monotonic()
        told = fault.play()
        outcome = told if isinstance(told, Outcome) else Outcome(told)
        rows.append(_row(fault, outcome))
        print(f"  {rows[-1]}, in {time.monotonic() - began:.0f} s", flush=True)
        for example in outcome.figures.examples:
            print(f"    VIOLATION {example}", flush=True)
        result.targets += _targets(fault, outcome)
    result.tables["Answers while parts fail"] = rows
    violations = sum(int(row["violations"] or 0) for row in rows)
    result.targets.insert(0, Target("violations: certain and wrong", violations, 0.0, at_least=False))
    return result


def faults(*, names: Sequence[str], rates: Sequence[float], last_lost: int, brief: bool) -> list[Fault]:
    """All rows."""
    told = [*_losses(names, rates), *_restarts(), *_silences(last_lost), *_lies((True,) if brief else (True, False))]
    return [fault for fault in told if not brief or (fault.name, fault.replay) not in LIKE_OTHERS]


def _losses(names: Sequence[str], rates: Sequence[float]) -> list[Fault]:
    limit = losses.PROBE_S + NOTICED_MAX_S
    dropped = [
        Fault(
            f"{rate:.1%} of messages lost" if rate else "nothing lost",
            _yes(replay),
            partial(losses.lossy, names, rate, replay=replay),
            limit if replay else None,
            whole=replay or not rate,
        )
        for rate in rates
        for replay in (True, False)
    ]
    worst = max(rates)
    twice = Fault(f"{worst:.1%} lost, in replays again", "lossy", partial(losses.lossy_replay, names, worst))
    return [*dropped, twice]


def _restarts() -> list[Fault]:
    taken_s = replicas.LEASE_S + NOTICED_MAX_S
    return [
        Fault("engines killed", "yes", partial(restarts.engines_killed, replay=True), NOTICED_MAX_S, whole=True),
        Fault("engines killed", "no", partial(restarts.engines_killed, replay=False), whole=True),
        Fault("service killed", "yes", partial(restarts.service_killed, replay=True), NOTICED_MAX_S, whole=True),
        Fault("service killed", "no", partial(restarts.service_killed, replay=False)),
        *(
            Fault(
                f"owner of two replicas killed{', 1 % of messages lost' if rate else ''}",
                _yes(replay),
                partial(replicas.owner_killed, replay=replay, rate=rate),
                taken_s,
                whole=replay or not rate,
            )
            for rate, replay in ((0.0, True), (0.0, False), (0.01, True), (0.01, False))
        ),
    ]


def _silences(last_lost: int) -> list[Fault]:
    return [
        Fault(
            "last message of an idle engine lost",
            "yes",
            partial(silences.lost_last_message, replay=True, count=last_lost),
            PROBE_S + NOTICED_MAX_S,
            whole=True,
        ),
        Fault(
            "last message of an idle engine lost",
            "no",
            partial(silences.lost_last_message, replay=False, count=last_lost),
            NOTICED_MAX_S,
        ),
        *(
            Fault(
                "silent reset",
                _yes(replay),
                partial(silences.silent_reset, replay=replay),
                NOTICED_MAX_S,
                whole=True,
                by=NEXT,
            )
            for replay in (True, False)
        ),
    ]


def _lies(replays: Sequence[bool]) -> list[Fault]:
    told: list[Fault] = []
    for replay in replays:
        plays: dict[str, Callable[[], Figures | Outcome]] = {
            **{
                f"another block size told {when}": partial(lies.block_size, when, replay=replay)
                for when in lies.BLOCK_SIZES
            },
            "no removals told, capacity known": partial(lies.no_removals, replay=replay, capacity=True),
            "no removals told, capacity unknown": partial(lies.no_removals, replay=replay, capacity=False),
            "no removals told of the cpu tier": partial(lies.no_removals_of, "cpu", replay=replay),
            "no removals told of the storage tier": partial(lies.no_removals_of, "storage", replay=replay),
        }
        told += [Fault(name, _yes(replay), play, by="its words") for name, play in plays.items()]
    return [*told, Fault("1 % of messages lost, real reuse reported", "no", reported.reuse_reported)]


def _yes(replay: bool) -> str:  # noqa: FBT001  what it is about is its name
    return "yes" if replay else "no"


def _row(fault: Fault, outcome: Outcome) -> Row:
    figures = outcome.figures
    by = fault.by or (NEXT if fault.replay == "no" else REPLAY)
    return {
        "what fails": fault.name,
        "replay": fault.replay,
        "answers": figures.answers,
        "exact %": round(100 * figures.exact_share, 2),
        "violations": figures.violations,
        "outrun": figures.outrun,
        "could not be known": figures.unknown,
        "tokens of these": figures.unknown_tokens,
        "until noticed s": "never" if figures.unending else _longest([seconds for seconds, _ in figures.rested]),
        "noticed by": by if figures.rested and not figures.unending else None,
        "messages until then": max((count for _, count in figures.rested), default=0) or None,
        "noticed within s": _longest(figures.noticed_s),
        "false hit tokens": figures.false_tokens,
        "false %": round(100 * figures.false_share, 3),
        "lost hit tokens": figures.lost_tokens,
        "lost %": round(100 * figures.lost_share, 3),
        "healed within s": _longest(figures.healed_s),
        "report": f"off by {outcome.off}" if outcome.off else outcome.report,
    }


def _longest(seconds: Sequence[float]) -> float | None:
    return round(max(seconds), 2) if seconds else None


def _targets(fault: Fault, outcome: Outcome) -> list[Target]:
    figures = outcome.figures
    name = f"{fault.name}, replay: {fault.replay}"
    targets = []
    if fault.whole:
        targets.append(Target(f"{name}: settled answers exact, %", 100 * figures.exact_share, EXACT_MIN))
    if fault.noticed_max_s is not None and figures.noticed_s:
        noticed = max(figures.noticed_s)
        targets.append(Target(f"{name}: noticed within s", noticed, fault.noticed_max_s, at_least=False))
    if outcome.report is not None:
        targets.append(Target(f"{name}: the report {outcome.report}, off by", outcome.off, 0.0, at_least=False))
    return targets
