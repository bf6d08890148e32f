"""One trace over one fleet: strategies side by side, and weights of the blend tried out. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from indexer.recommend.blend import BLEND, LOAD_FLOOR, BlendWeights
from loadtest.simulate.fleet import replay
from loadtest.simulate.strategies import strategy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loadtest.simulate.figures import Figures
    from loadtest.simulate.fleet import Fleet
    from loadtest.simulate.workload import Workload

KNOBS: Final = {"w_prefix": "prefix", "w_load": "load", "w_speculative": "speculative", "floor": "floor"}
STEPS: Final = 10
VALUES_MAX: Final = 1_000


class Sweep(NamedTuple):
    """Values of one weight, or of the floor."""

    knob: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Blend:
    """Its weights and its floor."""

    weights: BlendWeights = BLEND
    floor: float = LOAD_FLOOR

    def with_(self, knob: str, value: float) -> Blend:
        """Another value of that one."""
        if knob == "floor":
            return Blend(self.weights, value)
        return Blend(self.weights._replace(**{KNOBS[knob]: value}), self.floor)


def parsed_sweep(text: str) -> Sweep:
    """`w_load=0.1..1.0` in ten values, `w_load=0.1..1.0/4` in four, `w_load=0.1,0.3` in these. Raises ValueError."""
    knob, equals, told = text.partition("=")
    if not equals or knob not in KNOBS:
        raise ValueError(f"{text!r}: say NAME=VALUES, with one of {', '.join(KNOBS)}")
    try:
        values = _range(told) if ".." in told else tuple(float(each) for each in told.split(","))
    except ValueError:
        raise ValueError(f"{text!r}: values are FROM..TO, FROM..TO/COUNT, or VALUE,VALUE,…") from None
    if not all(0 <= value < float("inf") for value in values) or (knob == "floor" and not all(values)):
        raise ValueError(f"{text!r}: weights are 0 or more, the floor is more than 0")
    return Sweep(knob, values)


def _range(text: str) -> tuple[float, ...]:
    ends, _, count = text.partition("/")
    first, last = (float(end) for end in ends.split(".."))
    steps = int(count or STEPS)
    if not 2 <= steps <= VALUES_MAX:
        raise ValueError(steps)
    return tuple(round(first + (last - first) * step / (steps - 1), 6) for step in range(steps))


def compared(workload: Workload, fleet: Fleet, names: Sequence[str], blend: Blend) -> Iterator[tuple[str, Figures]]:
    """Each of these strategies."""
    for name in names:
        yield name, replay(workload, fleet, strategy(name, fleet.pods, blend.weights, blend.floor))


def swept(workload: Workload, fleet: Fleet, sweep: Sweep, blend: Blend) -> Iterator[tuple[str, Figures]]:
    """The blend with each of these values."""
    for value in sweep.values:
        tried = blend.with_(sweep.knob, value)
        name = f"blend, {sweep.knob} {value:g}"
        yield name, replay(workload, fleet, strategy("blend", fleet.pods, tried.weights, tried.floor))
