"""The README's numbers come from results, and nothing else of it changes."""

import re
from pathlib import Path

import pytest

from loadtest.readme import (
    BEGIN,
    END,
    FAULTS_BEGIN,
    FAULTS_END,
    HEAD,
    MAIN_FAULTS,
    ROUTING_BEGIN,
    ROUTING_END,
    choice,
    faults,
    numbers,
    rewrite,
    routing,
)
from loadtest.report import Result, Row, Target, begin, load_all
from loadtest.simulate.cells import Grid
from loadtest.simulate.run import run
from loadtest.trust.run import NAMES, RATES
from loadtest.trust.run import faults as trust_faults

ROOT = Path(__file__).parents[3]


def result() -> Result:
    """A run that met one target of two."""
    one = begin("memory", {"engines": 8})
    one.tables["Resident memory after churn"] = [{"what": "mirror", "bytes": 110.0, "per": "unique block"}]
    one.targets += [Target("mirror", 110.0, 120.0, at_least=False), Target("pairs", 180.0, 150.0, at_least=False)]
    return one


def test_what_is_missed_is_named() -> None:
    """With its figure and its limit."""
    text = numbers([result()])

    assert "| mirror | 110 | unique block |" in text
    assert "1 of 2 targets are met. Missed:" in text
    assert "- pairs: 180 (target ≤ 150)" in text


def test_several_replicas() -> None:
    """Each of their scenarios has its tables, with what must be said beside them."""
    replicas = begin("replicas", {"sources": 60})
    replicas.tables["60 busy sources"] = [{"replicas": 1, "blocks/s": 90_000}]
    replicas.remarks.append("All processes share 2 cores.")
    takeover = begin("takeover", {"blocks/s": 4_000})
    takeover.tables = {"kill": [{"beyond the lease s": 0.4}], "leave": [{"longest pause ms": 81}]}
    idle = begin("idle-sources", {"sources": 1_000})
    idle.tables["1,000 idle sources"] = [{"replica": "r1", "open files": 2_031}]
    text = numbers([replicas, takeover, idle])

    assert "| 1 | 90,000 |\n\nAll processes share 2 cores." in text
    assert "beside 4,000 blocks/s" in text
    assert text.index("| 0.4 |") < text.index("| 81 |") < text.index("**1,000 idle sources**") < text.index("| 2,031 |")


def test_every_way_to_ask_and_the_peer_beside() -> None:
    """With what had to be left out."""
    doors = begin("doors", {"tokens": 8_192, "sources": 64})
    doors.tables["Every way to ask"] = [{"asked by": "gRPC Lookup, bytes", "CPU share": 0.4, "p99 us": 7.7}]
    doors.remarks.append("prompts as text were not asked")
    dynamo = begin("dynamo", {"sources": 64, "pairs": 100_000, "connections": 16})
    dynamo.tables["8,192 tokens"] = [{"service": "Dynamo", "asked by": "/query", "CPU us": 216.0}]
    text = numbers([doors, dynamo])

    assert "| gRPC Lookup, bytes | 0.4 |\n\nprompts as text were not asked" in text
    assert "64 workers, 100,000 pairs, 16 connections" in text
    assert "8,192 tokens:\n\n| service | asked by | CPU us |" in text


def test_behind_a_gateway() -> None:
    """In the README, too: what asking adds, and what a core of the service carries."""
    gateways = begin("gateways", {"tokens": 1_024})
    gateways.tables["1 connection"] = [{"way": "Lua", "added us": 600, "a core of the service carries": 2_000}]
    text = choice([gateways])

    assert "prompts of 1,024 token ids" in text
    assert "1 connection:\n\n| way | added us | a core of the service carries |" in text
    assert "| Lua | 600 | 2,000 |" in text


