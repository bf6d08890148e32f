"""One client's request as a gateway tells it, message by message, and what is said to each. Pure.

How bodies are sent decides when the destination can be told:

    full duplex   the answer to the headers waits until the body is whole; then headers, body and trailers go back
    buffered      the headers are let pass, the body comes in one message and is answered with the destination
    streamed      the headers must be answered before any of the body is known: by load alone
    none          as streamed

Full duplex is what the inference extension asks for; it is also what is taken for granted of a gateway that does not
say how it sends. In that mode the gateway keeps nothing: every byte is handed back, also where nobody could be picked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple

from api.epp.heard import headers_of, served_of, subset_of
from api.epp.said import PASSED_ON, destination, handed_back, refusal
from api.epp.usage import UsageTail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from api.epp.said import Phase, Place
    from schemas.rpc.envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest

NONE, STREAMED, BUFFERED, BUFFERED_PARTIAL, FULL_DUPLEX, GRPC = range(6)
"""`BodySendMode`."""
_HANDED_BACK: Final = frozenset({FULL_DUPLEX, GRPC})
_WHOLE: Final = frozenset({BUFFERED, BUFFERED_PARTIAL})


class Picked(NamedTuple):
    """Where to, best first; nobody: the gateway decides. `prefill`: who takes the prompt, where that is another."""

    endpoints: tuple[str, ...] = ()
    prefill: str | None = None


class Refused(NamedTuple):
    """The client is answered in the engine's place."""

    status: Literal[429, 503]
    reason: str
    retry_after_s: int | None = None


Decision = Picked | Refused


class Wanted(NamedTuple):
    """A request that is to be sent somewhere. `cut`: more of its body may follow, or may have been left out."""

    headers: Mapping[bytes, bytes]
    body: Sequence[bytes]
    cut: bool
    subset: tuple[str, ...] | None


