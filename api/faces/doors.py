"""The paths of the faces. No caller of theirs shows who it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from api.access.caller import Caller
from api.faces.picker import PickerRoutes
from api.faces.query import QUERY, QUERY_BY_HASH, QueryRoute
from api.faces.registering import RegisterRoutes
from api.rest.door import Door
from indexer.model import DEFAULT_TENANT

if TYPE_CHECKING:
    from api.access.registering import Registering
    from api.ports import NodePort
    from api.rest.body import BodyReader
    from api.rest.limits import RestLimits
    from api.rest.readying import Readying


FACE_PATHS: Final = frozenset({"/register", "/unregister", "/workers", "/lookup", QUERY, QUERY_BY_HASH})


def face_caller(*, controlled: bool) -> Caller:
    """Whoever asks by a face. Where others show tokens, it sees the tenant that has no name and no other."""
    return Caller("anyone by a face", frozenset(), DEFAULT_TENANT if controlled else None)


def query_routes(node: NodePort, bodies: BodyReader, limits: RestLimits, caller: Caller) -> dict[str, QueryRoute]:
    """What is asked before each request of a router, by path: for a server that has a lane for them."""
    return {path: QueryRoute(path, node, bodies, limits, caller) for path in (QUERY, QUERY_BY_HASH)}


def face_doors(
    node: NodePort,
    bodies: BodyReader,
    caller: Caller,
    queries: dict[str, QueryRoute],
    registering: Registering,
    readying: Readying,
) -> dict[str, dict[str, Door]]:
    """By path and method."""
    routes, picker = RegisterRoutes(node, bodies, caller, registering), PickerRoutes(node, bodies, caller, readying)
    return {
        "/register": {"POST": Door(None, routes.register)},
        "/unregister": {"POST": Door(None, routes.unregister)},
        "/workers": {"GET": Door(None, routes.workers)},
        "/lookup": {"POST": Door(None, picker.lookup)},
        QUERY: {"POST": Door(None, queries[QUERY].handle), "GET": Door(None, picker.who_is)},
        QUERY_BY_HASH: {"POST": Door(None, queries[QUERY_BY_HASH].handle)},
    }
