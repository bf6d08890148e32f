"""`POST /register`, `POST /unregister`, `GET /workers`: sources as the originals' clients name them.

An instance is a pod, its number written in decimal; a routing group or tenant is our tenant. What they call block size
is taken from the events themselves; what was said at the registration is kept as a label, to be told where the two
differ. Registered sources have origin `api`.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from api.access.caller import tenant_of
from api.faces.questions import Unreadable, decoded, tenant_meant, tenant_told, told_apart
from api.faces.refusals import JSON, MSGPACK, FaceRefused, as_response, refused, reply
from api.faces.shapes import Register, Unregister
from api.faces.workers import BLOCK_SIZE_LABEL, WorkersFilters, listed
from api.problems import count_denial
from api.rest.exchange import sharer_of
from api.rest.explain import explain
from api.rest.media import body_form
from api.rest.query_options import options_from_query
from api.rest.registration import descriptor_of
from indexer.errors import BadRequestError, FieldIssue, IndexerError
from indexer.model import DEFAULT_TENANT
from schemas.rest import SourceBody

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from starlette.requests import Request
    from starlette.responses import Response

    from api.access.caller import Caller
    from api.access.registering import Registering
    from api.faces.refusals import Protocol, Reply
    from api.faces.shapes import AnyId
    from api.ports import NodePort
    from api.rest.body import BodyReader
    from api.rest.media import BodyForm
    from indexer.model import Descriptor
    from schemas.rest import SourceView

RANKS_MAX: Final = 65_536
_U64_MAX: Final = 2**64 - 1
_ENGINES: Final[dict[str, Literal["vllm", "sglang"]]] = {"": "vllm", "vllm": "vllm", "sglang": "sglang"}


class Wanted(NamedTuple):
    """What is to be taken out, in either protocol's words."""

    protocol: Protocol
    pod: str
    model: str | None
    tenant: str | None
    dp_rank: int | None


