"""`kvindexer token`: what it prints is what the service knows the token by."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from api.access.caller import Caller
from api.access.tokens import TokenAccess
from indexer.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path


def _made(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    """The entry and the token."""
    assert 0 == main(["token", *arguments])
    printed = capsys.readouterr()
    return printed.out, printed.err.rpartition(": ")[2].strip()


@pytest.mark.parametrize("name", ["router-a", "007", "null", "a@b/c", "1.5"])
def test_entries_can_be_gathered_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """One behind the other, whatever the names look like to YAML."""
    first, token = _made(capsys, "--name", name)
    second, other = _made(capsys, "--name", "ops", "--scope", "admin", "--scope", "lookup", "--tenant", 'x: "y"')
    path = tmp_path / "tokens.yaml"
    path.write_text(first + second)
    access = TokenAccess(path)

    assert Caller(name, frozenset({"lookup"}), None) == access.caller(f"Bearer {token}".encode())
    expected = Caller("ops", frozenset({"lookup", "admin"}), 'x: "y"')
    assert expected == access.caller(f"Bearer {other}".encode())


def test_the_token_does_not_come_to_stand_in_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    """It goes to stderr, and each is another."""
    entry, token = _made(capsys, "--name", "a")

    assert len(token) > 40
    assert token not in entry
    assert token != _made(capsys, "--name", "a")[1]


def test_programs_get_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON on stdout; entries in a list are a file, too."""
    out, _ = _made(capsys, "--name", "a", "--json")
    told = json.loads(out)
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps([told["entry"]]))

    assert "a" == TokenAccess(path).caller(f"Bearer {told['token']}".encode()).name


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--name", "a b"), "kvindexer: --name: 1..64 letters"),
        (("--name", "a", "--tenant", ""), "kvindexer: --tenant: text of 1..256 characters"),
    ],
)
def test_what_no_service_would_take_is_not_made(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    """With the rule, and exit code 2."""
    assert 2 == main(["token", *arguments])
    printed = capsys.readouterr()
    assert printed.err.startswith(told)
    assert not printed.out
