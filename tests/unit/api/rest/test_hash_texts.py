"""Hashes in JSON: whichever way they are read, the question or the refusal is the same."""

import json
import struct
from array import array

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.problems import RequestRefused
from api.rest.hash_texts import HASHES_MIN, MARKER, hashes_taken_out
from api.rest.lookup_request import LookupRequests
from indexer.errors import BadRequestError
from schemas.lookup import LookupQuery
from schemas.rest import U64_MAX

U64S = st.lists(st.integers(0, U64_MAX), min_size=HASHES_MIN, max_size=40)
SEPARATORS = st.sampled_from([(",", ":"), (", ", ": "), (" ,", ":"), (",\n", ": ")])


def _body(hashes: list[str], separators: tuple[str, str] = (",", ":"), **more: object) -> bytes:
    members = {"model": "m", "block_hashes": hashes, "block_size": 16, **more}
    return json.dumps(members, separators=separators).encode()


def _told(body: bytes) -> LookupQuery | tuple[str, object]:
    try:
        return LookupRequests(1_000).parse("json", body, b"", {}).query
    except (BadRequestError, RequestRefused) as error:
        return error.code, [(issue.field, issue.rule, issue.got) for issue in error.issues]


def _told_one_by_one(body: bytes) -> LookupQuery | tuple[str, object]:
    """The same by the decoder alone: an escape in the key hides it from the quick way, and means the same."""
    hidden = body.replace(b'"block_hashes"', b'"block_\\u0068ashes"')
    assert hashes_taken_out(hidden) is None
    return _told(hidden)


@given(U64S, SEPARATORS)
def test_hashes_are_read_at_once(values: list[int], separators: tuple[str, str]) -> None:
    """As they are handed out, compact or as most libraries space them."""
    body = _body([f"{value:016x}" for value in values], separators)
    taken = hashes_taken_out(body)

    assert (taken is not None) == (separators[0] in {",", ", "})
    assert taken is None or array("Q", values) == taken[1]
    assert _told(body) == _told_one_by_one(body)
    assert LookupQuery(model="m", block_hashes=array("Q", values), block_size=16) == _told(body)


@given(
    U64S,
    st.sampled_from(
        ["1", "0x1", "g" * 16, "", '"', "12345678901234567", "123456789012345\u00e9", "0x12345678901234", "]"]
    ),
    st.integers(0, 40),
)
def test_one_that_is_written_otherwise(values: list[int], odd: str, at: int) -> None:
    """Is read, or refused by its place, as if the others had not been read at once."""
    texts = [f"{value:016x}" for value in values]
    texts[at % len(texts)] = odd
    body = _body(texts)

    assert _told(body) == _told_one_by_one(body)


@pytest.mark.parametrize(
    "more",
    [
        {"token_ids": [1]},
        {"block_size": 0},
        {"pods": ["a", "b"], "limit": 3},
        {"prompt_tokens": 1},
        {"unknown": 1},
        {"prompt": "text"},
        {"block_size": None},
    ],
)
def test_the_rest_is_judged_as_ever(more: dict[str, object]) -> None:
    """By the same rules, in the same words."""
    body = _body([f"{value:016x}" for value in range(20)], **more)

    assert _told(body) == _told_one_by_one(body)


def test_only_the_questions_own_hashes_count() -> None:
    """Not those of a key inside of another, nor the first of two."""
    hashes = json.dumps([f"{value:016x}" for value in range(20)])
    nested = f'{{"chat_template_kwargs":{{"block_hashes":{hashes}}},"block_hashes":[],"block_size":16}}'
    twice = f'{{"block_hashes":{hashes},"block_hashes":["000000000000000a"],"block_size":16}}'

    assert hashes_taken_out(nested.encode()) is not None
    assert "chat_template_kwargs.not_allowed" in _told(nested.encode())
    assert LookupQuery(block_hashes=array("Q", [10]), block_size=16) == _told(twice.encode())


def test_a_body_that_ends_too_soon_is_explained_where_it_ends() -> None:
    """By the whole body, not by what was left of it."""
    body = _body([f"{value:016x}" for value in range(20)])[:-1]

    assert _told(body) == _told_one_by_one(body)
    assert MARKER not in str(_told(body))


@given(st.lists(st.integers(0, U64_MAX), max_size=40))
def test_packed_hashes_mean_the_same(values: list[int]) -> None:
    """One bin of little-endian u64 in MessagePack."""
    members = {"model": "m", "block_size": 16}
    packed = msgspec.msgpack.encode({**members, "block_hashes": struct.pack(f"<{len(values)}Q", *values)})
    listed = msgspec.msgpack.encode({**members, "block_hashes": values})
    requests = LookupRequests(1_000)

    assert requests.parse("msgpack", listed, b"", {}) == requests.parse("msgpack", packed, b"", {})


def test_packed_hashes_are_whole() -> None:
    """Eight bytes each."""
    body = msgspec.msgpack.encode({"block_size": 16, "block_hashes": b"123456789"})
    with pytest.raises(BadRequestError) as caught:
        LookupRequests(1_000).parse("msgpack", body, b"", {})

    assert "block_hashes.bad_length" == caught.value.code
