"""Query strings of paths with filters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.problems import RequestRefused
from api.rest.query_options import FIELDS_MAX, options_from_query
from indexer.errors import BadRequestError
from schemas.rest import RankFilter, SourceFilters


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (b"", SourceFilters()),
        (b"state=live&limit=10", SourceFilters(state="live", limit=10)),
        (b"model=meta%2Fllama+3&after=http%3A%2F%2Fa%230", SourceFilters(model="meta/llama 3", after="http://a#0")),
        (b"model=null", SourceFilters(model="null")),
        (b"model=5", SourceFilters(model="5")),
    ],
)
def test_reads_filters(query: bytes, expected: SourceFilters) -> None:
    """Text stays text, whatever it looks like."""
    assert expected == options_from_query(query, SourceFilters)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        (b"state=dead", "state.not_allowed"),
        (b"limit=-1", "limit.not_allowed"),
        (b"limit=1.0", "limit.wrong_type"),
        (b"limit=999999999999999999999999", "limit.wrong_type"),
        (b"after=", "after.not_allowed"),
        (b"models=m", "unknown_field"),
        (b"model=a&model=b", "model.repeated"),
    ],
)
def test_explains_what_it_refuses(query: bytes, code: str) -> None:
    """As for bodies."""
    with pytest.raises(BadRequestError) as caught:
        options_from_query(query, SourceFilters)

    assert code == caught.value.code


def test_has_a_limit() -> None:
    """On the number of parameters."""
    with pytest.raises(RequestRefused):
        options_from_query(b"&".join([b"a=1"] * (FIELDS_MAX + 1)), RankFilter)


@given(st.binary(max_size=30))
def test_takes_any_bytes(query: bytes) -> None:
    """An answer, an explanation or a 400."""
    try:
        rank = options_from_query(query, RankFilter).dp_rank
    except (BadRequestError, RequestRefused):
        rank = None

    assert rank is None or rank >= 0
