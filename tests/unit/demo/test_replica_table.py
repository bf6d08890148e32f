"""The demo's table of replicas."""

from __future__ import annotations

import io
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, cast

import pytest
from rich.console import Console

from api.demo.facts import SourceFacts
from api.demo.replica_table import replica_table
from api.demo.screen import NARROW, WIDE
from api.demo.sharing import PartitionFacts, Sharing

if TYPE_CHECKING:
    from api.demo.cluster import Replicas


class Client(NamedTuple):
    """As far as it is drawn."""

    url: str


class Replica(NamedTuple):
    """As far as it is drawn."""

    name: str
    client: Client
    standing: str


class Stand(NamedTuple):
    """Three replicas at one moment."""

    all: list[Replica]
    sharing: Sharing
    sources: dict[str, SourceFacts]


STAND = Stand(
    [Replica("r1", Client("a"), "up"), Replica("r2", Client("b"), "paused"), Replica("r3", Client("c"), "up")],
    Sharing([PartitionFacts(0, "live", "r1", "r3"), PartitionFacts(1, "live", "r1", "r3"), PartitionFacts(2)]),
    {pod: SourceFacts(pod, owner=owner) for pod, owner in (("e1", "r1"), ("e2", "r1"), ("e3", "r2"))},
)


@pytest.mark.parametrize("width", [60, NARROW, WIDE])
def test_a_row_for_each(width: int) -> None:
    """What was done to it, its share, its answers; where there is room the engines whose events it applies."""
    console = Console(width=width, file=io.StringIO(), force_terminal=False)
    with console.capture() as capture:
        console.print(replica_table(cast("Replicas", STAND), Counter(a=1_234, c=7), width))
    rows = [line.split() for line in capture.get().splitlines()[1:]]
    engines = [["e1", "e2"], ["e3"], []] if width >= WIDE else [[], [], []]

    assert [
        ["r1", "up", "2", "of", "3", "0", "1,234", *engines[0]],
        ["r2", "paused", "0", "of", "3", "0", "0", *engines[1]],
        ["r3", "up", "0", "of", "3", "2", "7", *engines[2]],
    ] == rows
