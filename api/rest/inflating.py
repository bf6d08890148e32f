"""Compressed bodies, undone in small steps: each gives a bounded piece, so that the reader may stop at any time. Pure.

One gzip member, or one zstd frame whose window is at most `WINDOW_MAX` (RFC 9659: what every receiver has to bear, and
no sender may exceed). Several behind each other are refused: no HTTP client sends such, and each would be work anew.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Final

import zstandard

from api.problems import RequestRefused

GZIP_WINDOW: Final = 31
"""zlib's `wbits` for a gzip wrapper with the largest window."""
WINDOW_MAX: Final = 8 * 2**20

STEP_BYTES: Final = 256 * 2**10
"""Of output in one step of gzip: less than a millisecond."""
GZIP_INPUT: Final = 64 * 2**10
ZSTD_INPUT: Final = 256
"""Of input in one step. A block of four bytes may stand for 128 KiB, and zstd gives all that a step's input holds."""

Pieces = Iterator[bytes]


def inflater(coding: bytes) -> Callable[[bytes], Pieces]:
    """What undoes that `Content-Encoding`. Raises `RequestRefused` 415.

    Its pieces may be empty; it raises `RequestRefused` 400 where the body is not what it says it is.
    """
    inflate = _INFLATERS.get(coding.strip().lower())
    if inflate is None:
        raise RequestRefused(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "content_encoding.unsupported",
            "bodies come plain or with Content-Encoding: gzip or zstd",
            headers=[(b"accept-encoding", b"gzip, zstd, identity")],
        )
    return inflate


def _gunzip(body: bytes) -> Pieces:
    stream, at = zlib.decompressobj(GZIP_WINDOW), 0
    try:
        for at in range(0, len(body), GZIP_INPUT):
            rest = body[at : at + GZIP_INPUT]
            while rest and not stream.eof:
                yield stream.decompress(rest, STEP_BYTES)
                rest = stream.unconsumed_tail
            if stream.eof:
                break
    except zlib.error:
        raise _not("gzip") from None
    if not stream.eof or stream.unused_data or at + GZIP_INPUT < len(body):
        raise _not("gzip")


def _unzstd(body: bytes) -> Pieces:
    stream, at = zstandard.ZstdDecompressor(max_window_size=WINDOW_MAX).decompressobj(), 0
    try:
        for at in range(0, len(body), ZSTD_INPUT):
            yield stream.decompress(body[at : at + ZSTD_INPUT])
            if stream.eof:
                break
    except zstandard.ZstdError:
        raise _not("zstd") from None
    if not stream.eof or stream.unused_data or at + ZSTD_INPUT < len(body):
        raise _not("zstd")


_INFLATERS: Final[dict[bytes, Callable[[bytes], Pieces]]] = {b"gzip": _gunzip, b"x-gzip": _gunzip, b"zstd": _unzstd}


def _not(coding: str) -> RequestRefused:
    return RequestRefused(
        HTTPStatus.BAD_REQUEST, f"body.not_{coding}", f"the body is not one complete {_WANTED[coding]}"
    )


_WANTED: Final = {"gzip": "gzip member", "zstd": f"zstd frame, with a window of at most {WINDOW_MAX} bytes"}
