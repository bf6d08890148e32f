"""Documents cut off anywhere: what is read is a beginning of what would have been read."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.pick.cut_json import DEPTH_MAX, MARKS_MAX, Cut, complete_part

TEXTS = frozenset({("t",), ("l", None)})
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
_DOCUMENTS = st.fixed_dictionaries(
    {}, optional={"t": st.text(), "l": st.lists(st.text()), "n": st.text(), "x": _VALUES}
)


def _begins(part: Any, whole: Any, path: tuple[str | None, ...] = ()) -> bool:  # noqa: ANN401 - whatever JSON can say
    """Whether `part` is `whole` as far as it goes. Only texts may end before their end."""
    if isinstance(whole, dict) and isinstance(part, dict):
        return all(key in whole and _begins(value, whole[key], (*path, key)) for key, value in part.items())
    if isinstance(whole, list) and isinstance(part, list):
        pairs = zip(part, whole, strict=False)
        return len(part) <= len(whole) and all(_begins(a, b, (*path, None)) for a, b in pairs)
    if path in TEXTS and isinstance(whole, str) and isinstance(part, str):
        return whole.startswith(part)
    return type(part) is type(whole) and part == whole


@given(document=_DOCUMENTS, ascii_only=st.booleans(), indent=st.none() | st.integers(0, 2))
def test_what_is_read_of_every_cut_is_a_beginning(
    document: dict[str, Any], ascii_only: bool, indent: int | None
) -> None:
    """Never an exception; never less of a shorter body than of a longer one."""
    body = json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode()
    before: object = {}
    for end in range(1, len(body) + 1):
        cut = complete_part(body[:end], TEXTS)
        assert cut is not None, body[:end]
        assert _begins(cut.document, document), (body[:end], cut)
        assert _begins(before, cut.document), (body[:end], before, cut)
        before = cut.document

    assert Cut(msgspec.json.decode(body), None) == complete_part(body, TEXTS)


@given(body=st.binary(max_size=60) | st.text(alphabet='{}[]",:\\u0123ad \n', max_size=60).map(str.encode))
def test_anything_may_be_sent(body: bytes) -> None:
    """It is read or it is not."""
    complete_part(body, TEXTS)


@pytest.mark.parametrize(
    ("body", "document", "inside"),
    [
        (b'{"t": "ab', {"t": "ab"}, ()),
        (b'{"t": "ab\\', {"t": "ab"}, ()),
        (b'{"t": "ab\\u00e', {"t": "ab"}, ()),
        (b'{"t": "ab\\ud83d', {"t": "ab"}, ()),
        (b'{"t": "ab\\ud83d\\ude00', {"t": "ab\U0001f600"}, ()),
        ('{"t": "abé'.encode()[:-1], {"t": "ab"}, ()),
        (b'{"t": "a", "t', {"t": "a"}, ()),
        (b'{"n": "ab', {}, ()),
        (b'{"x": 12', {}, ()),
        (b'{"x": 12,', {"x": 12}, ()),
        (b'{"x": [1, 23', {"x": [1]}, ("x",)),
        (b'{"l": ["a", "b', {"l": ["a", "b"]}, ("l",)),
        (b'{"x": {"t": "b', {"x": {}}, ("x",)),
        (b'{"x": [[1], [2, ', {"x": [[1], [2]]}, ("x", None)),
        (b'{"x": tru', {}, ()),
    ],
)
def test_what_the_cut_went_through(body: bytes, document: object, inside: tuple[str | None, ...]) -> None:
    """Names and numbers are dropped, texts and containers kept."""
    assert Cut(document, inside) == complete_part(body, TEXTS)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        b'"a',
        b"{]",
        b'{"a" 1, "b',
        b'{"t": "\xff',
        b"[" * (DEPTH_MAX + 2),
        b"[" + b'"",' * (MARKS_MAX + 2),
    ],
)
def test_what_is_no_document_is_not_read(body: bytes) -> None:
    """Nor what is nested too deeply, or of too many parts."""
    assert complete_part(body, TEXTS) is None
