"""`POST /v1/lookup` as bare ASGI: what a router asks before each of its requests must not pay for a framework.

One pass: headers into a dict, body in one piece, parse, ask the core, two messages out. Measured on two cores, 8,192
ids as JSON: reading the ids is most of it, which is why that has a way of its own (plain_json.py). Everything else
about HTTP is in `app`; both are documented in one OpenAPI document.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.types import Receive, Scope, Send

from api.ports import Encoding, NodePort
from api.problems import RequestRefused, problem_response, refusal_of
from api.rest.body import BodyReader, CallerGone
from api.rest.lookup_request import LookupRequests
from api.rest.media import ANSWER_TYPES, answer_encoding, body_form
from api.rest.request_ids import RequestIds
from schemas.lookup import LookupQuery

PATH: Final = "/v1/lookup"
SEQUENCE_WAIT_MS: Final = 1_000
"""How long a lookup with `min_sequence` waits where it names no deadline; never longer than `SEQUENCE_WAIT_MS_MAX`."""
SEQUENCE_WAIT_MS_MAX: Final = 60_000

_ENCODERS: Final[dict[Encoding, Callable[[object], bytes]]] = {
    "json": msgspec.json.Encoder().encode,
    "msgpack": msgspec.msgpack.Encoder().encode,
}
_TYPE_HEADERS: Final = {encoding: (b"content-type", name) for encoding, name in ANSWER_TYPES.items()}


class LookupRoute:
    """The ASGI application behind `/v1/lookup`, any method."""

    def __init__(
        self,
        node: NodePort,
        bodies: BodyReader,
        requests: LookupRequests,
        request_ids: RequestIds,
        waiting_max: int,
    ) -> None:
        self._node = node
        self._bodies = bodies
        self._requests = requests
        self._request_ids = request_ids
        self._waiting_max = waiting_max
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; a caller that is gone gets none."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id, label, state = None, "unknown", ""
        started = time.perf_counter()
        self._waiting += 1
        try:
            self._admit(scope["method"])
            form = body_form(headers.get(b"content-type"), ids_allowed=True)
            body = await self._bodies.read(receive, headers)
            started = time.perf_counter()  # a slow caller's network is not our time
            query, label = self._requests.parse(form, body, scope["query_string"], headers)
            query.request_id = request_id = query.request_id or self._request_ids.of(headers.get(b"x-request-id"))
            encoding = answer_encoding(headers.get(b"accept"), form)
            if query.min_sequence:
                await self._wait(query)
            answer = self._node.lookup(query, encoding=encoding)
            answer.took_us = int((time.perf_counter() - started) * 1e6)
            status, content = 200, _ENCODERS[encoding](answer)
            out = [_TYPE_HEADERS[encoding], (b"content-length", b"%d" % len(content))]
            state = answer.state
        except CallerGone:
            return
        except Exception as error:  # noqa: BLE001 - the one place that answers for a fault of ours on this path
            status, out, content = problem_response(
                refusal_of(error), request_id or self._request_ids.of(headers.get(b"x-request-id"))
            )
        finally:
            self._waiting -= 1
        await send({"type": "http.response.start", "status": status, "headers": out})
        await send({"type": "http.response.body", "body": content})
        seconds = time.perf_counter() - started
        self._node.observe_lookup(api="rest", input=label, code=status, state=state, seconds=seconds)

    def _admit(self, method: str) -> None:
        if method != "POST":
            raise RequestRefused(
                HTTPStatus.METHOD_NOT_ALLOWED,
                "method.not_allowed",
                "this path takes POST",
                headers=[(b"allow", b"POST")],
            )
        if self._waiting > self._waiting_max:
            raise RequestRefused(
                HTTPStatus.TOO_MANY_REQUESTS,
                "lookups.too_many",
                f"{self._waiting_max} lookups are under way (limits.lookups_waiting)",
                headers=[(b"retry-after", b"1")],
            )

    async def _wait(self, query: LookupQuery) -> None:
        """Give the events the caller knows of the time to arrive."""
        wait_ms = SEQUENCE_WAIT_MS if query.timeout_ms is None else min(query.timeout_ms, SEQUENCE_WAIT_MS_MAX)
        await self._node.wait_applied(query, wait_ms / 1_000)
