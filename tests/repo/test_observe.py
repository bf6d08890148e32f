"""The rules and the dashboard in `k8s/observe` ask for what there is, and say what to do.

That alerts fire when they should, and that a real Prometheus answers each query, tests/k8s/observe.sh looks at.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from indexer.metric_texts import ADVICE
from tests.repo.rules_resource import FILE, FOLDER, RULES, resource

ROOT: Final = Path(__file__).parents[2]
GROUPS: Final[list[dict[str, Any]]] = yaml.safe_load(RULES.read_text())["groups"]
ALERTS: Final[dict[str, dict[str, Any]]] = {
    rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule
}
RECORDED: Final[dict[str, str]] = {
    rule["record"]: rule["expr"] for group in GROUPS for rule in group["rules"] if "record" in rule
}
DASHBOARD: Final[dict[str, Any]] = json.loads((FOLDER / "dashboard.json").read_text())
PANELS: Final[list[dict[str, Any]]] = DASHBOARD["panels"]
QUERIES: Final[list[str]] = [target["expr"] for panel in PANELS for target in panel.get("targets", ())]
CASES: Final[list[dict[str, Any]]] = yaml.safe_load((ROOT / "tests/k8s/rules.test.yaml").read_text())["tests"]

SCRAPED: Final = {"namespace", "job", "instance"}
"""What Prometheus, or its operator, says of where a sample comes from."""
METRIC: Final = re.compile(r"(?<![\w:])(kvindexer_\w+)(?:\{([^}]*)\})?")
MATCHER: Final = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
GROUPING: Final = re.compile(r"\b(?:by|on|without|ignoring) \(([^)]*)\)")


def _metric(name: str) -> str:
    """As METRICS.md has it: a histogram's series have its name and an ending."""
    return name if name in ADVICE else re.sub(r"_(?:bucket|count|sum)$", "", name)


def _unknown(expression: str) -> list[str]:
    """Metrics and labels of an expression that the service does not have, and values that a label never takes."""
    found, known = [], set(SCRAPED)
    for name, inner in METRIC.findall(expression):
        metric = _metric(name)
        if metric not in ADVICE:
            found.append(name)
            continue
        labels = ADVICE[metric].labels
        known |= labels.keys() | ({"le"} if name.endswith("_bucket") else set())
        for label, _, value in MATCHER.findall(inner):
            if label not in labels.keys() | SCRAPED:
                found.append(f"{name}{{{label}}}")
            elif label in LISTED.get(metric, ()):
                words = set(re.findall(r"[\w-]+", labels[label]))
                found += [f"{name}{{{label}={word}}}" for word in value.split("|") if word not in words]
    grouped = {label.strip() for labels in GROUPING.findall(expression) for label in labels.split(",")}
    return found + sorted(grouped - known)


LISTED: Final = {
    metric: {label for label, holds in advice.labels.items() if holds.count(",") and not holds.startswith("pod,")}
    for metric, advice in ADVICE.items()
}
"""Labels whose values are written down."""


def _recorded_in(expression: str) -> set[str]:
    return set(re.findall(r"\b\w+:kvindexer_\w+:\w+", expression))


def test_the_reader_of_expressions_sees_what_is_wrong() -> None:
    """A metric, a label, a value and a grouping that are not there."""
    assert ["kvindexer_blobs"] == _unknown("sum(kvindexer_blobs)")
    assert ["kvindexer_blocks{state}"] == _unknown('kvindexer_blocks{state="live", source=~"e.*"}')
    assert ["kvindexer_source_state{state=alive}"] == _unknown('kvindexer_source_state{state=~"alive|down"}')
    assert ["tier"] == _unknown("sum by (job, tier) (kvindexer_source_state)")
    assert ["le"] == _unknown("sum by (le) (rate(kvindexer_lookup_duration_seconds_count[5m]))")
    assert [] == _unknown('sum by (le, api) (rate(kvindexer_lookup_duration_seconds_bucket{code="200"}[5m]))')


@pytest.mark.parametrize("rule", [*RECORDED, *ALERTS])
def test_a_rule_asks_for_what_there_is(rule: str) -> None:
    """Metrics of the service with labels that they have, or what another rule records."""
    expression = RECORDED.get(rule) or ALERTS[rule]["expr"]

    assert METRIC.search(expression) or _recorded_in(expression)
    assert [] == _unknown(expression)
    assert set() == _recorded_in(expression) - RECORDED.keys()


