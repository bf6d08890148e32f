"""Long prompts of which the beginning is known: the same question, and the same refusals, as without."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.rest import plain_json
from api.rest.lookup_request import LookupRequests
from api.rest.plain_json import PlainJson
from indexer.errors import IndexerError
from indexer.hashing.memo import CHUNK_TOKENS
from indexer.hashing.texts import TextMemo
from indexer.lookup import whole_image
from schemas.lookup import LookupQuery

TOKENS_MAX = 6_000
STEMS = [[draw.randrange(150_000) for _ in range(5_500)] for draw in (random.Random(1), random.Random(2))]
HEADS = ('{"token_ids":[', '{"model":"m","token_ids": [', '{"pods":["a"],"token_ids":[', '{"x":1,"token_ids":[')
TAILS = (
    "]}",
    '],"limit":2}',
    '],"model":"n"}',
    ",]}",
    '],"token_ids":[1]}',
    "]",
    '],"pods":["[1"]}',
    ",1.5]}",
    ",-1]}",
)
ODD = ("", ",", "1.5,", "-1,", "[2],", '"3",', "4294967296,", "null,", " ", "007,")


def body_of(stem: int, count: int, head: str, tail: str, odd: tuple[int, str] | None) -> bytes:
    """A prompt with something odd before one of its numbers."""
    numbers = [f"{each}," for each in STEMS[stem][:count]]
    if odd is not None and numbers:
        numbers.insert(odd[0] % len(numbers), odd[1])
    return (head + "".join(numbers)[:-1] + tail).encode()


_BODIES = st.builds(
    body_of,
    st.integers(0, 1),
    st.sampled_from([0, 1, 700, 1_500, 3_000, 3_001, 5_000, 5_500]),
    st.sampled_from(HEADS),
    st.sampled_from(TAILS),
    st.one_of(st.none(), st.tuples(st.integers(0, 5_500), st.sampled_from(ODD))),
)
PLAIN = PlainJson(TOKENS_MAX, TextMemo(4))
"""One for all examples: what one taught the next ones meet."""


def strict(body: bytes) -> LookupQuery | None:
    """The question as the strict decoder has it."""
    try:
        return LookupRequests(TOKENS_MAX).parse_strictly("json", body, b"", {}).query
    except IndexerError:
        return None


@given(_BODIES)
def test_known_beginnings_make_no_difference(body: bytes) -> None:
    """To what is asked, nor to what is left for the strict way to refuse."""
    query = PLAIN.read(body)
    if query is None:
        return
    expected = strict(body)
    tokens = whole_image(query)
    query.tokens, query.start, query.whole = tokens, (), None

    assert expected == query


def test_only_the_rest_is_parsed() -> None:
    """Of a prompt told before."""
    plain = PlainJson(TOKENS_MAX, TextMemo(4))
    body = body_of(0, 5_000, HEADS[1], TAILS[0], None)
    first, again = plain.read(body), plain.read(body)
    assert first is not None
    assert again is not None

    assert () == first.start
    assert (len(first.tokens or b"") // 4 - CHUNK_TOKENS * len(again.start)) * 4 == len(again.tokens or b"")
    assert 7 < len(again.start)


@pytest.mark.parametrize("more", [0, 1])
def test_the_limit_counts_the_known_beginning(more: int) -> None:
    """As many tokens as are allowed, and one more."""
    plain = PlainJson(5_000, TextMemo(4))
    for count in (4_900, 5_000 + more):
        query = plain.read(body_of(0, count, HEADS[0], TAILS[0], None))
    assert (query is None) == bool(more)


def test_a_body_too_large_for_the_parser_goes_the_strict_way_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its beginning is known and the rest alone would fit: somebody may want all its tokens."""
    monkeypatch.setattr(plain_json, "BODY_MAX", 33_000)
    plain = PlainJson(TOKENS_MAX, TextMemo(4))
    known, longer = (body_of(0, count, HEADS[0], TAILS[0], None) for count in (5_000, 5_500))
    assert len(known) < 33_000 < len(longer)

    assert plain.read(known) is not None
    assert plain.read(longer) is None
