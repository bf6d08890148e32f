"""What the values of flags may be. Each raises `ArgumentTypeError` with the rule where one is none of them."""

from __future__ import annotations

import argparse
from typing import Final

from indexer.sizing.bounds import PARTITIONS_MAX, REPLICAS_MAX

_NUMBER_MAX: Final = 1e9
_LISTEN_S_MAX: Final = 600.0
_MARGIN_MAX: Final = 100.0


def whole(text: str) -> int:
    """Any whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a whole number wanted, got {text!r}") from None


def items(text: str) -> int:
    """How many of something: at least one."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"a whole number of 1 or more wanted, got {text!r}")
    return value


def replicas(text: str) -> int:
    """At most as many as `plan` reckons with."""
    return _up_to(text, REPLICAS_MAX)


def partitions(text: str) -> int:
    """At most as many as `plan` reckons with."""
    return _up_to(text, PARTITIONS_MAX)


def _up_to(text: str, most: int) -> int:
    value = items(text)
    if value > most:
        raise argparse.ArgumentTypeError(f"1..{most} wanted, got {text}")
    return value


def port_or_off(text: str) -> int | bool:
    """`off` as YAML reads it."""
    if text == "off":
        return False
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a port or off wanted, got {text!r}") from None


def positive(text: str) -> float:
    """Above 0."""
    value = _number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"greater than 0 wanted, got {text}")
    return value


def not_negative(text: str) -> float:
    """0 or more."""
    value = _number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"0 or more wanted, got {text}")
    return value


def probability(text: str) -> float:
    """A share."""
    value = _number(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"0..1 wanted, got {text}")
    return value


def speed(text: str) -> float | None:
    """Times its own pace; None: as fast as it goes."""
    return None if text == "max" else positive(text)


def margin(text: str) -> float:
    """What is multiplied by it does not shrink."""
    value = _number(text)
    if not 1 <= value <= _MARGIN_MAX:
        raise argparse.ArgumentTypeError(f"1..{_MARGIN_MAX:g} wanted, got {text}")
    return value


def listening(text: str) -> float:
    """Seconds, not for ever."""
    value = positive(text)
    if value > _LISTEN_S_MAX:
        raise argparse.ArgumentTypeError(f"at most {_LISTEN_S_MAX:g} seconds wanted, got {text}")
    return value


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a number wanted, got {text!r}") from None
    if not abs(value) <= _NUMBER_MAX:  # not: nan is no number, too
        raise argparse.ArgumentTypeError(f"a number up to {_NUMBER_MAX:g} wanted, got {text}")
    return value


def names(text: str) -> list[str]:
    """At least one, in their order."""
    given = [name for name in text.split(",") if name]
    if not given:
        raise argparse.ArgumentTypeError("names separated by commas wanted")
    return given


def renamed(text: str) -> tuple[str, str]:
    """What one calls B is A at the other: as (B, A)."""
    there, equals, here = text.partition("=")
    if not (there and equals and here):
        raise argparse.ArgumentTypeError(f"B=A wanted, got {text!r}")
    return there, here
