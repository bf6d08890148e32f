"""Reading a request's body: bounded in bytes, in time, and over all requests at once.

Promise: a body is complete or the caller gets 408, 413, 415, 429; nobody who is gone is answered. Bodies that arrive
whole in one message, as nearly all do, cost one comparison.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from starlette.types import Receive

from api.admission import LOCAL
from api.pending import Pending
from api.problems import RequestRefused
from api.rest.inflating import STEP_BYTES, Pieces, inflater
from api.rest.limits import RestLimits

INFLATION_MAX: Final = 100
FREE_BYTES: Final = 2**20
"""Beyond this size a body may become so many times as large by decompression. Gzip reaches a thousand, zstd more, token
ids in any form three to ten; whoever sends a few bytes must not make us do the work of many."""
STEP_COST: Final = 1_024
"""Of a step of decompression that gives nothing, in bytes of output: both take work."""
DROPPED_BYTES_MAX: Final = 64 * 2**20
"""Received and dropped of a body that is refused for its size."""
_SIZE_STATUSES: Final = frozenset({HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.TOO_MANY_REQUESTS})


class CallerGone(Exception):
    """The connection ended before the body did: there is nobody to answer."""


class BodyReader:
    """Reads bodies of all requests of one server; lives on one event loop."""

    def __init__(
        self, limits: RestLimits, reached: Callable[[str], None] = lambda _: None, pending: Pending | None = None
    ) -> None:
        self._limits = limits
        self._reached = reached
        self._pending = pending or Pending(limits.pending_bytes, reached)

    async def read(self, receive: Receive, headers: Mapping[bytes, bytes], caller: str = LOCAL) -> bytes:
        """The whole body as it was sent. Raises `RequestRefused` or `CallerGone`.

        `caller` is whose share of the bytes that are held it counts to. What is refused for its size is still received,
        up to a bound, and dropped: a caller that has not finished sending does not read the answer, and one whose
        connection closes meanwhile never sees it.
        """
        try:
            return await self._read(receive, headers, caller)
        except RequestRefused as refused:
            if refused.status in _SIZE_STATUSES and b"expect" not in headers:
                await self._drop(receive)
            raise

    async def _read(self, receive: Receive, headers: Mapping[bytes, bytes], caller: str) -> bytes:
        length = headers.get(b"content-length")
        if length is not None and length.isdigit() and int(length[:20]) > self._limits.body_bytes:
            raise self._too_large()
        try:
            async with asyncio.timeout(self._limits.body_wait_s):  # also of the first part: a head alone is a request
                message = await receive()
                if message["type"] != "http.request":
                    raise CallerGone
                body: bytes = message["body"]
                if message["more_body"]:
                    body = await self._rest(receive, body, caller)
        except TimeoutError:
            self._reached("limits.body_wait_s")
            raise RequestRefused(
                HTTPStatus.REQUEST_TIMEOUT,
                "body.timeout",
                f"the body was not complete within {self._limits.body_wait_s:g} s",
                headers=[(b"connection", b"close")],
            ) from None
        if not body and b"upgrade" in headers:
            raise _lost()  # the parser takes what follows such a head for another protocol
        return body

    def check(self, body: bytes) -> None:
        """Raise `RequestRefused` for a whole body that is too large."""
        if len(body) > self._limits.body_bytes:
            raise self._too_large()

    async def plain(self, body: bytes, headers: Mapping[bytes, bytes], caller: str = LOCAL) -> bytes:
        """What a whole body holds, decompressed where it has to be, in slices. Raises `RequestRefused`."""
        self.check(body)
        if not is_coded(headers):
            return body
        return await self._inflated(inflater(headers[b"content-encoding"])(body), len(body), caller)

    async def _inflated(self, pieces: Pieces, size: int, caller: str) -> bytes:
        inflated_max = max(FREE_BYTES, INFLATION_MAX * size)
        parts: list[bytes] = []
        total, slice_cost = 0, 0
        try:
            for piece in pieces:
                self._take(total, len(piece), caller)
                total += len(piece)
                parts.append(piece)
                if total > inflated_max:
                    raise _inflates()
                slice_cost += len(piece) + STEP_COST
                if slice_cost >= STEP_BYTES:
                    slice_cost = 0
                    await asyncio.sleep(0)
            return b"".join(parts)
        finally:
            self._release(total, caller)

    async def _rest(self, receive: Receive, first: bytes, caller: str) -> bytes:
        parts, size, more = [first], 0, True
        try:
            while more:
                self._take(size, len(parts[-1]), caller)
                size += len(parts[-1])
                message = await receive()
                if message["type"] != "http.request":
                    raise CallerGone
                parts.append(message["body"])
                more = message["more_body"]
            return b"".join(parts)
        finally:
            self._release(size, caller)

    async def _drop(self, receive: Receive) -> None:
        left = DROPPED_BYTES_MAX
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.body_wait_s):
                while left > 0:
                    message = await receive()
                    if message["type"] != "http.request" or not message["more_body"]:
                        return
                    left -= len(message["body"])

    def _take(self, before: int, amount: int, caller: str) -> None:
        """Count more of a body as held."""
        if before + amount > self._limits.body_bytes:
            raise self._too_large()
        if amount and not self._pending.take(caller, amount):
            raise RequestRefused(
                HTTPStatus.TOO_MANY_REQUESTS,
                "body.pending_bytes",
                "too many bytes of unfinished bodies are held at the moment",
                headers=[(b"retry-after", b"1")],
            )

    def _release(self, amount: int, caller: str) -> None:
        """It is held no more."""
        if amount:
            self._pending.give_back(caller, amount)

    def _too_large(self) -> RequestRefused:
        self._reached("limits.body_bytes")
        return RequestRefused(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "body.too_large",
            f"the body is larger than {self._limits.body_bytes} bytes (limits.body_bytes)",
        )


def _lost() -> RequestRefused:
    return RequestRefused(
        HTTPStatus.BAD_REQUEST, "body.lost", "a request that asks to upgrade loses its body: do not ask for it"
    )


def _inflates() -> RequestRefused:
    return RequestRefused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "body.inflates",
        f"the body is more than {FREE_BYTES} bytes and {INFLATION_MAX} times its size once decompressed",
    )


def is_coded(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the body has to be decompressed."""
    coding = headers.get(b"content-encoding")
    return coding is not None and coding.lower() != b"identity"
