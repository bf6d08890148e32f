"""Samples of the few metrics that are looked at, out of the Prometheus text format. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_SAMPLE: Final = re.compile(
    r"(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?\s*"
)
_LABEL: Final = re.compile(r'(?<![A-Za-z0-9_])([A-Za-z_][A-Za-z0-9_]*+)="((?:[^"\\]|\\.)*+)"')
"""A name begins where none goes on, and is tried once: what is no label costs a look at each character."""
_ESCAPES: Final = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
LINE_MAX: Final = 65_536
"""Characters; longer lines are passed over."""


class Sample(NamedTuple):
    """One line."""

    name: str
    labels: dict[str, str]
    value: float


def samples(text: str, names: Collection[str]) -> Iterator[Sample]:
    """Of metrics of these names, in their order; what cannot be read is passed over."""
    for line in text.splitlines():
        if not line.startswith(tuple(names)) or len(line) > LINE_MAX:
            continue
        found = _SAMPLE.fullmatch(line)
        if found is None or found["name"] not in names:
            continue
        try:
            value = float(found["value"])
        except ValueError:
            continue
        labels = {name: _plain(text) for name, text in _LABEL.findall(found["labels"] or "")}
        yield Sample(found["name"], labels, value)


def _plain(text: str) -> str:
    return re.sub(r"\\[\\\"n]", lambda escape: _ESCAPES[escape[0]], text) if "\\" in text else text
