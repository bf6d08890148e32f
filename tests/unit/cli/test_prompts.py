"""Prompts in files: what is taken, and what is told of what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.cli.client import CommandFailed
from api.cli.prompts import read_prompts

TRACES = Path(__file__).parents[2] / "golden" / "traces"


@pytest.mark.parametrize(
    "content",
    [
        b"[1, 2, 3]\n\n[4]\n",
        b"[[1, 2, 3], [], [4]]",
        b'{"token_ids": [1, 2, 3], "model": "m"}\r\n{"token_ids": [4]}',
    ],
)
def test_lines_lists_and_requests(tmp_path: Path, content: bytes) -> None:
    """Empty ones are passed over."""
    (tmp_path / "prompts").write_bytes(content)

    assert [[1, 2, 3], [4]] == read_prompts(str(tmp_path / "prompts"))


def test_those_of_a_recording() -> None:
    """By the name of either file, and of the one that travels with us."""
    prompts = read_prompts(str(TRACES / "basic.kvt.gz"))

    assert prompts == read_prompts(str(TRACES / "basic.truth.gz"))
    assert len(prompts) > 1
    assert read_prompts("demo")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"[1]\n[2, secret]", "line 2: a JSON list of token ids, 0..4294967295, wanted"),
        (b"[-1]", "line 1: a JSON list"),
        (b'{"token_ids": null}', "line 1: a JSON list"),
        (b"\xff\xfe", "line 1: a JSON list"),
        (b"", "no prompt in"),
        (b"[]", "no prompt in"),
    ],
)
def test_what_is_none_is_told_by_its_line(tmp_path: Path, content: bytes, told: str) -> None:
    """And not shown: it may be a prompt."""
    (tmp_path / "prompts").write_bytes(content)
    with pytest.raises(CommandFailed, match=told) as caught:
        read_prompts(str(tmp_path / "prompts"))

    assert "secret" not in str(caught.value)
    assert 2 == caught.value.exit_code


@pytest.mark.parametrize("name", ["nowhere", "nowhere.kvt.gz"])
def test_a_file_that_is_not_there(tmp_path: Path, name: str) -> None:
    """In one line."""
    with pytest.raises(CommandFailed, match="no such file") as caught:
        read_prompts(str(tmp_path / name))
    assert 2 == caught.value.exit_code
