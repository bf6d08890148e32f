"""[I/O] `Process`: one stream a client's request, from its headers to the end of its response.

What is kept of a body is bounded over all streams; a gateway that takes nothing loses its stream. At the stop each
stream ends as soon as the gateway can do without it, in order: then it goes on by itself, and the client sees nothing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from google.protobuf.message import DecodeError

from api.admission import Shares
from api.epp.conversation import Conversation
from api.epp.outcome import Outcomes
from schemas.rpc.envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.epp.limits import EppLimits
    from api.epp.outcome import Server
    from api.epp.picking import Pick, Picker
    from api.ports import NodePort
    from api.rpc.calls import Calls
    from api.rpc.statuses import Context


class Streams:
    """Handler. Messages come and go as bytes."""

    def __init__(self, node: NodePort, calls: Calls, picker: Picker, limits: EppLimits) -> None:
        self._node = node
        self._calls = calls
        self._picker = picker
        self._limits = limits
        self._outcomes = Outcomes(node)
        self._places = Shares("epp.streams", limits.streams, reached=node.limit_reached)
        self._held = Shares("limits.pending_bytes", limits.held_bytes, reached=node.limit_reached)
        self._reading: set[_Stream] = set()
        self._ending = False

    async def process(self, _requests: object, context: Context) -> None:
        """`Process`."""
        sharer = self._calls.sharer(context)
        with self._places.place(sharer) as granted, self._calls.counted():
            if granted:
                await self._served(_Stream(context, sharer, self._held, self._limits, self._node))

    def end(self) -> None:
        """The server stops: who can do without us does so from now on."""
        self._ending = True
        for stream in list(self._reading):
            stream.end_if_it_may()

    async def _served(self, stream: _Stream) -> None:
        pick: Pick | None = None
        server: Server | None = None
        talk, told = stream.talk, False
        try:
            async with asyncio.timeout(None) as stream.patience:
                await stream.begin()
                while (message := await self._next(stream)) is not None:
                    await stream.say(talk.hear(message))
                    message = None  # a body that came at once is not kept until the engine answers
                    if talk.wanted is not None:
                        pick = await self._picker.pick(talk.wanted, stream.sharer)
                        await stream.say(talk.decide(pick.decision))
                        stream.let_go()
                        server = await self._outcomes.sent(pick)
                        pick = pick._replace(query=None)
                    if pick is not None and talk.status is not None and not told:
                        told, server = True, await self._outcomes.served(pick, talk.served, server)
        except TimeoutError:
            stream.count_stall()
        finally:
            stream.let_go()
            if pick is not None:
                self._outcomes.ended(pick, talk, server)

    async def _next(self, stream: _Stream) -> ProcessingRequest | None:
        """The next message; None: there is no more, or it is none of this protocol."""
        self._reading.add(stream)
        try:
            if self._ending:
                stream.end_if_it_may()
            return await stream.next()
        finally:
            self._reading.discard(stream)


class _Stream:
    """One, and what is kept of its body."""

    def __init__(self, context: Context, sharer: str, held: Shares, limits: EppLimits, node: NodePort) -> None:
        self.sharer = sharer
        self.patience = asyncio.timeout(None)
        self.talk = Conversation(self._hold, reads_usage=limits.reads_usage)
        self._context = context
        self._held = held
        self._holds = 0
        self._body_bytes = 0
        self._limits = limits
        self._node = node
        self._says = False

    def end_if_it_may(self) -> None:
        if self.talk.may_end:
            self.patience.reschedule(asyncio.get_running_loop().time())

    async def begin(self) -> None:
        """Else a write that is given up leaves gRPC no way to end the stream."""
        await self._context.send_initial_metadata(())

    async def next(self) -> ProcessingRequest | None:
        data = cast("object", await self._context.read())  # or the mark of the end, which the stubs do not know
        if not isinstance(data, bytes):
            return None
        try:
            return ProcessingRequest.FromString(data)
        except DecodeError:
            return None

    async def say(self, answers: Iterable[bytes]) -> None:
        """Raises `TimeoutError` where the gateway does not take them."""
        loop, self._says = asyncio.get_running_loop(), True
        for answer in answers:
            self.patience.reschedule(loop.time() + self._limits.unread_wait_s)
            await self._context.write(answer)
        self.patience.reschedule(None)
        self._says = False

    def count_stall(self) -> None:
        """The stream ended by a timer of ours: of a gateway that did not read, else at the stop."""
        if self._says:
            self._node.limit_reached("limits.unread_wait_s")

    def let_go(self) -> None:
        """What was kept of the body is with the gateway again."""
        if self._holds:
            self._held.give_back(self.sharer, self._holds)
            self._holds = 0

    def _hold(self, size: int) -> bool:
        self._body_bytes += size
        if self._body_bytes > self._limits.body_bytes:
            self._node.limit_reached("limits.body_bytes")
            return False
        granted = not size or self._held.take(self.sharer, size)
        if granted:
            self._holds += size
        return granted
