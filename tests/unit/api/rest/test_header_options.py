"""Salt and deadlines in headers."""

import pytest

from api.rest.header_options import add_header_options
from indexer.errors import BadRequestError
from schemas.lookup import LookupQuery


@pytest.mark.parametrize(
    ("in_body", "headers", "expected"),
    [
        (None, {}, None),
        (50, {}, 50),
        (50, {b"x-kvindexer-timeout-ms": b"40"}, 40),
        (50, {b"x-kvindexer-timeout-ms": b"60", b"x-envoy-expected-rq-timeout-ms": b"30"}, 30),
        (None, {b"x-envoy-expected-rq-timeout-ms": b"0"}, None),
        (None, {b"x-kvindexer-timeout-ms": b"0"}, 0),
    ],
)
def test_the_smallest_deadline_holds(in_body: int | None, headers: dict[bytes, bytes], expected: int | None) -> None:
    """Envoy's 0 means that there is none; ours means at once."""
    query = LookupQuery(timeout_ms=in_body)
    add_header_options(query, headers)

    assert expected == query.timeout_ms


@pytest.mark.parametrize("text", [b"", b"x", b"-1", b"1.5", b"9" * 5_000])
def test_a_deadline_that_is_no_number_is_refused(text: bytes) -> None:
    """Rather than waited for."""
    with pytest.raises(BadRequestError) as caught:
        add_header_options(LookupQuery(), {b"x-kvindexer-timeout-ms": text})

    assert "timeout_ms.not_allowed" == caught.value.code


@pytest.mark.parametrize("in_body", [None, "é"])
def test_the_salt_may_be_a_header(in_body: str | None) -> None:
    """For bare token bytes, which have no other place for it."""
    query = LookupQuery(cache_salt=in_body)
    add_header_options(query, {b"x-kvindexer-cache-salt": "é".encode()})

    assert "é" == query.cache_salt


def test_two_salts_are_refused_unseen() -> None:
    """Whichever counted, somebody might be shown another's blocks."""
    with pytest.raises(BadRequestError) as caught:
        add_header_options(LookupQuery(cache_salt="pepper"), {b"x-kvindexer-cache-salt": b"saffron"})

    assert "cache_salt.not_allowed" == caught.value.code
    assert not [salt for salt in ("pepper", "saffron") if salt in f"{caught.value}{caught.value.issues}"]


@pytest.mark.parametrize("salt", [b"", b"\xff", b"x" * 600])
def test_an_unusable_salt_is_refused_unseen(salt: bytes) -> None:
    """It is a secret: the error shows nothing of it."""
    with pytest.raises(BadRequestError) as caught:
        add_header_options(LookupQuery(), {b"x-kvindexer-cache-salt": salt})

    assert (None, "cache_salt.not_allowed") == (caught.value.issues[0].got, caught.value.code)