def test_nothing_is_recorded_in_vain_by_name() -> None:
    """A recorded name begins with the labels that are left, and is there once."""
    names = [rule["record"] for group in GROUPS for rule in group["rules"] if "record" in rule]

    assert len(names) == len(set(names))
    for name, expression in RECORDED.items():
        level = name.partition(":")[0].split("_")
        assert all(re.search(rf"\bby \([^)]*\b{label}\b", expression) for label in level), name


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_says_what_is_so_and_where_to_read_on(alert: str) -> None:
    """In a sentence each; the place in the runbook is called as the alert is."""
    told = ALERTS[alert]["annotations"]

    assert {"summary", "description", "runbook_url"} == told.keys()
    assert all(told[kind].endswith(".") for kind in ("summary", "description"))
    assert told["runbook_url"] == f"k8s/README.md#{alert.lower()}"
    assert ALERTS[alert]["labels"]["severity"] in {"warning", "critical"}


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_tells_of_labels_that_are_left(alert: str) -> None:
    """A label that the expression has summed away would be empty in the sentence."""
    expression = ALERTS[alert]["expr"]
    for name in _recorded_in(expression):
        expression = expression.replace(name, RECORDED[name])
    left = {label.strip() for labels in GROUPING.findall(expression) for label in labels.split(",")} or SCRAPED
    told = set(re.findall(r"\$labels\.(\w+)", json.dumps(ALERTS[alert]["annotations"])))

    assert set() == told - left


def test_a_degraded_answer_is_no_alert() -> None:
    """It tells what is uncertain, and routing goes on."""
    asked = {metric for rule in ALERTS.values() for metric, _ in METRIC.findall(rule["expr"])}

    assert set() == asked & {"kvindexer_lookups_total", "kvindexer_source_bound"}
    assert not [name for rule in ALERTS.values() for name in _recorded_in(rule["expr"]) if "lookups" in name]


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_is_tried_both_ways(alert: str) -> None:
    """There is a case in which it fires and one in which it does not."""
    cases = [each for case in CASES for each in case["alert_rule_test"] if each["alertname"] == alert]

    assert {True, False} == {bool(each["exp_alerts"]) for each in cases}


def test_the_cases_are_of_series_that_there_are() -> None:
    """With labels and values that they take."""
    series = [each["series"] for case in CASES for each in case["input_series"]]

    assert series
    assert [] == [problem for each in series for problem in _unknown(each)]


def test_the_resource_for_the_operator_is_up_to_date() -> None:
    """`python -m tests.repo.rules_resource` writes it anew; the same groups are in it."""
    assert resource() == FILE.read_text()
    assert GROUPS == yaml.safe_load(FILE.read_text())["spec"]["groups"]


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_of_the_dashboard_asks_for_what_there_is(query: str) -> None:
    """Metrics with labels that they have, each of the chosen namespace, job and replica."""
    chosen = {'namespace=~"$namespace"', 'job=~"$job"', 'instance=~"$instance"'}

    assert METRIC.search(query)
    assert [] == _unknown(query)
    assert all(chosen <= set(inner.split(", ")) for _, inner in METRIC.findall(query))


def test_the_dashboard_shows_every_metric() -> None:
    """One that is added belongs into a row."""
    assert ADVICE.keys() == {_metric(name) for query in QUERIES for name, _ in METRIC.findall(query)}


def test_the_panels_stand_in_rows_and_nowhere_on_each_other() -> None:
    """In the order in which a reader asks; each with a number of its own."""
    rows = [panel["title"] for panel in PANELS if panel["type"] == "row"]
    places = [
        (x, y)
        for at in (panel["gridPos"] for panel in PANELS)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]

    assert ["Answers", "Sources", "Events", "Trust", "Store", "Gateways", "Discovery", "Process"] == rows
    assert len(PANELS) == len({panel["id"] for panel in PANELS})
    assert len(places) == len(set(places))
    assert 24 == 1 + max(x for x, _ in places)


@pytest.mark.parametrize("panel", [panel for panel in PANELS if "targets" in panel], ids=lambda panel: panel["title"])
def test_a_legend_names_labels_that_are_left(panel: dict[str, Any]) -> None:
    """One that was summed away would be empty."""
    for target in panel["targets"]:
        left = {label.strip() for labels in GROUPING.findall(target["expr"]) for label in labels.split(",")}
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= left
