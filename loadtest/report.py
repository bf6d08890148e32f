"""Results as JSON files, verdicts on targets, and Markdown tables made of both. Writes only below `results/`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from loadtest.machine import conditions

RESULTS: Final = Path(__file__).parent / "results"

Cell = str | int | float | None
Row = dict[str, Cell]


class Target(msgspec.Struct, frozen=True):
    """A promise in numbers: `value` must be at least, or at most, `limit`."""

    name: str
    value: float
    limit: float
    at_least: bool = True

    @property
    def met(self) -> bool:
        """Whether it is."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def line(self) -> str:
        """For a person."""
        sign = "≥" if self.at_least else "≤"
        verdict = "met   " if self.met else "MISSED"
        return f"{verdict}  {self.name}: {self.value:.4g} (target {sign} {self.limit:g})"


class Result(msgspec.Struct):
    """One run of one scenario. `tables` holds rows by the table's title."""

    scenario: str
    conditions: dict[str, object]
    sizes: dict[str, object]
    tables: dict[str, list[Row]]
    targets: list[Target]
    remarks: list[str]


def begin(scenario: str, sizes: dict[str, object]) -> Result:
    """A result without figures yet, with the conditions as of now."""
    return Result(scenario, conditions(), sizes, {}, [], [])


def save(result: Result, folder: Path = RESULTS) -> Path:
    """Write it, replacing the last of that scenario."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{result.scenario}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    return path


def load_all(folder: Path = RESULTS) -> list[Result]:
    """Every result there is, by name."""
    return [msgspec.json.decode(path.read_bytes(), type=Result) for path in sorted(folder.glob("*.json"))]


def markdown(result: Result) -> str:
    """Tables, verdicts, remarks and conditions of one result."""
    parts = [f"### {result.scenario}"]
    for title, rows in result.tables.items():
        parts += [f"{title}:", table(rows)]
    if result.targets:
        verdicts: list[Row] = [
            {
                "target": target.name,
                "limit": f"{'≥' if target.at_least else '≤'} {target.limit:g}",
                "measured": f"{target.value:.3g}",
                "": "met" if target.met else "missed",
            }
            for target in result.targets
        ]
        parts.append(table(verdicts))
    parts += [f"- {remark}" for remark in result.remarks]
    parts.append(condition_line(result))
    return "\n\n".join(parts) + "\n"


def table(rows: list[Row]) -> str:
    """A Markdown table; the first row names the columns, a cell that a row lacks stays empty."""
    if not rows:
        return ""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(_text(row.get(name)) for name in columns) + " |" for row in rows]
    return "\n".join(lines)


def condition_line(result: Result) -> str:
    """Machine, software and sizes in one paragraph."""
    sizes = ", ".join(f"{name} {value}" for name, value in result.sizes.items())
    return f"Conditions: {machine_line(result)}; {sizes}."


def machine_line(result: Result) -> str:
    """Machine and software."""
    told = result.conditions
    packages = told.get("packages", {})
    versions = ", ".join(f"{name} {number}" for name, number in packages.items()) if isinstance(packages, dict) else ""
    return (
        f"{told['cpu']}, {told['cores']} cores, load average at the start {told['load_average']}, "
        f"Linux {told['kernel']}, Python {told['python']}, {versions}; commit {told['commit']}, {told['date']}"
    )


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 1_000 else f"{cell:.3g}"
    return f"{cell:,}" if isinstance(cell, int) else cell
