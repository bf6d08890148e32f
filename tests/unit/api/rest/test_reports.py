"""Reports as a sheet has them: the same columns always, and nothing that it would take for a formula."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import msgspec

from api.rest.reports import COLUMNS, as_csv
from indexer.model import Descriptor
from tests.support.fake_node import FakeNode
from tests.support.reports import staleness_row

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
