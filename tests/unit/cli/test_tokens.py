"""Token ids as people write them, and what is told of what is none."""

from __future__ import annotations

import struct

import pytest

from api.cli.client import CommandFailed
from api.cli.tokens import parse_binary, parse_text


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        (b"[1, 2, 3]", [1, 2, 3]),
        (b"1 2 3", [1, 2, 3]),
        (b"1,2;3\n4\t5", [1, 2, 3, 4, 5]),
        (b"[1, 2,\n 3,]\n", [1, 2, 3]),
        (b"0 4294967295", [0, 4294967295]),
        (b"007", [7]),
    ],
)
def test_numbers_with_blanks_and_commas_between_them(text: bytes, ids: list[int]) -> None:
    """A JSON list, a line a number, the line of a table: all the same."""
    assert ids == parse_text(text)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "no token id found"),
        (b"[]", "no token id found"),
        (b"none here", "line 1, column 1: a whole number wanted"),
        (b"1 2.5", "line 1, column 3: a whole number wanted"),
        (b"1\n2 1e3", "line 2, column 3: a whole number wanted"),
        (b"1-2-3", "line 1, column 1: a whole number wanted"),
        (b"1 2 three 4", "line 1, column 5: a whole number wanted"),
        (b'["1"]', "line 1, column 2: a whole number wanted"),
        (b'{"token_ids": [1]}', "line 1, column 1: a whole number wanted"),
        (b"1 -2", "the one at index 1 is not"),
        (b"[1, -2]", "the one at index 1 is not"),
        (b"4294967296", "token ids are 0..4294967295, the one at index 0 is not"),
        (b"9" * 10_000, "the one at index 0 is not"),
    ],
)
def test_what_is_no_token_id(text: bytes, told: str) -> None:
    """The rule and the place; never the ids themselves."""
    with pytest.raises(CommandFailed, match=told) as caught:
        parse_text(text)
    assert 2 == caught.value.exit_code


@pytest.mark.parametrize("ids", [(7, 8), (0,), (4_789, 125_181), (49,), (0x31323334, 5)], ids=repr)
def test_raw_ids_without_the_flag_that_says_so(ids: tuple[int, ...]) -> None:
    """The flag is named; where the file is text it is not."""
    with pytest.raises(CommandFailed, match=r"a whole number wanted .*--binary"):
        parse_text(struct.pack(f"<{len(ids)}I", *ids))
    with pytest.raises(CommandFailed) as caught:
        parse_text(b"1 2 three 4")
    assert "binary" not in str(caught.value)


def test_raw_little_endian_u32() -> None:
    """Four bytes a token, and only whole ones."""
    assert [1, 4294967295] == parse_binary(struct.pack("<2I", 1, 4294967295))
    with pytest.raises(CommandFailed, match="whole 4-byte numbers wanted, got 5 bytes"):
        parse_binary(b"12345")
