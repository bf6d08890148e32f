"""What `kvindexer plan` counts with is what was measured last."""

from __future__ import annotations

import msgspec
import pytest

from indexer.sizing.measured import FILE
from loadtest.constants import encoded, measured
from loadtest.report import load_all


def test_the_file_is_what_the_results_say() -> None:
    """Byte by byte: `python -m loadtest report --readme` writes it anew."""
    assert encoded(load_all()) == FILE.read_bytes()


def test_a_result_that_changes_changes_a_constant() -> None:
    """None of them is kept from before."""
    results = load_all()
    (memory,) = (result for result in results if result.scenario == "memory")
    rows = memory.tables["Resident memory after churn"]
    rows[0] = {**rows[0], "bytes": 1_000.0}

    assert 1_000.0 == measured(results)["mirror_bytes"]


def test_a_result_that_lacks_a_row_is_not_passed_over() -> None:
    """It is an error that names the row."""
    results = load_all()
    (memory,) = (result for result in results if result.scenario == "memory")
    memory.tables["Resident memory after churn"].pop(0)

    with pytest.raises(KeyError, match="mirror"):
        measured(results)


def test_every_constant_says_what_it_is() -> None:
    """A value above nothing, a unit, and the scenario; the scenario has its conditions."""
    told = measured(load_all())

    assert all(constant.value > 0 and constant.unit and constant.of for constant in told.constants.values())
    assert {constant.of.partition(":")[0].partition(",")[0] for constant in told.constants.values()} <= set(
        told.conditions
    )
    assert all({"cpu", "cores", "date", "commit", "sizes"} <= set(each) for each in told.conditions.values())
    assert told == msgspec.json.decode(FILE.read_bytes(), type=type(told))
