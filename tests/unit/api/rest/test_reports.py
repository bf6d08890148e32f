"""Reports as a sheet has them: the same columns always, and nothing that it would take for a formula."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import msgspec

from api.rest.consistency_sheet import CONSISTENCY_COLUMNS, consistency_lines
from api.rest.reports import COLUMNS, as_csv, sheet
from indexer.model import Descriptor
from indexer.reports.consistency import figures_of
from indexer.reports.feedback import WIDTH
from tests.support.fake_node import FakeNode
from tests.support.reports import consistency_row, staleness_row

if TYPE_CHECKING:
    from schemas.reports import StalenessRow


def _row(pod: str) -> StalenessRow:
    node, source = FakeNode(), Descriptor(pod=pod, endpoint="tcp://engine:5557", model="m")
    node.sources[source.id] = source
    return staleness_row(node._view(source.id))


def test_every_field_of_a_row_is_a_column() -> None:
    """By its path; of tiers all that there are."""
    text = as_csv([_row("a")])
    (line,) = csv.DictReader(io.StringIO(text))

    assert list(COLUMNS) == list(line)
    assert ("a", "0", "1", "2", "") == (
        line["pod"],
        line["dp_rank"],
        line["lag_ms.1m.p50"],
        line["lag_ms.1h.p95"],
        line["event_age_ms.10m.p99"],
    )
    assert ("3", "2", "5", "") == (
        line["gaps.noticed"],
        line["gaps.unhealed"],
        line["tiers.gpu.blocks"],
        line["tiers.remote.blocks"],
    )
    assert "one; two" == line["warnings"]
    top = {column.partition(".")[0] for column in COLUMNS}
    assert set(msgspec.to_builtins(_row("a"))) == top


def test_no_sources_are_a_header() -> None:
    """So that a program that reads it knows the columns."""
    assert [",".join(COLUMNS)] == as_csv([]).splitlines()


def test_a_name_is_no_formula() -> None:
    """Whoever registers a pod chooses its name."""
    for pod in ("=1+1", "+1", "-1", "@a"):
        (line,) = csv.DictReader(io.StringIO(as_csv([_row(pod)])))
        assert f"'{pod}" == line["pod"]


def test_consistency_has_a_line_a_source_and_window_with_every_figure() -> None:
    """None of them is left out or stands twice: all numbers of such a row differ."""
    text = sheet(CONSISTENCY_COLUMNS, consistency_lines([consistency_row(Descriptor(pod="a", model="m"))]))
    minute, hour = csv.DictReader(io.StringIO(text))

    assert list(CONSISTENCY_COLUMNS) == list(minute)
    assert ("1m", "1h") == (minute["window"], hour["window"])
    numbers = [int(value) for name, value in minute.items() if value.isdigit() and name != "dp_rank"]
    assert sorted(numbers) == list(range(1, WIDTH + 1))


def test_a_sheet_without_ages_and_causes_has_their_columns() -> None:
    """Empty."""
    row = consistency_row(Descriptor(pod="a"))
    row.windows = {"1m": figures_of([0] * WIDTH)}

    (line,) = csv.DictReader(io.StringIO(sheet(CONSISTENCY_COLUMNS, consistency_lines([row]))))

    assert ("", "", "0") == (line["causes.tier.tokens"], line["by_age.older.samples"], line["samples"])


def test_yes_and_no_are_written_as_in_json() -> None:
    """Whatever reads the sheet may not be Python."""
    assert ["a,b,c", "true,false,1"] == sheet(("a", "b", "c"), [{"a": True, "b": False, "c": 1}]).splitlines()
