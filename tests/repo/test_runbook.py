"""The runbook names only what exists: metrics with their labels, settings, commands, paths, events, figures, alerts."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Final, get_args

import pytest
import yaml

from api.cli.parser import build_parser
from indexer.index.states import is_scored
from indexer.model import SourceState

ROOT: Final = Path(__file__).parents[2]
TEXT: Final = (ROOT / "k8s" / "README.md").read_text()
SPANS: Final = sorted(set(re.findall(r"`([^`\n]+)`", TEXT)))
METRICS: Final = (ROOT / "METRICS.md").read_text()
KNOWN_METRICS: Final = set(re.findall(r"^\| `(kvindexer_\w+)` \|", METRICS, re.MULTILINE))
EVENTS: Final = set(re.findall(r"^\| `([a-z_]+)` \|", METRICS, re.MULTILINE)) - KNOWN_METRICS
SETTINGS: Final = set(re.findall(r"^\| `([a-z_.]+)` \|", (ROOT / "SETTINGS.md").read_text(), re.MULTILINE))
ROUTES: Final = re.findall(r'^ +"(/[^"]+)": (?:\{|dict)', (ROOT / "api/rest/app.py").read_text(), re.MULTILINE)
COMMANDS: Final = [span for span in SPANS if re.match(r"(?:kubectl .* -- )?kvindexer [a-z]", span)]


def test_every_metric_exists() -> None:
    """By its whole name."""
    named = set(re.findall(r"\bkvindexer_\w+", TEXT))

    assert 20 <= len(named)
    assert set() == named - KNOWN_METRICS


def test_every_setting_exists() -> None:
    """With its section, and as the environment calls it."""
    sections = {name.partition(".")[0] for name in SETTINGS if "." in name}
    dotted = {span for span in SPANS if re.fullmatch(r"[a-z]+(?:\.[a-z_]+)+", span) and span.split(".")[0] in sections}
    variables = re.findall(r"\bKVINDEXER_([A-Z_]+__[A-Z_]+)", TEXT)

    assert 20 <= len(dotted)
    assert set() == dotted - SETTINGS - {"staleness.entry_ttl_s"}
    assert {"redis.url"} <= {name.lower().replace("__", ".") for name in variables} <= SETTINGS


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_understood(command: str) -> None:
    """By the parser of the command line, with its flags."""
    words = shlex.split(command.rpartition(" -- ")[2])

    assert words[1] == build_parser("1").parse_args(words[1:]).command


def test_every_path_is_there() -> None:
    """In the tree, or among what REST answers."""
    folders = {span for span in SPANS if re.fullmatch(r"k8s/[\w./-]+", span)}
    asked = {span.split("?")[0] for span in re.findall(r"`(?:(?:GET|PUT|POST|DELETE) )?(/[a-z][^`\s]*)`", TEXT)}

    assert folders
    assert set() == {name for name in folders if not (ROOT / name).exists()}
    assert {"/healthz", "/readyz"} <= asked
    assert set() == asked - set(ROUTES)


def test_every_event_of_the_log_exists() -> None:
    """Wherever one is called an event."""
    named = set(re.findall(r"\bevent `(\w+)`", TEXT))

    assert named
    assert set() == named - EVENTS


def test_figures_are_those_that_were_measured() -> None:
    """And those that are reckoned from them."""
    constants = json.loads((ROOT / "indexer/sizing/measured.json").read_text())["constants"]
    told = dict(re.findall(r"^\| `(\w+)` \| ([\d.e-]+) \|", TEXT, re.MULTILINE))
    value = {name: constants[name]["value"] for name in told}
    pair = value["mirror_bytes"] + value["map_bytes"] + value["rest_bytes"]
    rate = 1e6 / (value["own_us"] * value["removals_factor"])

    assert 10 <= len(told)
    assert value == {name: float(text) for name, text in told.items()}
    assert f"at one engine: {pair:.0f} MB" in TEXT
    assert f"is {round(rate, -3):,.0f} blocks a second at an owner, {round(rate * 0.6, -3):,.0f} at the 60 %" in TEXT


@pytest.mark.parametrize("rules", ["rules.yaml", "prometheus-rule.yaml"])
def test_every_alert_leads_here(rules: str) -> None:
    """To a heading of its own, and no heading is of an alert that is gone."""
    document = yaml.safe_load((ROOT / "k8s" / "observe" / rules).read_text())
    groups = document["groups"] if "groups" in document else document["spec"]["groups"]
    alerts = {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}

    assert set(alerts) == set(re.findall(r"^### (\w+)$", TEXT, re.MULTILINE))
    assert all(
        rule["annotations"]["runbook_url"].endswith(f"k8s/README.md#{name.lower()}") for name, rule in alerts.items()
    )


def test_every_state_has_a_line() -> None:
    """Which says whether it is scored as the service has it."""
    table = TEXT.partition("## States of a source")[2].partition("## ")[0]
    told = dict(re.findall(r"^\| `(\w+)` \| (yes|no)\b", table, re.MULTILINE))

    assert {state: "yes" if is_scored(state) else "no" for state in get_args(SourceState)} == told


def test_links_within_it_lead_somewhere() -> None:
    """To one of its headings."""
    headings = {heading.lower().replace(" ", "-") for heading in re.findall(r"^#+ (.+)$", TEXT, re.MULTILINE)}
    links = set(re.findall(r"\]\(#([^)]+)\)", TEXT))

    assert links
    assert set() == links - headings