class Conversation:
    """One request. `hold`: whether so many bytes more of its body may be kept; `reads_usage`: from the response's end.

    After `hear`, where `wanted` is set, the next call is `decide`.
    """

    def __init__(self, hold: Callable[[int], bool] = lambda _: True, *, reads_usage: bool = False) -> None:
        self.wanted: Wanted | None = None
        self.refused = False
        self.served: str | None = None
        self.status: int | None = None
        """Of the response."""
        self.over = False
        """The response came to its end."""
        self.usage: UsageTail | None = UsageTail() if reads_usage else None
        self._hold = hold
        self._modes: dict[Phase, int] | None = None
        self._place: Place = "headers"
        self._decided = False
        self._held: list[bytes] = []
        self._headers: dict[bytes, bytes] = {}
        self._subset: tuple[str, ...] | None = None
        self._is_whole = False
        """The last of the request was heard."""
        self._ends_in_body = False
        self._trailers = False
        """They wait to be answered."""
        self._waits: Place | None = None
        """For what the pick waits."""

    @property
    def may_end(self) -> bool:
        """Whether the gateway can do without us from here on: nothing of the client's is kept here, nor will be."""
        if self._modes is None or not self._decided:
            return False
        request_is_back = self._is_whole or self._mode("request") not in _HANDED_BACK
        return request_is_back and (self.over or self._mode("response") not in _HANDED_BACK)

    def hear(self, message: ProcessingRequest) -> Iterable[bytes]:
        """What to answer at once."""
        kind = message.WhichOneof("request")
        if self.refused or kind is None:
            return ()
        if self._modes is None:
            self._modes = _modes_of(message)
        if message.observability_mode:
            return ()
        return self._hearers[kind](self, message)

    def decide(self, decision: Decision) -> Iterator[bytes]:
        """What to answer, now that it is known where to send it."""
        self.wanted, held = None, self._held
        self._held, self._headers, self._decided = [], {}, True
        if isinstance(decision, Refused):
            self.refused = True
            yield refusal(*decision)
            return
        yield destination(self._place, decision.endpoints, decision.prefill)
        if self._place == "headers":
            yield from handed_back("request", b"".join(held), last=self._ends_in_body)
        if self._trailers:
            yield PASSED_ON["request", "trailers"]

    # -- the request ---------------------------------------------------------------------------------------------------

    def _request_headers(self, message: ProcessingRequest) -> Iterable[bytes]:
        told, mode = message.request_headers, self._mode("request")
        self._headers, self._subset = headers_of(told.headers), subset_of(message)
        self._is_whole = told.end_of_stream
        if told.end_of_stream or mode not in {FULL_DUPLEX, *_WHOLE}:
            self._want("headers", cut=not told.end_of_stream)
            return ()
        if mode == FULL_DUPLEX:
            self._waits = "headers"
            return ()
        self._waits = "body"
        return (PASSED_ON["request", "headers"],)

    def _request_body(self, message: ProcessingRequest) -> Iterable[bytes]:
        body, last, mode = message.request_body.body, message.request_body.end_of_stream, self._mode("request")
        self._is_whole = self._ends_in_body = last
        if self._waits is None:  # it is known where to, or cannot be told any more
            self._decided = True
            return _passed_on("request", mode, body, last=last)
        self._held.append(body)
        if self._waits == "body":
            self._want("body", cut=not last and mode == BUFFERED_PARTIAL)
        elif not self._hold(len(body)) or last:
            self._want("headers", cut=not last)
        return ()

    def _request_trailers(self, _message: ProcessingRequest) -> Iterable[bytes]:
        self._is_whole = True
        if self._waits != "headers":
            return (PASSED_ON["request", "trailers"],)
        self._trailers = True
        self._want("headers", cut=False)
        return ()

    def _want(self, place: Place, *, cut: bool) -> None:
        self._place, self._waits = place, None
        self.wanted = Wanted(self._headers, tuple(self._held), cut, self._subset)

    # -- the response --------------------------------------------------------------------------------------------------

    def _response_headers(self, message: ProcessingRequest) -> Iterable[bytes]:
        told = message.response_headers
        self.served = served_of(message) or self.served
        headers = headers_of(told.headers)
        status = headers.get(b":status", b"")
        self.status = int(status) if status.isdigit() and len(status) == len(b"200") else None
        self.over = told.end_of_stream
        if headers.get(b"content-encoding", b"identity") != b"identity":
            self.usage = None
        return (PASSED_ON["response", "headers"],)

    def _response_body(self, message: ProcessingRequest) -> Iterable[bytes]:
        body, last = message.response_body.body, message.response_body.end_of_stream
        self.served = self.served or served_of(message)
        self.over = last
        if self.usage is not None:
            self.usage.add(body)
        return _passed_on("response", self._mode("response"), body, last=last)

    def _response_trailers(self, message: ProcessingRequest) -> Iterable[bytes]:
        self.served = self.served or served_of(message)
        self.over = True
        return (PASSED_ON["response", "trailers"],)

    def _mode(self, phase: Phase) -> int:
        return FULL_DUPLEX if self._modes is None else self._modes[phase]

    _hearers: ClassVar[dict[str, Callable[[Any, ProcessingRequest], Iterable[bytes]]]] = {
        "request_headers": _request_headers,
        "request_body": _request_body,
        "request_trailers": _request_trailers,
        "response_headers": _response_headers,
        "response_body": _response_body,
        "response_trailers": _response_trailers,
    }


def _modes_of(message: ProcessingRequest) -> dict[Phase, int]:
    """From the first message."""
    if not message.HasField("protocol_config"):
        return {"request": FULL_DUPLEX, "response": FULL_DUPLEX}
    told = message.protocol_config
    return {"request": told.request_body_mode, "response": told.response_body_mode}


def _passed_on(phase: Phase, mode: int, body: bytes, *, last: bool) -> Iterable[bytes]:
    """The answer to a part of a body that nothing is changed of."""
    return handed_back(phase, body, last=last) if mode in _HANDED_BACK else (PASSED_ON[phase, "body"],)
