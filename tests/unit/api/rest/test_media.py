"""Which form a body has, and in which encoding the answer leaves."""

import pytest

from api.problems import RequestRefused
from api.rest.media import answer_encoding, body_form


@pytest.mark.parametrize(
    ("content_type", "form"),
    [
        (None, "json"),
        (b"application/json", "json"),
        (b"Application/JSON; charset=UTF-8", "json"),
        (b'application/json;charset="utf-8"', "json"),
        (b"application/json; q=1", "json"),
        (b"application/msgpack", "msgpack"),
        (b"application/x-msgpack", "msgpack"),
        (b"application/octet-stream", "ids"),
    ],
)
def test_knows_three_forms(content_type: bytes | None, form: str) -> None:
    """Parameters and letter case do not matter, other character sets do."""
    assert form == body_form(content_type, ids_allowed=True)


@pytest.mark.parametrize(
    "content_type",
    [b"", b"text/plain", b"application/x-www-form-urlencoded", b"application/json; charset=latin-1", b"\xff", b"json"],
)
def test_refuses_other_forms(content_type: bytes) -> None:
    """415 says what is taken."""
    with pytest.raises(RequestRefused) as caught:
        body_form(content_type, ids_allowed=True)

    assert (415, "content_type.unsupported") == (caught.value.status, caught.value.code)
    assert b"application/octet-stream" in dict(caught.value.headers)[b"accept-post"]


def test_token_bytes_are_no_registration() -> None:
    """Only a prompt comes as bare bytes."""
    with pytest.raises(RequestRefused) as caught:
        body_form(b"application/octet-stream", ids_allowed=False)

    assert b"octet-stream" not in dict(caught.value.headers)[b"accept-post"]


@pytest.mark.parametrize(
    ("accept", "form", "encoding"),
    [
        (None, "json", "json"),
        (None, "msgpack", "msgpack"),
        (None, "ids", "json"),
        (b"*/*", "msgpack", "msgpack"),
        (b"application/msgpack", "json", "msgpack"),
        (b"application/json", "msgpack", "json"),
        (b"text/html, application/msgpack;q=0.5, application/json;q=0.4", "json", "msgpack"),
        (b"application/msgpack;q=0, */*", "json", "json"),
        (b"application/msgpack;q=x", "json", "json"),
        (b"text/html", "json", "json"),
        (b"application/json, application/msgpack", "msgpack", "json"),
    ],
)
def test_answers_as_liked_best(accept: bytes | None, form: str, encoding: str) -> None:
    """`Accept` decides; without one that names ours, the answer comes as the question did."""
    assert encoding == answer_encoding(accept, form)  # type: ignore[arg-type]
