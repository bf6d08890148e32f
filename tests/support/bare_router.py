"""An environment as a router has it: Python, httpx and what httpx needs, and the one file of the client."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib import metadata
from pathlib import Path
from typing import Final

CLIENT: Final = Path(__file__).parents[2] / "kvindexer_client.py"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")


def bare_environment(folder: Path) -> Path:
    """The interpreter of a new one in `folder`, without pip. Its packages are linked from ours, which are locked."""
    venv.create(folder, symlinks=True, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    for name in _needed("httpx", set()):
        for file in metadata.files(name) or ():
            if not file.parts[0].startswith("..") and "__pycache__" not in file.parts:
                target = packages / file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(Path(str(file.locate())))
    shutil.copy(CLIENT, packages)
    return folder / "bin" / Path(sys.executable).name


def _needed(name: str, found: set[str]) -> set[str]:
    """The package and all that it wants without extras, as far as it is here: what is not is for other Pythons."""
    found.add(name)
    for requirement in metadata.requires(name) or ():
        wanted = _NAME.match(requirement)
        if wanted is None or "extra ==" in requirement or wanted[0].lower() in found:
            continue
        try:
            metadata.distribution(wanted[0])
        except metadata.PackageNotFoundError:
            continue
        _needed(wanted[0].lower(), found)
    return found


def run_bare(interpreter: Path, code: str, *arguments: str, timeout_s: float = 60.0) -> str:
    """What a script prints there, isolated from this tree and from the environment."""
    done = subprocess.run(
        [interpreter, "-I", "-W", "error", "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={},
        cwd=interpreter.parent,
    )
    assert (0, "") == (done.returncode, done.stderr), done.stderr
    return done.stdout
