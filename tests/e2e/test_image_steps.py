"""The steps of the image in a plain folder: installed without a network, started by itself, ended by SIGTERM."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from api.rest.openapi import openapi_document

ROOT: Final = Path(__file__).parents[2]
DOCKERFILE: Final = (ROOT / "Dockerfile").read_text()
DRAIN_S: Final = 5.0
"""What `server.drain_s` is unless told otherwise."""
MARGIN_S: Final = 10.0
"""A machine that does much else is given so much more; an orchestrator's grace is 30 s."""
NO_NETWORK: Final = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def _step(context: Path, *words: str, **environment: str) -> None:
    """One word of the script, as the Dockerfile says it, in what it copied."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KVINDEXER_"))}
    done = subprocess.run(
        ["/bin/sh", str(context / "k8s" / "image" / "build.sh"), *words],
        env={**plain, "PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stdout + done.stderr


def _copy_to(context: Path) -> None:
    """What the Dockerfile copies out of the tree, and nothing else."""
    for names in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE):
        for name in names.split():
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, context / name, ignore=ignored)
            else:
                shutil.copy(ROOT / name, context / name)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The environment that the image has: downloaded, then built and installed with every way out closed."""
    folder = tmp_path_factory.mktemp("image")
    context, wheels, prefix = folder / "context", str(folder / "wheels"), folder / "kvindexer"
    _copy_to(context)
    _step(context, "download", wheels)
    _step(context, "wheel", wheels, **NO_NETWORK)
    _step(context, "install", wheels, str(prefix), **NO_NETWORK)
    return prefix


def _health_check() -> list[str]:
    (command,) = re.findall(r"^ +CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    words: list[str] = json.loads(command)
    return words


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_it_starts_says_that_it_is_well_and_ends_with_0(installed: Path) -> None:
    """In a session of its own, writing nothing into what it was installed as, as on a root that cannot be written."""
    there = _files(installed)
    environment = {"PATH": f"{installed}/bin"}
    service = subprocess.Popen(
        [installed / "bin" / "kvindexer", "serve", "--host", "127.0.0.1", "--port", "0", "--grpc-port", "0"],
        cwd="/",
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert service.stdout is not None
        banner = service.stdout.readline()
        found = re.search(r"http://[0-9.:]+", banner)
        assert found is not None, banner
        assert os.getsid(service.pid) == service.pid
        asked = subprocess.run(
            [installed / "bin" / _health_check()[0], *_health_check()[1:]],
            env={**environment, "KVINDEXER_URL": found[0]},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (0, "") == (asked.returncode, asked.stderr)
        service.send_signal(signal.SIGTERM)
        said, log = service.communicate(timeout=DRAIN_S + MARGIN_S)
        assert (0, "") == (service.returncode, said), log
    finally:
        if service.returncode is None:
            service.kill()
            service.communicate()

    gone = subprocess.run(
        [installed / "bin" / _health_check()[0], *_health_check()[1:]],
        env={**environment, "KVINDEXER_URL": found[0]},
        capture_output=True,
        check=False,
    )
    assert 0 != gone.returncode
    assert there == _files(installed)


def test_its_packages_are_ours_alone(installed: Path) -> None:
    """Nothing else that is installed has a package of one of these names, and there is nothing to install more with."""
    done = subprocess.run(
        [installed / "bin" / "python", ROOT / "tests" / "repo" / "installed_wheel.py"],
        cwd="/",
        env={},
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stdout + done.stderr
    assert [] == [path.name for path in (installed / "bin").iterdir() if path.name.startswith("pip")]


def test_all_of_it_is_compiled(installed: Path) -> None:
    """But for tests of libraries, which nobody imports."""
    modules = [
        path
        for path in installed.glob("lib/*/site-packages/**/*.py")
        if {"test", "tests"}.isdisjoint(path.relative_to(installed).parts[:-1])
    ]
    tag = sys.implementation.cache_tag

    assert modules
    assert [] == [path for path in modules if not (path.parent / "__pycache__" / f"{path.stem}.{tag}.pyc").is_file()]


def test_it_has_no_docstrings_but_those_of_the_openapi_document(installed: Path) -> None:
    """Libraries' take megabytes in every process; what is told to callers is what the tree tells."""
    code = (
        "import sys, starlette.routing as lib, starlette.requests, api.rest.openapi as ours\n"
        "sys.stdout.buffer.write(ours.openapi_document('1'))\n"
        "documented = (lib.Router.url_path_for, starlette.requests, ours, ours.openapi_document)\n"
        "print([each for each in documented if each.__doc__], file=sys.stderr)"
    )
    done = subprocess.run([installed / "bin" / "python", "-c", code], cwd="/", env={}, capture_output=True, check=True)

    assert b"[]" == done.stderr.strip()
    assert openapi_document("1") == done.stdout
