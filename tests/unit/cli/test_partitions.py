"""Partitions as a table."""

from __future__ import annotations

import io

from rich.console import Console

from api.cli.partitions import MEMORY, ReplicaRow, Row, Shown, print_partitions


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
            standby="b-8080",
        ),
        Row(partition=15, role="follower", state="waiting"),
    ]

    assert [
        ["partition", "role", "state", "owner", "standby", "position", "age", "ms", "pending", "bytes", "sources"],
        ["0", "owner", "live", "a-8080", "b-8080", "1764450000000-17", "12", "0", "3"],
        ["15", "follower", "waiting", "-", "-", "-", "-", "-", "0"],
    ] == [line.split() for line in _printed(Shown(mode="redis", partitions=rows))]


def test_what_is_kept_here_is_told_where_anything_is() -> None:
    """Of partitions that are listened to beside their owner."""
    rows = [
        Row(partition=0, role="owner", state="live"),
        Row(partition=1, role="standby", state="live", standby_bytes=4_096, standby_dropped=2),
    ]

    title, owned, stood_by = (line.split() for line in _printed(Shown(mode="redis", partitions=rows)))

    assert ["kept", "bytes", "dropped"] == title[-3:]
    assert (["-", "-"], ["4096", "2"]) == (owned[-2:], stood_by[-2:])


def test_replicas_are_a_table_before() -> None:
    """With a mark at the one that was asked."""
    replicas = [
        ReplicaRow(name="a-8080", address="h:8080", state="live", owned=6, standby=5, age_ms=12, me=True),
        ReplicaRow(name="b-8080", state="silent"),
    ]

    lines = [line.split() for line in _printed(Shown(mode="redis", partitions=[], replicas=replicas))]

    assert [
        ["replica", "state", "owned", "standby", "seen", "ms", "ago", "address"],
        ["a-8080", "(asked)", "live", "6", "5", "12", "h:8080"],
        ["b-8080", "silent", "0", "0", "-", "-"],
        [],
    ] == lines[:4]
    assert "partition" == lines[4][0]


def test_without_a_store_there_are_none_and_it_says_so() -> None:
    """An empty table would look like a fault."""
    assert [MEMORY] == _printed(Shown(mode="memory", partitions=[]))
