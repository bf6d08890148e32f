"""The documents promise only what exists: targets, commands, versions, recorded files."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.version import Version

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
README = (ROOT / "README.md").read_text()
HELPED = set(re.findall(r"^([a-z][a-z0-9-]*):[^\n]*## \S", MAKEFILE, re.MULTILINE))

KNOWN_COMMAND = re.compile(
    r"(?:[A-Z_]+=\S+ )*"
    r"(?:make(?: |$)|(?:\.venv/bin/)?kvindexer(?: |$)|python -m grpc_tools\.protoc |install -m 600 /dev/null \S+$|"
    r"(?:python3|\.venv/bin/python) -c '[^']*'$|"
    r"(?:(?:python3|\.venv/bin/python) -c '[^']*' \| )?curl .*\bhttp://(?:127\.0\.0\.1|localhost|\[::1\])[:/])"
)


def _shell_lines() -> list[str]:
    """Commands in the README's shell blocks: continuations joined, comments and output of heredocs left out."""
    blocks = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    lines = [line.split(" # ")[0].strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def _documents() -> list[Path]:
    return [
        path
        for path in ROOT.rglob("*.md")
        if not any(part.startswith(".") or part == "dist" for part in path.relative_to(ROOT).parts)
    ]


def test_every_target_has_a_line_of_help() -> None:
    """Bare `make` shows all there is."""
    assert set(re.findall(r"^\.PHONY: ([a-z0-9-]+)$", MAKEFILE, re.MULTILINE)) == HELPED


def test_every_make_target_in_a_document_exists() -> None:
    """In code spans as well as in blocks, in every document."""
    named = {
        (path.relative_to(ROOT).as_posix(), target)
        for path in _documents()
        for target in re.findall(r"(?:`|^)make ([a-z][a-z0-9-]*)", path.read_text(), re.MULTILINE)
    }

    assert named
    assert set() == {(path, target) for path, target in named if target not in HELPED}


def test_every_command_of_the_readme_is_known() -> None:
    """Make, the project's own command, what makes a client, a body or a file, or a question to this machine."""
    lines = _shell_lines()

    assert "make run" in lines
    assert "make test" in lines
    assert [] == [line for line in lines if not KNOWN_COMMAND.match(line)]


def test_the_first_screen_starts_and_tests_it() -> None:
    """A reader needs no scrolling to get going."""
    first_screen = "\n".join(README.splitlines()[:24])

    assert "make run" in first_screen
    assert "make test" in first_screen


def test_the_contents_lead_to_every_section() -> None:
    """In their order, and to files that are there."""
    contents = README.partition("On this page:")[2].partition("\n\n")[0]
    sections = re.findall(r"^## (.+)$", README, re.MULTILINE)
    links = dict(re.findall(r"\[([^\]]+)\]\(([^)]+)\)", contents))
    anchors = {section: "#" + re.sub(r"[^a-z0-9 -]", "", section.lower()).replace(" ", "-") for section in sections}
    files = {name: link for name, link in links.items() if not link.startswith("#")}

    assert list(anchors.items()) == [each for each in links.items() if each[0] not in files]
    assert files
    assert all((ROOT / link).is_file() for link in files.values())


def test_the_changelog_ends_where_the_version_stands() -> None:
    """A release is the newest heading; a development version is newer than it."""
    version = Version(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
    headings = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    releases = [Version(heading) for heading in headings if heading != "Unreleased"]

    assert "Unreleased" == headings[0]
    assert sorted(releases, reverse=True) == releases
    if version.is_devrelease:
        assert all(version > release for release in releases)
    else:
        assert version == releases[0]


@pytest.mark.parametrize("folder", ["tests/golden/traces", "tests/golden/traces/public"])
def test_every_recorded_file_is_described(folder: str) -> None:
    """Format, source and licence of each stand in the README beside it."""
    text = (ROOT / folder / "README.md").read_text()
    names = {path.name for path in (ROOT / folder).glob("*.gz")}
    stems = {re.sub(r"\.(?:kvt|truth)\.gz$", "", name) for name in names}

    assert names
    assert set() == {stem for stem in stems if f"`{stem}`" not in text}
    assert "licence" in text.lower()
    assert "Apache-2.0" in text
