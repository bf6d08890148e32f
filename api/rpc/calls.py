"""What the methods have in common: who calls, how long it waits, how it is refused. One instance a server."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote

import grpc

from api.access.caller import ANYONE, require, sharer_of_token
from api.admission import LOCAL, Shares, peer_of
from api.problems import RequestRefused, count_denial, refusal_of
from api.rest.readying import overload
from api.rpc.statuses import refuse
from indexer.trace_context import Asked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.access.access import Access
    from api.access.caller import Caller, Scope
    from api.ports import NodePort
    from api.rest.request_ids import RequestIds
    from api.rpc.limits import RpcLimits
    from api.rpc.statuses import Context

ANSWER_MS: Final = 10
"""Of a deadline, kept for the way back."""
TRUSTED: Final = 0.99
"""Of the time that is left: gRPC writes a deadline in three digits, rounded up, so the caller's own clock is ahead."""


class Calls:
    """Lets callers in, and counts them while they are."""

    def __init__(self, node: NodePort, access: Access, request_ids: RequestIds, limits: RpcLimits) -> None:
        self._access = access
        self._denied = node.access_refused
        self._all = Shares("rpc.calls", limits.calls, reached=node.limit_reached)
        self.others = Shares("rpc.other_calls", limits.other_calls, reached=node.limit_reached)
        """Of methods that have no limit of their own."""
        self.request_ids = request_ids
        self._under_way = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    def bounded(self, method: grpc.RpcMethodHandler[bytes, bytes]) -> grpc.RpcMethodHandler[bytes, bytes]:
        """The same method, of which each call takes one of the caller's places from its first sight to its real end."""
        handler = cast("Any", method)  # its stubs leave most out
        behaviour = handler.stream_unary or handler.stream_stream

        async def call(requests: object, context: Context) -> object:
            try:
                self.hold(self._all, context, "calls.too_many", "calls at once")
            except RequestRefused as refusal:
                await self.refuse(context, refusal)
            return await behaviour(requests, context)

        make: Any = (
            grpc.stream_unary_rpc_method_handler if handler.stream_unary else grpc.stream_stream_rpc_method_handler
        )
        bounded: grpc.RpcMethodHandler[bytes, bytes] = make(
            call, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
        )
        return bounded

    def hold(self, of: Shares, context: Context, code: str, what: str) -> None:
        """Take a caller's place, given back when its call has ended. Raises `RequestRefused` 429 where none is left.

        What a method returns is not sent yet: who opens no window for it keeps it here for as long as it likes. gRPC
        calls back when the last of a call is on the line, or its caller gone.
        """
        sharer = self.sharer(context)
        _take(of, sharer, code, what)
        context.add_done_callback(cast("Any", lambda _context: of.give_back(sharer)))

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
        """End the call with what that error means.

        An error of gRPC's own goes back to it: the caller is gone (gone.py), and there is nobody to tell.
        """
        if isinstance(error, grpc.aio.InternalError):
            raise error
        refusal = refusal_of(error)
        self.count_denial(refusal)
        await refuse(context, refusal, self.request_ids.of(None))

    def count_denial(self, refusal: RequestRefused) -> None:
        """Of a call, or of one of its questions."""
        count_denial(refusal, self._denied)


@contextlib.contextmanager
def place(of: Shares, sharer: str, code: str, what: str) -> Iterator[None]:
    """The same where it is known to whose share it counts."""
    _take(of, sharer, code, what)
    try:
        yield
    finally:
        of.give_back(sharer)


def _take(of: Shares, sharer: str, code: str, what: str) -> None:
    if not of.take(sharer):
        raise overload(code, f"of {of.most} {what} no more are left for this caller")


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


def asked_in(context: Context, api: str, form: str) -> Asked:
    """A lookup that came with this call."""
    told = {key: value for key, value in context.invocation_metadata() or () if key in {"traceparent", "tracestate"}}
    return Asked(api, form, told.get("traceparent"), told.get("tracestate"))


def deadline_ms(context: Context, told_ms: int | None) -> int | None:
    """The time until an answer must be on its way: the caller's own word or gRPC's, whichever is shorter."""
    remaining = cast("float | None", context.time_remaining())  # the stubs know no call without a deadline
    if remaining is None:
        return told_ms
    left = max(0, int(remaining * TRUSTED * 1_000) - ANSWER_MS)
    return left if told_ms is None else min(left, told_ms)