def test_answers_while_parts_fail() -> None:
    """The README shows the main ones in few columns, RESULTS.md all."""
    trust = begin("trust", {"recordings": "basic, clear"})
    reset: Row = {
        "what fails": "silent reset",
        "replay": "no",
        "answers": 1_200,
        "exact %": 99.5,
        "violations": 1,
        "could not be known": 20,
        "until noticed s": 1.25,
        "noticed by": "its next message",
        "false hit tokens": 4_096,
        "false %": 0.25,
        "lost hit tokens": 0,
        "lost %": 0.0,
    }
    lies: Row = {
        **reset,
        "what fails": "no removals told, capacity unknown",
        "messages until then": 32,
        "noticed by": "its words",
    }
    never: Row = {**reset, "what fails": "nothing lost", "until noticed s": "never", "noticed by": None}
    other: Row = {**reset, "what fails": "no removals told of the storage tier"}
    trust.tables["Answers while parts fail"] = [reset, lies, never, other]
    text, everything = faults([result(), trust]), numbers([result(), trust])

    assert "engines (basic, clear)" in text
    assert "of 4,800 answers to 4 faults" in text
    assert "they name: 4. " in text
    assert "| silent reset | no | 99.5 | 1 | 20 | 1.25 s, its next message | 4,096 (0.25 %) | 0 |" in text
    assert "| 20 | 32 messages, its words | 4,096" in text
    assert "| 20 | never | 4,096" in text
    assert "storage" not in text
    assert "| no removals told of the storage tier | no | 1,200 | 99.5 | 1 | 20 |" in everything
    assert not faults([result()]).strip()


def test_what_routing_wins() -> None:
    """The README shows one trace over one fleet, RESULTS.md all."""
    simulated = run(grid=Grid(pods=(8,), blocks=(2_000,), requests=50), loads=())
    text, everything = routing([result(), simulated]), numbers([result(), simulated])

    assert "Simulated: conversation, 8 pods, 2,000 blocks." in text
    assert "what comes is 65% of what all could compute" in text
    assert "| blend, metrics |" in text
    assert f"of {len(simulated.targets)} targets are met" in text
    assert "weka" not in text
    assert "| weka | 8 | 2,000 |" in everything
    assert not routing([result()]).strip()


def test_the_main_faults_are_faults() -> None:
    """A row that is named otherwise would be missing from the README."""
    names = {fault.name for fault in trust_faults(names=NAMES, rates=RATES, last_lost=1, brief=False)}

    assert names >= MAIN_FAULTS


def test_only_what_stands_between_the_marks_is_rewritten(tmp_path: Path) -> None:
    """Twice in a row gives the same; without marks nothing is touched."""
    readme = tmp_path / "README.md"
    everything = tmp_path / "RESULTS.md"
    marks = ((BEGIN, END), (FAULTS_BEGIN, FAULTS_END), (ROUTING_BEGIN, ROUTING_END))
    readme.write_text("before\n" + "\nbetween\n".join(f"{a}\nold\n{b}" for a, b in marks) + "\nafter\n")
    rewrite(readme, everything)
    first, told = readme.read_text(), everything.read_text()
    rewrite(readme, everything)

    assert (first, told) == (readme.read_text(), everything.read_text())
    assert first.startswith("before\n")
    assert f"{END}\nbetween\n{FAULTS_BEGIN}\n" in first
    assert f"{FAULTS_END}\nbetween\n{ROUTING_BEGIN}\n" in first
    assert first.endswith(f"{ROUTING_END}\nafter\n")
    assert "\nold\n" not in first

    told = {f"{a}\n{b}" for a, b in marks}
    for lacking in ("no marks", *("\n".join(told - {mark}) for mark in told)):
        readme.write_text(lacking)
        with pytest.raises(ValueError, match="lacks the marks"):
            rewrite(readme, everything)
        assert lacking == readme.read_text()


def test_the_readme_shows_the_results_that_are_kept() -> None:
    """Whoever measures anew writes it down anew."""
    text = (ROOT / "README.md").read_text()
    shown = text.partition(BEGIN)[2].partition(END)[0].strip()
    faults_shown = text.partition(FAULTS_BEGIN)[2].partition(FAULTS_END)[0].strip()
    routing_shown = text.partition(ROUTING_BEGIN)[2].partition(ROUTING_END)[0].strip()
    kept = load_all()

    assert choice(kept).strip() == shown
    assert faults(kept).strip() == faults_shown
    assert routing(kept).strip() == routing_shown
    assert HEAD + numbers(kept) == (ROOT / "loadtest/RESULTS.md").read_text()


def test_the_readme_has_a_choice() -> None:
    """The smallest and the largest fleet; what is missed is counted, and told elsewhere."""
    lookups = begin("lookups", {})
    row: Row = {"conns": 16, "form": "JSON ids"}
    lookups.tables = {f"{sources} sources": [row] for sources in (8, 64, 512)}
    text = choice([lookups, result()])

    assert re.findall(r"^(\d+) sources:$", text, re.MULTILINE) == ["8", "512"]
    assert "mirror" not in text
    assert "1 of 2 targets are met." in text
    assert "- pairs" not in text
