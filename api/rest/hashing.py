"""`POST /v1/hash`: the token hashes of a prompt, for callers that want to keep them and ask by hash."""

from __future__ import annotations

from http import HTTPStatus

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from api.access.caller import tenant_of
from api.ports import NodePort
from api.problems import RequestRefused
from api.rest.exchange import Exchange, caller_of, sharer_of
from api.rest.lookup_request import LookupRequests, check_hashed_blocks
from api.rest.media import body_form
from api.rest.readying import Readying, while_there
from indexer.errors import BadRequestError, FieldIssue
from schemas.lookup import LookupQuery
from schemas.rest import HashAnswer


class HashRoute:
    """The handler; takes what a lookup takes, and `block_size`."""

    def __init__(self, node: NodePort, exchange: Exchange, requests: LookupRequests, readying: Readying) -> None:
        self._node = node
        self._readying = readying
        self._exchange = exchange
        self._requests = requests

    async def hash(self, request: Request) -> Response:
        """`POST /v1/hash`."""
        headers = dict(request.headers.raw)
        body = await self._exchange.raw_body(request)
        form = body_form(headers.get(b"content-type"), ids_allowed=True)
        query = self._requests.parse(form, body, request.scope["query_string"], headers, hashing=True).query
        query.tenant = tenant_of(caller_of(request), query.tenant)
        if query.text is not None:
            query = await self._tokenized(request, query)
        result = self._node.hash(query)
        answer = HashAnswer(
            scheme=result.scheme,
            block_size=result.block_size,
            hashes=[f"{value:016x}" for value in result.hashes],
            prompt_tokens=result.prompt_tokens,
            tokenizer=query.tokenizer or msgspec.UNSET,
        )
        return self._exchange.answer(request, answer)

    async def _tokenized(self, request: Request, query: LookupQuery) -> LookupQuery:
        """Here tokens are all that counts: without them there is no answer."""
        query = await while_there(request.receive, self._readying.tokenized(query, sharer_of(request.scope)))
        if query.overdue:
            raise RequestRefused(HTTPStatus.GATEWAY_TIMEOUT, "prompt.deadline", "the text was not tokenized in time")
        if query.tokens is None:
            raise BadRequestError("model.unknown", [FieldIssue("model", "a model that is known here")])
        check_hashed_blocks(query.tokens, query.block_size)
        return query
