"""What must not stand in any text of the repository.

The patterns are written so that they do not match themselves.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_OURS = {".git", ".venv", "dist", "build", "__pycache__", "raw"}
"""Folders that are made, not written. Hidden caches are left out by their leading dot."""


def _is_written(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    hidden = any(part.startswith(".") and part not in {".ci", ".gitignore"} for part in parts)
    return path.is_file() and not hidden and NOT_OURS.isdisjoint(parts) and "_pb2" not in path.name  # generated


def _texts() -> Iterator[tuple[str, str]]:
    for path in sorted(ROOT.rglob("*")):
        if _is_written(path):
            content = path.read_bytes()
            if b"\0" not in content:
                yield path.relative_to(ROOT).as_posix(), content.decode()


def _found(pattern: str, *, only: str = "") -> list[str]:
    expression = re.compile(pattern)
    return [
        f"{name}:{number}: {line.strip()[:100]}"
        for name, text in _texts()
        if name.endswith(only)
        for number, line in enumerate(text.splitlines(), start=1)
        if expression.search(line)
    ]


def test_the_search_reads_the_tree() -> None:
    """The tests below look at code, documents and configuration; an empty list of files would satisfy them all."""
    names = {name for name, _ in _texts()}

    assert {"README.md", "Makefile", "pyproject.toml", ".ci/run", "indexer/__init__.py"} <= names


@pytest.mark.parametrize("place", ["wor[k]", "far[m]", "tm[p]", "hom[e]", "roo[t]"])
def test_no_path_of_one_machine(place: str) -> None:
    """A clone works in any folder; tests take theirs from pytest."""
    assert [] == _found(rf"(?<![\w.\-}}])/{place}/")


@pytest.mark.parametrize(
    "host", ["pypi[.]org", "pythonhosted[.]", "npmjs[.]", "debian[.]org", r"(?<!no-emit-)index-ur[l]\b"]
)
def test_no_registry_is_named(host: str) -> None:
    """Where packages come from is the machine's business."""
    assert [] == _found(host)


def test_no_document_is_cited_that_is_not_here() -> None:
    """A reader of a clone has nothing but the clone: by its place in the tree, beside the file, or by its name."""
    texts = dict(_texts())
    cited = re.compile(r"(?<![\w./*-])[\w./-]*\w\.md\b")
    names = {name.rpartition("/")[2] for name in texts if name.endswith(".md")}
    missing = [
        (name, found)
        for name, text in texts.items()
        for found in cited.findall(text)
        if found not in names
        and not any(
            (folder / found).is_file() for folder in (ROOT, ROOT / "indexer", ROOT / "tests", (ROOT / name).parent)
        )
    ]

    assert "README.md" in names
    assert [] == missing


def test_no_section_and_no_decision_is_cited_that_is_not_here() -> None:
    """Sections of DESIGN.md, and decisions by their numbers."""
    sections = set(re.findall(r"^## (\d+)\.", (ROOT / "indexer/DESIGN.md").read_text(), re.MULTILINE))
    decisions = {path.name[:4] for path in (ROOT / "indexer/decisions").glob("[0-9]*.md")}
    cited = [
        (name, section, decision)
        for name, text in _texts()
        for section, decision in re.findall(r"DESIGN\.md section (\d+)|decisions/(\d{4})", text)
    ]

    assert cited
    assert [] == [each for each in cited if each[1] and each[1] not in sections]
    assert [] == [each for each in cited if each[2] and each[2] not in decisions]


@pytest.mark.parametrize("document", ["fact shee[t]", "style rul[e]", "\u00a7"])
def test_no_other_paper_is_cited(document: str) -> None:
    """What it says is said here, or stands in DESIGN.md and the decisions."""
    assert [] == _found(rf"(?i){document}")


@pytest.mark.parametrize("word", [r"\bTOD[O]\b", r"\bFIXM[E]\b", r"\bXX[X]\b", r"NotImplemente[d]Error"])
def test_nothing_is_left_for_later(word: str) -> None:
    """Shortfalls are written down where readers look: in the README's limits and the decision records."""
    assert [] == _found(word)


@pytest.mark.parametrize(
    "way", [r"pytest\.mark\.(?:ski[p]|xfai[l])", r"pytest\.(?:ski[p]|xfai[l])\(", r"importorski[p]"]
)
def test_no_test_is_set_aside(way: str) -> None:
    """A test that does not run promises what nobody checks."""
    assert [] == _found(way, only=".py")
