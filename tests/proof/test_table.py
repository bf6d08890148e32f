"""The table of known trouble is complete, and every test that it names is there."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TABLE: dict[str, list[dict[str, Any]]] = tomllib.loads((Path(__file__).parent / "table.toml").read_text())
LISTS = {"payloads": 14, "kv_events": 55, "llm_d": 16, "dynamo": 21, "peers": 16}
LATER_ISSUES = range(2, 8)
FIELDS = {"row", "says", "tests", "later", "why"}


def named_tests() -> set[str]:
    """Every node id in the table."""
    return {test for rows in TABLE.values() for row in rows for test in row["tests"]}


def test_no_row_is_missing() -> None:
    """All five lists, each row once, in order."""
    assert list(LISTS) == list(TABLE)
    for name, count in LISTS.items():
        assert list(range(1, count + 1)) == [row["row"] for row in TABLE[name]], name


@pytest.mark.parametrize("name", LISTS)
def test_every_row_has_tests_or_says_when(name: str) -> None:
    """A row, or the rest of one, that belongs to a later issue says which and why."""
    for row in TABLE[name]:
        assert row.keys() <= FIELDS
        assert row["says"]
        assert row["tests"] or "later" in row, row
        assert ("later" in row) == ("why" in row), row
        assert row.get("later", 2) in LATER_ISSUES
        assert len(row["tests"]) == len(set(row["tests"]))


def test_rows_that_wait_for_a_later_issue_are_few() -> None:
    """So that none is put off by habit: a new one is a change of this number."""
    waiting = [(name, row["row"]) for name, rows in TABLE.items() for row in rows if not row["tests"]]

    assert [("kv_events", 27), ("kv_events", 51), ("llm_d", 16), ("dynamo", 19), ("peers", 15)] == waiting


def test_every_named_test_is_collected() -> None:
    """By its node id; a function without parameters in brackets stands for all of them."""
    files = sorted({test.partition("::")[0] for test in named_tests()})
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-n", "0", *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    ids = {line.strip() for line in collected.stdout.splitlines() if "::" in line}
    functions = {test.partition("[")[0] for test in ids}

    assert 0 == collected.returncode, collected.stdout[-2000:] + collected.stderr[-2000:]
    assert set() == named_tests() - ids - functions
