"""The lock files name everything that gets installed, by hash, and no place to get it from."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = (
    "requirements.lock",
    "requirements-dev.lock",
    "requirements-files.lock",
    "requirements-ray.lock",
    "requirements-k8s.lock",
)


def _entries(lock: str) -> list[str]:
    joined = (ROOT / lock).read_text().replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip()]


def _pins(lock: str) -> dict[str, set[str]]:
    """Versions by name; several where a marker chooses by Python version."""
    pins: dict[str, set[str]] = {}
    for entry in _entries(lock):
        requirement = Requirement(entry.split(" --hash")[0])
        (pin,) = requirement.specifier
        assert "==" == pin.operator, entry
        pins.setdefault(canonicalize_name(requirement.name), set()).add(pin.version)
    return pins


def _unmet(wanted: list[str], pins: dict[str, set[str]]) -> list[str]:
    requirements = [Requirement(text) for text in wanted]
    return [
        str(requirement)
        for requirement in requirements
        if not (versions := pins.get(canonicalize_name(requirement.name)))
        or not all(requirement.specifier.contains(version, prereleases=True) for version in versions)
    ]


@pytest.mark.parametrize("lock", LOCKS)
def test_every_entry_has_hashes(lock: str) -> None:
    """What is installed is what was resolved, byte by byte."""
    entries = _entries(lock)

    assert entries
    assert [] == [entry for entry in entries if not re.search(r" --hash=sha256:[0-9a-f]{64}\b", entry)]


@pytest.mark.parametrize("lock", LOCKS)
def test_no_lock_names_a_place(lock: str) -> None:
    """No address and no option that carries one: where packages come from is the machine's business."""
    text = (ROOT / lock).read_text()

    assert "://" not in text
    assert re.search(r"^\s*(?:-i|-f|--[a-z-]*(?:index|links|host)[a-z-]*|[^ ]+ @ )", text, re.MULTILINE) is None


def test_runtime_dependencies_are_locked() -> None:
    """Each one stands in the lock at a version that the project allows."""
    assert [] == _unmet(PROJECT["project"]["dependencies"], _pins("requirements.lock"))


def test_development_and_build_dependencies_are_locked() -> None:
    """Setup needs nothing else: the build backend too comes from the lock."""
    wanted = PROJECT["project"]["optional-dependencies"]["dev"] + PROJECT["build-system"]["requires"]

    assert [] == _unmet(wanted, _pins("requirements-dev.lock"))


def test_tests_run_on_the_versions_that_are_delivered() -> None:
    """Both locks agree wherever both name a package."""
    development = _pins("requirements-dev.lock")

    assert {} == {
        name: (versions, development.get(name))
        for name, versions in _pins("requirements.lock").items()
        if versions != development.get(name)
    }


def test_there_is_one_kind_of_lock() -> None:
    """A second lock format would be a second truth."""
    assert [] == [name for name in ("uv.lock", "poetry.lock", "Pipfile.lock", "pdm.lock") if (ROOT / name).exists()]
