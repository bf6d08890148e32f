"""What each make target would run is there: programs, modules, scripts, files, and the tests that it names."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.test_documents import HELPED

ROOT = Path(__file__).parents[2]
DEADLINE_S = 100.0
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "MAKE", "MFLAGS"))}
SCRIPTS = (
    "tests/dynamo/run.sh",
    "tests/e2e/apiserver/run.sh",
    "tests/e2e/netns/run.sh",
    "tests/engine/run.sh",
    "tests/gateways/run.sh",
)
MADE = ("dist", ".venv")
"""How a path begins that is made, and not there in a clone."""
SETUP = re.compile(r"-m (?:pip|venv) |touch |ensurepip|^test -n |^make: ")


def _planned(target: str) -> list[str]:
    """The commands, without those that only make the environment. A loop over words is one command a word."""
    told = subprocess.run(
        ["make", "-n", "--no-print-directory", target], cwd=ROOT, env=PLAIN, capture_output=True, text=True, check=True
    ).stdout.replace("\\\n", " ")
    lines: list[str] = []
    for line in filter(None, map(str.strip, told.splitlines())):
        loop = re.fullmatch(r"for (\w+) in (.+?); do\s+(.+?) \|\| exit 1;\s*done", line)
        words = loop[2].split() if loop else [""]
        lines += [re.sub(rf"\${loop[1]}\b", word, loop[3]) if loop else line for word in words]
    return [line for line in lines if target == "setup" or not SETUP.search(line)]


def _words(command: str) -> list[str]:
    """As the shell has them, without what is set for the command."""
    words = shlex.split(command)
    while words and re.match(r"[A-Z_]+=", words[0]):
        del words[0]
    return words


COMMANDS = sorted({(target, command) for target in HELPED for command in _planned(target)})
PYTESTS = [command for _, command in COMMANDS if " -m pytest" in command and " tests/" in command]


def test_every_target_runs_something() -> None:
    """The tests below cannot pass for want of commands."""
    assert set() == HELPED - {target for target, _ in COMMANDS} - {"setup"}
    assert {"tests/dynamo/run.sh", "tests.fuzz.run", "loadtest"} <= {
        word for _, command in COMMANDS for word in _words(command)
    }
    assert 3 <= len(PYTESTS)


@pytest.mark.parametrize(("target", "command"), COMMANDS)
def test_what_a_target_names_is_there(target: str, command: str) -> None:
    """Its programs, the modules that Python runs, and all files and folders that stand in the repository."""
    for step in command.split(" && "):
        words = _words(step)
        if words[0].startswith(".venv/bin/"):
            assert (Path(sys.prefix) / "bin" / Path(words[0]).name).exists(), (target, words[0])
        if "-m" in words[:3]:
            module = words[words.index("-m") + 1]
            assert importlib.util.find_spec(module), (target, module)
        missing = [word for word in words[1:] if _is_path(word) and not list(ROOT.glob(word.removeprefix("../")))]
        assert target == "clean" or [] == missing, (target, missing)


def _is_path(word: str) -> bool:
    """Of something that was written."""
    named = re.fullmatch(
        r"[\w./*-]+\.(?:py|sh|toml|lock|proto|binpb|md)|[\w.*]+(?:/[\w.*-]+)+", word.removeprefix("../")
    )
    return named is not None and not word.startswith(MADE)


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_a_script_names_is_there(script: str) -> None:
    """It is one that bash can read; and so are those that it calls."""
    text = (ROOT / script).read_text()
    assert "" == subprocess.run(["bash", "-n", script], cwd=ROOT, capture_output=True, text=True, check=True).stderr
    called = set(re.findall(r"\btests/[\w/]+\.(?:sh|py|txt)", text))
    assert set() == {name for name in called if not (ROOT / name).is_file()}
    for name in called:
        if name.endswith(".sh"):
            subprocess.run(["bash", "-n", name], cwd=ROOT, check=True)
    assert set(re.findall(r"\bmake (?:--[\w-]+ )*([a-z][a-z0-9-]*)", text)) <= HELPED


def _pytest_of(script: str) -> str:
    """The options and folder that a script gives to pytest."""
    (found,) = re.findall(r"-m pytest ([^\n]*(?:\\\n[^\n]*)*) \"\$@\"", (ROOT / script).read_text())
    return f"python -m pytest {found}".replace("\\\n", " ")


@pytest.mark.parametrize("command", [*PYTESTS, *map(_pytest_of, SCRIPTS)])
def test_every_call_of_pytest_finds_tests(command: str) -> None:
    """With its options and marks, as far as looking for tests goes."""
    words = _words(command)[3:]
    alone = [] if "no:xdist" in words else ["-n", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *alone, "--collect-only", "-q", "-p", "no:cacheprovider"],
        cwd=ROOT,
        env=PLAIN,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert 0 == done.returncode, done.stdout[-2000:] + done.stderr
    assert re.search(r"^\d+(?:/\d+)? tests? collected", done.stdout, re.MULTILINE), done.stdout[-500:]


@pytest.mark.parametrize(
    "command", [command for _, command in COMMANDS if re.search(r"-m loadtest|bin/kvindexer [a-z]", command)]
)
def test_every_subcommand_is_known(command: str) -> None:
    """By the parser that would read it."""
    words = _words(command.rpartition(" && ")[2])
    program = words[1:] if "-m" in words else ["-m", "indexer", *words[1:]]
    done = subprocess.run(
        [sys.executable, *program, "--help"], cwd=ROOT, env=PLAIN, capture_output=True, text=True, check=False
    )

    assert 0 == done.returncode, done.stderr


@pytest.mark.parametrize("command", [command for target, command in COMMANDS if target == "fuzz"])
def test_what_make_fuzz_runs_runs(command: str) -> None:
    """Each of its targets, for a second."""
    words = _words(command)
    words[words.index("--seconds") + 1] = "1"
    # The fuzzer bounds its process by the most memory that it ever had, and a process that another one starts begins
    # with what that one has: a shell in between is small, however large the tests have grown.
    done = subprocess.run(
        ["/bin/sh", "-c", f"{shlex.join([sys.executable, *words[1:]])}; exit $?"],
        cwd=ROOT,
        env=PLAIN,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert 0 == done.returncode, done.stderr[-2000:]
    assert "number_of_executed_units" in done.stderr


def test_make_fuzz_runs_all_that_is_fuzzed() -> None:
    """None is forgotten."""
    help_ = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.run", "--help"],
        cwd=ROOT,
        env=PLAIN,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    known = re.search(r"\{([\w,]+)\}", help_)
    assert known
    ran = [words[words.index("tests.fuzz.run") + 1] for _, c in COMMANDS if "tests.fuzz.run" in (words := _words(c))]

    assert sorted(known[1].split(",")) == sorted(ran)
