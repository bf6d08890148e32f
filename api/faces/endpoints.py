"""Who may register what by a face that nobody has to show a token at: callers on this machine, engines on this machine.

Without the second half a caller could have this service dial any address that it reaches and the caller does not.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from api.problems import RequestRefused
from api.rest.callers import is_loopback, require_local
from indexer.errors import FieldIssue

if TYPE_CHECKING:
    from starlette.requests import Request

    from indexer.model import Descriptor

_TCP: Final = "tcp://"


def require_may_change(request: Request) -> None:
    """Raise `RequestRefused` 403 unless the caller may change sources here."""
    require_local(request.scope, dict(request.headers.raw))


def require_may_register(request: Request, descriptor: Descriptor) -> None:
    """Raise `RequestRefused` 403 unless the caller may have this service connect there."""
    require_may_change(request)
    for name, endpoint in (("endpoint", descriptor.endpoint), ("replay_endpoint", descriptor.replay_endpoint)):
        if endpoint is not None and endpoint.startswith(_TCP) and not is_loopback(_host(endpoint)):
            issue = FieldIssue(name, "an address of this machine")
            raise RequestRefused(
                HTTPStatus.FORBIDDEN, "endpoint.not_allowed", f"{name}: only addresses of this machine", [issue]
            )


def _host(endpoint: str) -> str:
    return endpoint.removeprefix(_TCP).rpartition(":")[0].strip("[]")
