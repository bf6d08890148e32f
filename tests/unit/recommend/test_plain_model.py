"""Many candidates at once: worth what each is by itself, and what a plain model makes of the lookup's own answers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from indexer.recommend.blend import BLEND, LOAD_FLOOR, BlendWeights
from indexer.recommend.ranking import FULL_FROM
from tests.support.candidates import Known, plainly, ranked
from tests.support.core import Core
from tests.support.core_events import prompt, stored
from tests.support.recommending import Asked

PODS = "abcdefgh"
TOKENS = [*prompt(8), 7]


@pytest.mark.parametrize("seed", range(40))
def test_columns_come_to_what_each_is_worth(seed: int) -> None:
    """Term by term, whatever is known of whom."""
    chance = random.Random(seed)

    def maybe(value: float) -> float | None:
        return chance.choice((None, value))

    known = [
        Known(
            chance.random(),
            chance.random(),
            maybe(chance.randrange(20)),
            maybe(chance.random()),
            chance.random() < 0.2,
            chance.random() < 0.2,
        )
        for _ in range(chance.randrange(12))
    ]
    weights = BlendWeights(chance.random() * 2, chance.choice((0.0, 0.3, 5.0)), chance.random())
    floor = chance.choice((0.5, 4.0, 100.0))

    assert [pytest.approx(tuple(each)) for each in plainly(known, weights, floor)] == ranked(known, weights, floor)


def _terms(
    entries: dict[str, Any], loads: dict[str, float], full: dict[str, float], weights: BlendWeights
) -> dict[str, float]:
    """Totals by the words of the design, one pod after the other."""
    known = [loads[pod] for pod in entries if pod in loads]
    least, most = min(known, default=0.0), max(known, default=0.0)
    totals = {}
    for pod, entry in entries.items():
        load = loads.get(pod, sum(known) / len(known) if known else 0.0)
        headroom = 1 - (load - least) / max(most - least, LOAD_FLOOR) if known else 0.0
        total = weights.prefix * entry.score + weights.load * headroom
        total += weights.speculative * entry.speculative_tokens / len(TOKENS)
        total -= weights.load * max(0.0, full.get(pod, 0.0) - FULL_FROM) / (1 - FULL_FROM)
        totals[pod] = total - (weights.load * headroom if entry.state == "stale" else 0.0)
    return totals


@pytest.mark.parametrize("seed", range(40))
def test_a_fleet_is_ranked_as_the_plain_model_ranks_it(seed: int) -> None:
    """From the lookup's own answer and the caller's loads; nobody that is cordoned, down or left out is named."""
    chance = random.Random(seed)
    core = Core()
    for pod in PODS:
        engine = core.engine(pod)
        if (blocks := chance.randrange(-2, 9)) > 0:
            engine.say(stored(range(1, blocks + 1), prompt(blocks)))
        elif blocks == 0:
            engine.say(stored([1], prompt(1, 9_000)))
    for pod in chance.sample(PODS, 2):
        core.route(TOKENS, pod)
    core.clock.at += chance.choice((0.0, 10.0))
    for sink in chance.sample(list(core.sinks.values()), 5):
        sink.alive(connected=True)
    core.cordon(chance.choice(PODS), cordoned=True)
    loads = {pod: float(chance.randrange(30)) for pod in chance.sample(PODS, chance.randrange(1, 9))}
    full = {pod: chance.random() for pod in chance.sample(PODS, 3)}
    out = set(chance.sample(PODS, chance.randrange(3)))
    weights = chance.choice((BLEND, BlendWeights(0.5, 1.0, 0.2)))
    told = Asked(core).ask(TOKENS, loads=loads, full=full, weights=weights._asdict(), how={"exclude": tuple(out)})

    entries = {e.pod: e for e in core.ask(TOKENS).pods if e.reason not in {"cordoned", "down"} and e.pod not in out}
    wanted = _terms(entries, loads, full, weights)
    totals = [each.total for each in told.picks]
    assert {pod: pytest.approx(total) for pod, total in wanted.items()} == {each.pod: each.total for each in told.picks}
    assert sorted(totals, reverse=True) == totals
    for each in told.picks:
        terms = each.terms
        assert each.total == pytest.approx(terms.prefix + terms.load + terms.speculative - terms.penalty)
