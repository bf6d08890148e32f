"""Verdicts and tables."""

from pathlib import Path

from loadtest.report import Result, Target, begin, load_all, markdown, save, table


def test_a_target_is_met_at_its_limit() -> None:
    """From below and from above."""
    assert Target("share", 0.25, 0.25).met
    assert not Target("share", 0.249, 0.25).met
    assert Target("stall", 20.0, 20.0, at_least=False).met
    assert not Target("stall", 20.1, 20.0, at_least=False).met
    assert Target("share", 0.1, 0.25).line().startswith("MISSED")


def test_a_table_shows_every_column_once() -> None:
    """Rows may lack cells; thousands and fractions are readable."""
    rows = table([{"what": "a", "n": 1_234_567}, {"what": "b", "share": 0.12345, "rate": 98_765.4}])

    assert rows.splitlines() == [
        "| what | n | share | rate |",
        "|---|---|---|---|",
        "| a | 1,234,567 |  |  |",
        "| b |  | 0.123 | 98,765 |",
    ]


def test_a_result_survives_its_file(tmp_path: Path) -> None:
    """And says under which conditions it was measured, without the folder it was measured in."""
    result = begin("ingest", {"engines": 8})
    result.tables["Applied"] = [{"batch": "1 × 8 blocks", "share": 0.3}]
    result.targets.append(Target("share", 0.3, 0.25))
    path = save(result, tmp_path)

    assert [result] == load_all(tmp_path)
    text = markdown(result)
    assert "| share | ≥ 0.25 | 0.3 | met |" in text
    assert "Python 3" in text
    assert "engines 8" in text
    assert str(Path.cwd()) not in path.read_text()


def test_a_result_without_targets_has_no_verdicts() -> None:
    """Stage costs are no promises."""
    text = markdown(Result("bench", begin("bench", {}).conditions, {}, {"Events": [{"us": 1}]}, [], []))

    assert "target" not in text
