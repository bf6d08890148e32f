"""What travels in the wheel: three packages with all their data, files to copy. Built without a network."""

import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import kvindexer_client
import kvindexer_ray

ROOT = Path(__file__).parents[2]
PACKAGES = ("api", "indexer", "schemas")
FILES = ("kvindexer_client.py", "kvindexer_ray.py")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel as the build backend makes it from this tree."""
    target = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == built.returncode, built.stdout + built.stderr
    (path,) = target.glob("*.whl")
    return zipfile.ZipFile(path)


def _metadata(wheel: zipfile.ZipFile, name: str) -> str:
    (path,) = (found for found in wheel.namelist() if found.endswith(f".dist-info/{name}"))
    return wheel.read(path).decode()


def test_only_the_packages_and_the_files_to_copy_travel(wheel: zipfile.ZipFile) -> None:
    """Tests, load tests and manifests stay at home."""
    tops = {name.split("/")[0] for name in wheel.namelist()}

    assert {*PACKAGES, *FILES} == {top for top in tops if not top.endswith(".dist-info")}
    assert 1 == len([top for top in tops if top.endswith(".dist-info")])


def test_everything_in_the_packages_travels(wheel: zipfile.ZipFile) -> None:
    """Modules, type markers, design documents and recorded traces alike."""
    wanted = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert set() == wanted - set(wheel.namelist())


def test_the_demo_works_without_the_tree(wheel: zipfile.ZipFile) -> None:
    """Its recorded trace and the engine's answers are in the package."""
    assert {"api/demo/demo.kvt.gz", "api/demo/demo.truth.gz"} <= set(wheel.namelist())


def test_packages_are_typed_for_others(wheel: zipfile.ZipFile) -> None:
    """A type checker that sees the installed packages believes their annotations."""
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(wheel.namelist())


def test_metadata_keeps_it_private_and_startable(wheel: zipfile.ZipFile) -> None:
    """The name is ours alone, no index accepts it by mistake, and one command starts it."""
    metadata = Parser().parsestr(_metadata(wheel, "METADATA"))

    assert "kvindexer" == metadata["Name"]
    assert "Private :: Do Not Upload" in metadata.get_all("Classifier", [])
    assert "Apache-2.0" == metadata["License-Expression"]
    assert "kvindexer = indexer.__main__:main" in _metadata(wheel, "entry_points.txt")


def test_licence_travels(wheel: zipfile.ZipFile) -> None:
    """Whoever gets the wheel gets the licence."""
    assert (ROOT / "LICENSE").read_text() == _metadata(wheel, "licenses/LICENSE")


def test_the_files_to_copy_say_which_version_they_are_of(wheel: zipfile.ZipFile) -> None:
    """They are copied about without the metadata of their package."""
    version = Parser().parsestr(_metadata(wheel, "METADATA"))["version"]

    assert [version] * 2 == [kvindexer_client.__version__, kvindexer_ray.__version__]
