"""What the Dockerfile says, as far as it shows without building it: who runs, what is copied, what starts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from api.cli.parser import build_parser

ROOT = Path(__file__).parents[2]
TEXT = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
STEPS = [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in TEXT.splitlines() if line]
LAST = max(number for number, (word, _) in enumerate(STEPS) if word == "FROM")
BUILD, FINAL = STEPS[:LAST], STEPS[LAST:]
SCRIPT, COMPILER = "k8s/image/build.sh", "k8s/image/bytecode.py"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def _told(steps: list[tuple[str, str]], word: str) -> list[str]:
    return [rest for name, rest in steps if name == word]


def _copied() -> set[str]:
    """From the tree, into either stage."""
    return {name for rest in _told(STEPS, "COPY") if "--from=" not in rest for name in rest.split()[:-1]}


def test_every_step_is_one_of_the_script() -> None:
    """So what make test-image runs in a folder is what an image is made of."""
    words = set(re.findall(r"^  (\w+)\)$", (ROOT / SCRIPT).read_text(), re.MULTILINE))
    steps = [re.findall(rf"sh (?:/opt/image/)?{SCRIPT} (\w+)", rest) for rest in _told(STEPS, "RUN")]

    assert [["download"], ["wheel"], ["install"], ["compile"]] == steps
    assert {"download", "wheel", "install", "compile", "image"} == words


def test_what_is_copied_is_what_the_wheel_is_made_of() -> None:
    """All of it is in the tree, and .dockerignore lets exactly that through."""
    parts = {*PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"], PROJECT["project"]["readme"]}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    let_through = {line[1:] for line in ignored if line.startswith("!")}

    made_by = {"requirements.lock", "requirements-dev.lock", SCRIPT, COMPILER}
    assert parts | made_by | {"LICENSE", "pyproject.toml"} == _copied()
    assert "*" in ignored
    assert _copied() == let_through
    assert all((ROOT / name).exists() for name in let_through)


def test_nobody_in_particular_runs_it() -> None:
    """A user by number, as runAsNonRoot wants it, after the last step that needs another."""
    (user,) = _told(FINAL, "USER")
    words = [word for word, _ in FINAL]

    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert max(number for number, word in enumerate(words) if word in {"RUN", "COPY"}) < words.index("USER")


def test_the_last_stage_installs_and_compiles_nothing() -> None:
    """It has what the first one made, and bytecode of the standard library."""
    (run,) = _told(FINAL, "RUN")

    assert re.search(r"apt|gcc|pip install|download|curl", run) is None
    assert "pip uninstall --yes" in run
    assert ["/opt/kvindexer /opt/kvindexer"] == [
        rest.removeprefix("--from=build ") for rest in _told(FINAL, "COPY") if "--from=" in rest
    ]


def test_it_starts_as_the_process_itself() -> None:
    """Entry point, command and health check are lists: no shell stands between a signal and the service."""
    (entry,), (command,), (health,) = (_told(FINAL, word) for word in ("ENTRYPOINT", "CMD", "HEALTHCHECK"))
    flags = build_parser("1").parse_args(json.loads(command))

    assert ["kvindexer"] == json.loads(entry)
    assert ("serve", "0.0.0.0") == (flags.command, flags.host)  # noqa: S104  inside its container
    assert "python" == json.loads(health.partition(" CMD ")[2])[0]
    assert ["SIGTERM"] == _told(FINAL, "STOPSIGNAL")


def test_what_it_is_called_stands_on_it() -> None:
    """Both stages begin at one image that whoever builds may choose, and never at what is newest."""
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', TEXT))
    chosen = dict(rest.split("=") for rest in _told(STEPS, "ARG"))

    assert ["${PYTHON_IMAGE} AS build", "${PYTHON_IMAGE}"] == _told(STEPS, "FROM")
    assert re.fullmatch(r"python:3\.11-slim-\w+", chosen["PYTHON_IMAGE"])
    assert PROJECT["project"]["license"] == labels["licenses"]
    assert {"title", "description", "licenses", "version", "revision"} == set(labels)


def test_nothing_of_the_build_stays_where_the_index_could_be_asked() -> None:
    """Of all steps one alone may reach a network."""
    script = (ROOT / SCRIPT).read_text()
    calls = re.findall(r"pip (?:--python \S+ )?(download|install)\b([^\n]*)", script)

    assert calls
    assert all(("--no-index" in rest) == (word == "install") for word, rest in calls)
    assert all("--require-hashes" in rest or "--no-deps" in rest for _, rest in calls)
    assert BUILD


def _built(folder: Path, program: str, answers: str) -> subprocess.CompletedProcess[str]:
    """The last step, where this program alone is there: it answers so to `info`, and says how it was called."""
    (folder / program).write_text(f'#!/bin/sh\n[ "$1" != info ] || exit {answers}\nprintf "%s\\n" {program} "$@"\n')
    (folder / program).chmod(0o755)
    for needed in ("dirname", "git"):
        (folder / needed).symlink_to(next(path for at in os.get_exec_path() if (path := Path(at) / needed).exists()))
    environment = {"PATH": str(folder), "PYTHON": sys.executable, "PYTHON_IMAGE": "python@sha256:1"}
    return subprocess.run(
        ["/bin/sh", str(ROOT / SCRIPT), "image"], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("program", ["docker", "podman"])
def test_whichever_program_answers_builds_it(tmp_path: Path, program: str) -> None:
    """Out of this tree, called by its version, from the image that was chosen."""
    done = _built(tmp_path, program, "0")
    version = PROJECT["project"]["version"]

    assert (0, "") == (done.returncode, done.stderr)
    said = done.stdout.splitlines()
    assert [program, "build", "--build-arg", "PYTHON_IMAGE=python@sha256:1"] == said[:4]
    assert f"VERSION={version}" in said
    assert ["--tag", f"kvindexer:{version}", "."] == said[-3:]


def test_where_none_answers_it_says_so(tmp_path: Path) -> None:
    """A client without its daemon is none."""
    done = _built(tmp_path, "docker", "1")

    assert (1, "") == (done.returncode, done.stdout)
    assert "no docker and no podman answers" in done.stderr


def test_it_runs_as_the_manifest_has_it() -> None:
    """User and group, and the program that is called."""
    pod = yaml.safe_load((ROOT / "k8s/base/deployment.yaml").read_text())["spec"]["template"]["spec"]
    user = pod["securityContext"]

    assert [f"{user['runAsUser']}:{user['runAsGroup']}"] == _told(FINAL, "USER")
    assert [pod["containers"][0]["command"]] == [json.loads(each) for each in _told(FINAL, "ENTRYPOINT")]
