"""A JSON document that was cut off somewhere, read as far as it is complete. Pure.

What is complete is kept: members whose values ended, elements that ended. Of what the cut went through, containers are
closed, and of strings only those that tell the prompt are kept, up to their last whole character: the beginning of a
text is a beginning of the prompt, while the beginning of a name is another name. A number at the cut is dropped: more
digits may have followed.
"""

from __future__ import annotations

import codecs
import re
from typing import Final, NamedTuple

import msgspec

DEPTH_MAX: Final = 64
MARKS_MAX: Final = 20_000
"""Strings and brackets that are looked at, which takes some 10 ms; a document with more counts as not understood."""

_MARK: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["\[\]{}]', re.DOTALL)
"""A quotation mark alone begins the string that does not end."""
_LOW: Final = rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_WHOLE: Final = re.compile(
    rb'(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|\\u[dD][89abAB][0-9a-fA-F]{2}'
    + _LOW
    + rb")*+"
)
"""Whole characters of a string's inside."""
_CLOSER: Final = {b"{": b"}", b"[": b"]"}
_SPACE: Final = b" \t\r\n"

Path = tuple[str | None, ...]
"""The keys that lead to a container or value, from the outermost on; None for an element of an array."""


class Cut(NamedTuple):
    """What was complete. `inside`: the path of the innermost container that the cut went through; None: no cut."""

    document: object
    inside: Path | None


class _Open(NamedTuple):
    bracket: bytes
    key: str | None


class _Scan:
    """Where the cut is: open containers, the last string before it, and where that which was looked at ends."""

    def __init__(self) -> None:
        self.open: list[_Open] = []
        self.string: tuple[int, int] | None = None
        """Begin and end of the string that was the last mark, if it was one."""
        self.end = 0

    def over(self, body: bytes) -> bool:
        """Look over the document; False for what is none, or too much."""
        for marks, mark in enumerate(_MARK.finditer(body)):
            text = mark[0]
            if marks >= MARKS_MAX or len(self.open) > DEPTH_MAX:
                return False
            if text == b'"':
                break
            if text[:1] == b'"':
                self.string = mark.span()
            else:
                if text in _CLOSER:
                    self.open.append(_Open(text, self.key(body)))
                elif not self.open or _CLOSER[self.open.pop().bracket] != text:
                    return False
                self.string = None
            self.end = mark.end()
        return bool(self.open)

    def key(self, body: bytes) -> str | None:
        """The key of the member whose value comes next; None in an array and at the outermost."""
        if not self.open or self.open[-1].bracket == b"[" or self.string is None:
            return None
        begin, end = self.string
        try:
            return msgspec.json.decode(body[begin:end], type=str)
        except msgspec.DecodeError:
            return ""

    def pending_key(self, body: bytes) -> int | None:
        """Where the key begins whose value comes next; None where the last mark was no key."""
        if self.string is None or self.open[-1].bracket == b"[":
            return None
        begin = self.string[0]
        return None if body[:begin].rstrip(_SPACE).endswith(b":") else begin


def complete_part(body: bytes, is_text: frozenset[Path]) -> Cut | None:
    """What is complete of a JSON object; None where that is nothing, or no JSON. `is_text`: paths of kept strings."""
    try:
        return Cut(msgspec.json.decode(body), None)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    scan = _Scan()
    if not scan.over(body):
        return None
    closers = b"".join(_CLOSER[each.bracket] for each in reversed(scan.open))
    try:
        document = msgspec.json.decode(_head(body, scan, is_text) + closers)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return Cut(document, tuple(each.key for each in scan.open[1:]))


def _head(body: bytes, scan: _Scan, is_text: frozenset[Path]) -> bytes:
    """The document up to the end of what is complete, without closing brackets."""
    quote = body.find(b'"', scan.end)
    run = body[scan.end : len(body) if quote < 0 else quote]  # of numbers, words, commas and colons
    begin = scan.pending_key(body)
    if quote >= 0 and (scan.open[-1].bracket == b"[" or (begin is not None and run.strip(_SPACE) == b":")):
        path = (*(each.key for each in scan.open[1:]), scan.key(body))
        if path in is_text:
            return body[: quote + 1] + _whole_characters(body, quote + 1) + b'"'
    if begin is None and scan.open[-1].bracket == b"{":
        end = scan.end
    else:
        comma = run.rfind(b",")
        end = scan.end + comma if comma >= 0 else scan.end if begin is None else begin
    return body[:end].rstrip(_SPACE).removesuffix(b",")


def _whole_characters(body: bytes, begin: int) -> bytes:
    """The inside of a string that does not end, as far as its characters are whole."""
    whole = _WHOLE.match(body, begin)
    inside = b"" if whole is None else whole[0]
    return codecs.getincrementaldecoder("utf-8")().decode(inside).encode()
