"""Known heads: kept byte for byte but for the body's length, within bounds, and never one that carries more."""

import pytest

from api.rest.heads import HEAD_BYTES_MAX, HEADS_MAX, KnownHeads, Reply

PLAIN = {b"host": b"x", b"content-type": b"application/json"}


def _answer(_query: bytes, _headers: object, _body: bytes) -> Reply:
    return 200, [], b""


def _text(name: bytes = b"content-length", length: bytes = b"7", *, path: bytes = b"/v1/lookup") -> bytes:
    return b"POST %b HTTP/1.1\r\nhost: x\r\n%b: %b\r\ncontent-type: application/json\r\n\r\n" % (path, name, length)


def _heads(text: bytes = _text(), headers: dict[bytes, bytes] = PLAIN, length: bytes = b"7") -> KnownHeads:
    heads = KnownHeads()
    heads.learn(text, _answer, b"limit=1", {**headers, b"content-length": length})
    return heads


def test_what_was_learnt_comes_back() -> None:
    """Under the same bytes with any length, and no others."""
    heads = _heads()

    assert ((_answer, b"limit=1", PLAIN), 7) == heads.find(_text())
    assert ((_answer, b"limit=1", PLAIN), 123_456) == heads.find(_text(length=b"123456"))
    assert heads.find(_text(b"Content-Length")) is None
    assert heads.find(_text(path=b"/v1/Lookup")) is None


@pytest.mark.parametrize("length", [b"", b"-1", b"+7", b"07", b"7 ", b" 7", b"7,7", b"0x7", b"1" * 10, b"7\r\n 7"])
def test_a_length_is_digits_alone(length: bytes) -> None:
    """Anything else is the parser's to judge."""
    assert _heads().find(_text(length=length)) is None


def test_a_second_length_is_not_passed_over() -> None:
    """Neither one in the place of the first, nor behind it."""
    twice = _text().replace(b"host: x", b"content-length: 9")

    assert _heads().find(twice) is None
    assert _heads().find(_text() + b"content-length: 9\r\n") is None


@pytest.mark.parametrize(
    "name",
    [
        *("x-kvindexer-cache-salt", "authorization", "cookie", "x-request-id", "traceparent"),
        *("transfer-encoding", "content-encoding", "expect", "upgrade", "x-anything"),
    ],
)
def test_secrets_and_what_changes_are_not_kept(name: str) -> None:
    """Nor what makes the body more than the bytes behind the head."""
    assert _heads(headers={**PLAIN, name.encode(): b"1"}).find(_text()) is None


CUT = {"Authorization": "Bearer kvi-1", "x-request-id": "r:1/2=", "traceparent": "00-0af7-b7ad-01"}


def _with(more: dict[str, str]) -> tuple[bytes, dict[bytes, bytes]]:
    lines = "".join(f"{name}: {value}\r\n" for name, value in more.items())
    headers = {name.lower().encode(): value.encode() for name, value in more.items()}
    return _text().replace(b"content-length", lines.encode() + b"content-length"), {**PLAIN, **headers}


def test_tokens_and_ids_are_each_requests_own() -> None:
    """They are cut out of what is kept, and read again from each head."""
    heads = _heads(*_with(CUT))
    text, headers = _with({"Authorization": "Bearer another", "x-request-id": "2", "traceparent": "00-0-0-00"})

    assert "kvi-1" not in repr(vars(heads))
    assert ((_answer, b"limit=1", headers), 7) == heads.find(text)
    assert heads.find(_text()) is None


@pytest.mark.parametrize("name", sorted(CUT))
@pytest.mark.parametrize("value", ["a b c", "", "\u00e9", "a\t", "\0", "a\r\n b", "Bearer "])
def test_odd_values_are_left_to_the_parser(name: str, value: str) -> None:
    """Neither kept nor read beside it."""
    text, headers = _with({**CUT, name: value})

    assert _heads(text, headers).find(text) is None
    assert _heads(*_with(CUT)).find(text) is None


def test_two_of_them_are_left_to_the_parser() -> None:
    """Which counts is not decided here; nor does an empty one hide another."""
    text, _ = _with(CUT)

    for shown in (b"authorization: Bearer 2", b"Authorization: ", b"content-length: "):
        assert _heads(*_with(CUT)).find(text.replace(b"host: x", shown)) is None


def test_a_head_without_a_length_is_not_kept() -> None:
    """Its body ends elsewhere. Nor one whose length the parser read differently."""
    heads = KnownHeads()
    heads.learn(_text(), _answer, b"", PLAIN)

    assert heads.find(_text()) is None
    assert _heads(length=b"8").find(_text()) is None


def test_memory_is_bounded() -> None:
    """In number and in length; when full all are forgotten."""
    long = _text(path=b"/" + b"x" * HEAD_BYTES_MAX)
    heads = _heads(long)
    assert heads.find(long) is None

    for number in range(HEADS_MAX + 1):
        heads.learn(_text(path=b"/%d" % number), _answer, b"", {**PLAIN, b"content-length": b"7"})
    assert heads.find(_text(path=b"/0")) is None
    assert heads.find(_text(path=b"/%d" % HEADS_MAX)) is not None


SHOWN = b"Bearer secret-token"


def _shown(value: bytes = SHOWN, name: bytes = b"authorization") -> bytes:
    return _text().replace(b"host: x\r\n", b"host: x\r\n%b: %b\r\n" % (name, value))


def test_a_token_is_cut_out_and_handed_on_as_it_comes() -> None:
    """One head for all tokens, none of which is kept; without one it is another head."""
    heads = _heads(_shown(), {**PLAIN, b"authorization": SHOWN})

    for shown in (SHOWN, b"Bearer other", b"Basic x"):
        found = heads.find(_shown(shown))
        assert found is not None
        assert {**PLAIN, b"authorization": shown} == found[0].headers
    assert heads.find(_text()) is None
    assert b"secret" not in repr(heads.__dict__).encode()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"Bearer",
        b"Bearer  x",
        b"Bearer x ",
        b"Bearer\tx",
        b"Bearer x\r\n y",
        b"Bearer \xff",
        b"Bearer x, Bearer y",
    ],
)
def test_a_token_that_is_written_otherwise_is_the_parsers_to_judge(value: bytes) -> None:
    """Nothing of it is kept, and where nothing was shown nothing is handed on."""
    heads = _heads(_shown(), {**PLAIN, b"authorization": SHOWN})
    found = heads.find(_shown(value))

    assert found is None or b"authorization" not in found[0].headers
    heads = _heads(_shown(value), {**PLAIN, b"authorization": value.strip()})
    assert heads.find(_text()) is None
    assert b"Bearer" not in repr(heads.__dict__).encode()


def test_a_second_token_is_not_passed_over() -> None:
    """Whichever the parser would take."""
    heads = _heads(_shown(), {**PLAIN, b"authorization": SHOWN})

    assert heads.find(_shown().replace(b"host: x\r\n", b"host: x\r\nauthorization: Bearer b\r\n")) is None
    assert heads.find(_shown(name=b"Authorization")) is None
