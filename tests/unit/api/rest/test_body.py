"""Bodies: whole or in parts, within their limits, or refused."""

import asyncio
import gzip
import random
from collections.abc import Iterable

import pytest
import zstandard

from api.problems import RequestRefused
from api.rest.body import FREE_BYTES, INFLATION_MAX, BodyReader, CallerGone
from api.rest.limits import RestLimits

LIMIT = 1_000
_GONE = {"type": "http.disconnect"}


def _part(body: bytes, *, more: bool) -> dict[str, object]:
    return {"type": "http.request", "body": body, "more_body": more}


def _read(messages: Iterable[dict[str, object]], length: int | None = None, **limits: float) -> bytes:
    """What a reader makes of these messages, after which nothing comes any more."""
    rest = iter(messages)

    async def receive() -> dict[str, object]:
        for message in rest:
            return message
        return await asyncio.Future()

    headers = {} if length is None else {b"content-length": b"%d" % length}
    reader = BodyReader(RestLimits(body_bytes=LIMIT, **limits))  # type: ignore[arg-type]
    try:
        return asyncio.run(reader.read(receive, headers))
    finally:
        assert reader._pending.total == 0


@pytest.mark.parametrize("cuts", [[b"abc"], [b"a", b"bc"], [b"", b"a", b"b", b"c"], [b"abc", b""]])
def test_puts_parts_together(cuts: list[bytes]) -> None:
    """However it was cut."""
    assert b"abc" == _read(_part(cut, more=i < len(cuts) - 1) for i, cut in enumerate(cuts))


@pytest.mark.parametrize("messages", [[_GONE], [_part(b"a", more=True), _GONE]])
def test_nobody_is_left_to_answer(messages: list[dict[str, object]]) -> None:
    """A connection that ends before its body."""
    with pytest.raises(CallerGone):
        _read(messages)


def _refused(messages: list[dict[str, object]], length: int | None = None, **limits: float) -> tuple[int, str]:
    with pytest.raises(RequestRefused) as caught:
        _read(messages, length, **limits)
    return caught.value.status.value, caught.value.code


_REST = [_part(b"x" * 600, more=True)] * 3 + [_part(b"", more=False)]


@pytest.mark.parametrize("length", [None, LIMIT + 1, 10**30])
def test_a_body_beyond_the_limit_is_refused(length: int | None) -> None:
    """Its length was told, or it grows; its rest is received and dropped, so that the caller reads the answer."""
    rest = list(_REST)

    assert (413, "body.too_large") == _refused(rest, length)


def test_all_bodies_together_have_a_limit() -> None:
    """Of what is held unfinished; the caller may try again."""
    assert (429, "body.pending_bytes") == _refused(_REST, pending_bytes=500)


@pytest.mark.parametrize("end", [[], [_GONE]])
def test_a_refused_body_is_not_waited_for_for_ever(end: list[dict[str, object]]) -> None:
    """It may stop coming, or its caller go."""
    assert (413, "body.too_large") == _refused([*_REST[:2], *end], body_wait_s=0.01)


def test_a_caller_that_asks_first_is_answered_at_once() -> None:
    """`Expect: 100-continue`: nothing is received."""

    async def receive() -> dict[str, object]:
        raise AssertionError

    headers = {b"content-length": b"%d" % (LIMIT + 1), b"expect": b"100-continue"}
    with pytest.raises(RequestRefused):
        asyncio.run(BodyReader(RestLimits(body_bytes=LIMIT)).read(receive, headers))


def test_a_body_lost_to_an_upgrade_is_missed() -> None:
    """Rather than taken for an empty one."""

    async def receive() -> dict[str, object]:
        return _part(b"", more=False)

    with pytest.raises(RequestRefused) as caught:
        asyncio.run(BodyReader(RestLimits()).read(receive, {b"upgrade": b"h2c"}))

    assert "body.lost" == caught.value.code


def test_a_body_that_stops_coming_is_given_up() -> None:
    """Its parts are given back."""
    assert (408, "body.timeout") == _refused([_part(b"x", more=True)], body_wait_s=0.01)


def _packed(content: bytes) -> bytes:
    """Without the time of day, which would give a test another name in each process."""
    return gzip.compress(content, mtime=0)


def _plain(body: bytes, headers: dict[bytes, bytes], limits: RestLimits) -> bytes:
    reader = BodyReader(limits)
    try:
        return asyncio.run(reader.plain(body, headers))
    finally:
        assert reader._pending.total == 0


def _checked(body: bytes, coding: bytes | None = None) -> bytes:
    headers = {} if coding is None else {b"content-encoding": coding}
    return _plain(body, headers, RestLimits(body_bytes=LIMIT))


def _zstd(content: bytes, window_log: int = 0) -> bytes:
    """As a stream, which does not tell its length at the beginning."""
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=window_log)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return stream.compress(content) + stream.flush()


