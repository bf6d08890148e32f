"""Prompts as people type them, and what is told of what is none."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from api.cli.client import CommandFailed
from api.cli.texts import read_messages, read_prompt

MESSAGES = [{"role": "user", "content": "héllo"}]


def test_a_text_is_typed_or_in_a_file(tmp_path: Path) -> None:
    """As it is, line ends included."""
    (tmp_path / "p.txt").write_text("héllo\n")

    assert "héllo" == read_prompt("héllo")
    assert "" == read_prompt("")
    assert "héllo\n" == read_prompt(f"@{tmp_path}/p.txt")


def test_standard_input_is_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its usual name."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("héllo".encode())))

    assert "héllo" == read_prompt("@-")


@pytest.mark.parametrize("whole", [False, True])
def test_messages_are_alone_or_in_a_request(tmp_path: Path, whole: bool) -> None:
    """Of a request only what decides its tokens, and its model."""
    tools = [{"type": "function", "function": {"name": "f"}}]
    request = {"model": "m", "messages": MESSAGES, "tools": tools, "temperature": 0.3, "stream": True}
    (tmp_path / "m.json").write_text(json.dumps(request if whole else MESSAGES))
    expected = {"model": "m", "messages": MESSAGES, "tools": tools} if whole else {"messages": MESSAGES}

    assert expected == read_messages(f"@{tmp_path}/m.json")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"{", "--messages: JSON wanted"),
        (b"\xff", "--messages: JSON wanted"),
        (b"[" * 100_000, "--messages: JSON wanted"),
        (b'"secret"', "--messages: an array of messages, or an object with one, wanted"),
        (b'{"prompt":"secret"}', "--messages: an array of messages, or an object with one, wanted"),
    ],
)
def test_what_are_no_messages_is_told_without_them(tmp_path: Path, content: bytes, told: str) -> None:
    """They may be a prompt."""
    (tmp_path / "m.json").write_bytes(content)
    with pytest.raises(CommandFailed) as caught:
        read_messages(f"@{tmp_path}/m.json")

    assert (told, 2) == (str(caught.value), caught.value.exit_code)


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """As is text that is not UTF-8, typed or in a file."""
    (tmp_path / "p.txt").write_bytes(b"abc\xff")
    for call, told in (
        (lambda: read_prompt(f"@{tmp_path}/none"), f"--prompt: {tmp_path}/none: no such file or directory"),
        (lambda: read_messages("m.json"), "--messages: @FILE wanted, or @- for standard input"),
        (lambda: read_prompt(f"@{tmp_path}/p.txt"), "--prompt: text in UTF-8 wanted, byte 3 is none"),
        (lambda: read_prompt("a\udcff"), "--prompt: text in UTF-8 wanted, byte 1 is none"),
    ):
        with pytest.raises(CommandFailed) as caught:
            call()
        assert told == str(caught.value)
