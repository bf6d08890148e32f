"""What the methods have in common: who calls, how long it waits, how it is refused. One instance a server."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import unquote

from api.access.caller import ANYONE, require, sharer_of_token
from api.admission import LOCAL, peer_of
from api.problems import RequestRefused, count_denial, refusal_of
from api.rest.readying import overload
from api.rpc.statuses import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from api.access.access import Access
    from api.access.caller import Caller, Scope
    from api.admission import Shares
    from api.rest.request_ids import RequestIds
    from api.rpc.statuses import Context

ANSWER_MS: Final = 10
"""Of a deadline, kept for the way back."""
TRUSTED: Final = 0.99
"""Of the time that is left: gRPC writes a deadline in three digits, rounded up, so the caller's own clock is ahead."""


class Calls:
    """Lets callers in, and counts them while they are."""

    def __init__(self, access: Access, request_ids: RequestIds, denied: Callable[[int, str], None]) -> None:
        self._access = access
        self._denied = denied
        self.request_ids = request_ids
        self._under_way = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    def caller(self, context: Context, scope: Scope) -> Caller:
        """Who calls. Raises `RequestRefused` 401 and 403."""
        if not self._access.controlled:
            return ANYONE
        caller = self._access.caller(_authorization(context))
        require(caller, scope)
        return caller

    def sharer(self, context: Context) -> str:
        """To whose share of a limit a call counts, as in REST: its token's, else its address's."""
        authorization = _authorization(context) if self._access.controlled else None
        if authorization is not None:
            with contextlib.suppress(RequestRefused):  # of methods that ask for no token
                return sharer_of_token(self._access.caller(authorization))
        return _address_of(context)

    @contextlib.contextmanager
    def place(self, of: Shares, context: Context, code: str, what: str) -> Iterator[None]:
        """A caller's place while this lasts. Raises `RequestRefused` 429 where none is left for it."""
        with place(of, self.sharer(context), code, what):
            yield

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """A call is under way: the server's end waits for it."""
        self._under_way += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._quiet.set()

    async def quiet(self) -> None:
        """Return when no call is under way."""
        await self._quiet.wait()

    async def refuse(self, context: Context, error: Exception) -> None:
        """End the call with what that error means."""
        refusal = refusal_of(error)
        self.count_denial(refusal)
        await refuse(context, refusal, self.request_ids.of(None))

    def count_denial(self, refusal: RequestRefused) -> None:
        """Of a call, or of one of its questions."""
        count_denial(refusal, self._denied)


@contextlib.contextmanager
def place(of: Shares, sharer: str, code: str, what: str) -> Iterator[None]:
    """The same where it is known to whose share it counts."""
    with of.place(sharer) as granted:
        if not granted:
            raise overload(code, f"of {of.most} {what} no more are left for this caller")
        yield


def _authorization(context: Context) -> bytes | None:
    """The header of that name; of several the last."""
    told = None
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            told = value.encode("latin-1", "replace") if isinstance(value, str) else bytes(value)
    return told


def _address_of(context: Context) -> str:
    kind, _, address = unquote(context.peer()).partition(":")
    if kind not in {"ipv4", "ipv6"}:
        return LOCAL
    return peer_of(address.rpartition(":")[0].strip("[]"))


def deadline_ms(context: Context, told_ms: int | None) -> int | None:
    """The time until an answer must be on its way: the caller's own word or gRPC's, whichever is shorter."""
    remaining = cast("float | None", context.time_remaining())  # the stubs know no call without a deadline
    if remaining is None:
        return told_ms
    left = max(0, int(remaining * TRUSTED * 1_000) - ANSWER_MS)
    return left if told_ms is None else min(left, told_ms)
