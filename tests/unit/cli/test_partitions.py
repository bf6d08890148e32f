"""Partitions as a table."""

from __future__ import annotations

import io

from rich.console import Console

from api.cli.partitions import MEMORY, Row, Shown, print_partitions


def _printed(shown: Shown) -> list[str]:
    console = Console(width=250, file=io.StringIO(), markup=False, highlight=False)
    with console.capture() as capture:
        print_partitions(shown, console)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_partition_is_a_line() -> None:
    """What is not known is a dash."""
    rows = [
        Row(
            partition=0,
            role="owner",
            state="live",
            owner="a-8080",
            position="1764450000000-17",
            age_ms=12,
            pending_bytes=0,
            sources=3,
        ),
        Row(partition=15, role="follower", state="waiting"),
    ]

    assert [
        ["partition", "role", "state", "owner", "position", "age", "ms", "pending", "bytes", "sources"],
        ["0", "owner", "live", "a-8080", "1764450000000-17", "12", "0", "3"],
        ["15", "follower", "waiting", "-", "-", "-", "-", "0"],
    ] == [line.split() for line in _printed(Shown(mode="redis", partitions=rows))]


def test_without_a_store_there_are_none_and_it_says_so() -> None:
    """An empty table would look like a fault."""
    assert [MEMORY] == _printed(Shown(mode="memory", partitions=[]))