@pytest.mark.parametrize("coding", [b"gzip", b"GZIP", b"x-gzip", b"zstd", b"Zstd"])
def test_decompresses(coding: bytes) -> None:
    """gzip and zstd, and nothing else."""
    packed = _packed(b"abc") if b"gzip" in coding.lower() else _zstd(b"abc")

    assert b"abc" == _checked(packed, coding)


def test_a_large_body_gives_the_loop_back() -> None:
    """While it is decompressed others have their turn."""
    content = random.Random(1).randbytes(2**21)
    turns = 0

    async def counted(packed: bytes, coding: bytes) -> None:
        nonlocal turns
        loop = asyncio.get_running_loop()

        def count() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(count)

        loop.call_soon(count)
        assert content == await BodyReader(RestLimits()).plain(packed, {b"content-encoding": coding})

    for packed, coding in ((_packed(content), b"gzip"), (_zstd(content), b"zstd")):
        turns = 0
        asyncio.run(counted(packed, coding))
        assert turns >= 8, coding


def test_what_is_decompressed_counts_as_held() -> None:
    """Many at once cannot hold more than bodies may; the caller tries again."""
    with pytest.raises(RequestRefused) as caught:
        _plain(_zstd(bytes(2**20)), {b"content-encoding": b"zstd"}, RestLimits(pending_bytes=1_000))

    assert "body.pending_bytes" == caught.value.code


@pytest.mark.parametrize("coding", [None, b"identity"])
def test_plain_bodies_pass(coding: bytes | None) -> None:
    """Up to the limit."""
    assert b"x" * LIMIT == _checked(b"x" * LIMIT, coding)


@pytest.mark.parametrize(
    ("body", "coding", "status", "code"),
    [
        (b"x" * (LIMIT + 1), None, 413, "body.too_large"),
        (_packed(b"x" * (LIMIT + 1)), b"gzip", 413, "body.too_large"),
        (_packed(bytes(50 * 2**20))[:LIMIT], b"gzip", 413, "body.too_large"),
        (b"abc", b"gzip", 400, "body.not_gzip"),
        (_packed(b"abc")[:-1], b"gzip", 400, "body.not_gzip"),
        (_packed(b"abc") + b"x", b"gzip", 400, "body.not_gzip"),
        (b"", b"gzip", 400, "body.not_gzip"),
        (_zstd(b"x" * (LIMIT + 1)), b"zstd", 413, "body.too_large"),
        (b"abc", b"zstd", 400, "body.not_zstd"),
        (_zstd(b"abc")[:-1], b"zstd", 400, "body.not_zstd"),
        (_zstd(b"abc") + b"x", b"zstd", 400, "body.not_zstd"),
        (_zstd(b"abc") * 2, b"zstd", 400, "body.not_zstd"),
        (_packed(b"abc") * 2, b"gzip", 400, "body.not_gzip"),
        (_zstd(b"abc", window_log=24), b"zstd", 400, "body.not_zstd"),
        (b"", b"zstd", 400, "body.not_zstd"),
        (b"abc", b"br", 415, "content_encoding.unsupported"),
        (b"abc", b"gzip, gzip", 415, "content_encoding.unsupported"),
    ],
)
def test_refuses_what_is_too_large_or_not_readable(body: bytes, coding: bytes | None, status: int, code: str) -> None:
    """The limit holds for what comes out, too: a bomb is cut off."""
    with pytest.raises(RequestRefused) as caught:
        _checked(body, coding)

    assert (status, code) == (caught.value.status, caught.value.code)


@pytest.mark.parametrize(
    ("coding", "bomb"),
    [
        (b"gzip", _packed(bytes(FREE_BYTES + 1))),
        (b"zstd", _zstd(bytes(FREE_BYTES + 1))),
        (b"zstd", _zstd(bytes(2**27))),
    ],
)
def test_a_body_that_inflates_beyond_measure_is_refused(coding: bytes, bomb: bytes) -> None:
    """A thousandfold, though within the limit: few bytes must not cost much work. The rule is told."""
    with pytest.raises(RequestRefused) as caught:
        _plain(bomb, {b"content-encoding": coding}, RestLimits())

    assert (413, "body.inflates") == (caught.value.status, caught.value.code)
    assert f"{INFLATION_MAX} times" in str(caught.value)


@pytest.mark.parametrize("content", [bytes(FREE_BYTES), random.Random(1).randbytes(FREE_BYTES // 32) * 64])
@pytest.mark.parametrize("coding", [b"gzip", b"zstd"])
def test_small_bodies_and_usual_rates_are_decompressed(content: bytes, coding: bytes) -> None:
    """Up to 1 MiB at any rate, more at less than a hundredfold."""
    packed = _packed(content) if coding == b"gzip" else _zstd(content)
    assert content == _plain(packed, {b"content-encoding": coding}, RestLimits())