class RegisterRoutes:
    """Handlers. `caller`: who everybody is here, for nobody shows who it is."""

    def __init__(self, node: NodePort, bodies: BodyReader, caller: Caller, registering: Registering) -> None:
        self._registering = registering
        self._node = node
        self._bodies = bodies
        self._caller = caller

    async def register(self, request: Request) -> Response:
        """`POST /register`."""
        return await self._answered(request, self._register)

    async def unregister(self, request: Request) -> Response:
        """`POST /unregister`."""
        return await self._answered(request, self._unregister)

    async def workers(self, request: Request) -> Response:
        """`GET /workers`, which only Dynamo has."""
        try:
            filters = options_from_query(request.scope["query_string"], WorkersFilters)
            views = await self._node.source_views(model=filters.model_name, counted=False)
            tenant = tenant_of(self._caller, tenant_meant(filters.tenant_id, filters.routing_group))
            shown = [view for view in views if tenant is None or view.tenant == tenant]
            return as_response(reply(HTTPStatus.OK, JSON, msgspec.json.encode(listed(shown))))
        except IndexerError as error:
            return as_response(refused(error, "dynamo"))

    async def _answered(
        self, request: Request, answer: Callable[[Request, BodyForm, bytes], Coroutine[None, None, Reply]]
    ) -> Response:
        headers = dict(request.headers.raw)
        try:
            sharer = sharer_of(request.scope)
            received = await self._bodies.read(request.receive, headers, sharer)
            body = await self._bodies.plain(received, headers, sharer)
            told = await answer(request, body_form(headers.get(b"content-type"), ids_allowed=False), body)
        except Unreadable as error:
            count_denial(error.why, self._node.access_refused)
            told = refused(error.why, error.protocol)
        except IndexerError as error:
            told = refused(error, None)
        return as_response(told)

    async def _register(self, request: Request, form: BodyForm, content: bytes) -> Reply:
        body = decoded(form, content, Register)
        try:
            protocol = told_apart(body.model_name, body.modelname, "modelname")
        except BadRequestError as error:
            raise Unreadable(error, None) from None
        try:
            descriptor = self._descriptor(body, protocol)
            self._registering.require_may_register_here(request.scope, dict(request.headers.raw), descriptor)
            answer = await self._node.add_source(descriptor)
        except IndexerError as error:
            raise Unreadable(error, protocol) from None
        if protocol == "mooncake":
            said = {"status": "registered successfully", "instance_id": descriptor.pod}
            return _mooncake_says(said, form)
        if answer.result == "same":
            refusal = f"instance {descriptor.pod} dp_rank {descriptor.dp_rank} is already registered"
            raise Unreadable(FaceRefused(HTTPStatus.CONFLICT, "source.conflict", refusal), protocol)
        return reply(HTTPStatus.CREATED, JSON, b'{"status":"ok"}')

    def _descriptor(self, body: Register, protocol: Protocol) -> Descriptor:
        if protocol == "mooncake" and body.additionalsalt:
            rule = "not taken: blocks of another salt would count for those without"
            raise BadRequestError("unsupported", [FieldIssue("additionalsalt", rule)])
        engine = _ENGINES.get((body.type or "").lower())
        if engine is None:
            raise BadRequestError(
                "invalid_value", [FieldIssue("type", "vLLM or SGLang: events of others are not read")]
            )
        members = {
            "pod": _pod(body.instance_id, protocol),
            "endpoint": body.endpoint,
            "dp_rank": body.dp_rank,
            "replay_endpoint": body.replay_endpoint or None,
            "model": body.model_name or body.modelname,
            "lora_name": body.lora_name or None,
            "tenant": tenant_of(self._caller, tenant_told(body.tenant_id, body.routing_group)),
            "labels": {BLOCK_SIZE_LABEL: str(body.block_size)},
            "engine": engine,
        }
        try:
            return descriptor_of(msgspec.convert(members, SourceBody))
        except msgspec.ValidationError as error:
            raise _as_registered(explain(SourceBody, members, error), protocol) from None
        except BadRequestError as error:
            raise _as_registered(error, protocol) from None

    async def _unregister(self, request: Request, form: BodyForm, content: bytes) -> Reply:
        body = decoded(form, content, Unregister)
        protocol: Protocol = "dynamo" if body.model_name else "mooncake"  # whose newer clients name no model
        try:
            self._registering.require_may_change_here(request.scope, dict(request.headers.raw))
            wanted = Wanted(
                protocol,
                _pod(body.instance_id, protocol),
                body.model_name or body.modelname or None,
                tenant_of(self._caller, tenant_meant(body.tenant_id, body.routing_group)),
                _rank(body.dp_rank, protocol),
            )
            found = await self._found(wanted)
            for each in found:
                await self._node.remove_source(each.pod, each.dp_rank)
        except IndexerError as error:
            raise Unreadable(error, protocol) from None
        if protocol == "dynamo":
            return reply(HTTPStatus.OK, JSON, b'{"status":"ok"}')
        removed = [f"{each.pod}|{each.tenant}|{each.dp_rank}" for each in found]
        return _mooncake_says({"status": "unregistered successfully", "removed_instances": removed}, form)

    async def _found(self, wanted: Wanted) -> list[SourceView]:
        """The ranks that are meant. Raises as the originals do where it is not they that are registered."""
        views = await self._node.source_views(after=(wanted.pod, -1), limit=RANKS_MAX, counted=False)
        ranks = [view for view in views if view.pod == wanted.pod]
        tenant = wanted.tenant or (DEFAULT_TENANT if wanted.protocol == "mooncake" else None)
        if tenant is not None:
            ranks = [view for view in ranks if view.tenant == tenant]
        found = [
            view for view in ranks if wanted.dp_rank in {None, view.dp_rank} and wanted.model in {None, view.model}
        ]
        if not found:
            rank = "" if wanted.dp_rank is None else f" dp_rank {wanted.dp_rank}"
            other = " is registered otherwise" if ranks else " is not registered"
            raise FaceRefused(HTTPStatus.NOT_FOUND, "source.unknown", f"instance {wanted.pod}{rank}{other}")
        return found


def _rank(dp_rank: int | None, protocol: Protocol) -> int | None:
    if dp_rank is None and protocol == "mooncake":
        raise BadRequestError("missing", [FieldIssue("dp_rank", "required: a whole number, 0..65535")])
    return dp_rank


def _pod(instance_id: AnyId, protocol: Protocol) -> str:
    """The pod's name. Raises `BadRequestError`."""
    is_number = isinstance(instance_id, int)
    if protocol == "dynamo":
        if not is_number or instance_id > _U64_MAX:  # type: ignore[operator]  # a number there
            raise BadRequestError("instance_id.not_u64", [FieldIssue("instance_id", "a whole number, 0..2^64-1")])
    elif is_number or not instance_id:
        raise BadRequestError("invalid_type", [FieldIssue("instance_id", "a string that is not empty")])
    return str(instance_id)


def _as_registered(error: BadRequestError, protocol: Protocol) -> IndexerError:
    """A registration that nobody could follow: 400 with each of the originals."""
    if protocol == "mooncake":
        return error
    return FaceRefused(HTTPStatus.BAD_REQUEST, error.code, str(error), error.issues)


def _mooncake_says(said: object, form: BodyForm) -> Reply:
    if form == "msgpack":
        return reply(HTTPStatus.OK, MSGPACK, msgspec.msgpack.encode(said))
    return reply(HTTPStatus.OK, JSON, msgspec.json.encode(said))
