"""A caller, what it may do, and whose engines it asks about. Pure.

A caller bound to a tenant may leave the tenant out; naming another one is refused.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final, Literal, NamedTuple

from api.problems import RequestRefused
from indexer.errors import FieldIssue
from indexer.source_log import A_CALLER

Scope = Literal["lookup", "report", "admin"]
SCOPES: Final[frozenset[Scope]] = frozenset({"lookup", "report", "admin"})


class Caller(NamedTuple):
    """Who asks. `tenant` None: it may ask about any."""

    name: str
    scopes: frozenset[Scope]
    tenant: str | None


ANYONE: Final = Caller("anyone", SCOPES, None)
"""Every caller, where there is no access control."""
AT_SOCKET: Final = Caller("anyone at the socket", frozenset({"lookup", "report"}), None)
"""Every caller on the Unix socket without a token, where `auth.uds` lets them in."""


def named_in_log(caller: Caller) -> str:
    """Who gave a command: the token's name, which its entry in the file has."""
    return A_CALLER if caller is ANYONE else f"token {caller.name}"


def sharer_of_token(caller: Caller) -> str:
    """To whose share of a limit (api/admission.py) counts what comes with this caller's token, by whichever door."""
    return f"token {caller.name}"


def require(caller: Caller, scope: Scope) -> None:
    """Raise `RequestRefused` 403 unless the caller may do that."""
    if scope not in caller.scopes:
        detail = f"this token does not carry the scope {scope}, which this takes"
        challenge = f'Bearer realm="kvindexer", error="insufficient_scope", scope="{scope}"'.encode()
        raise RequestRefused(HTTPStatus.FORBIDDEN, "scope.missing", detail, headers=[(b"www-authenticate", challenge)])


def require_all_tenants(caller: Caller) -> None:
    """Raise `RequestRefused` 403 where the caller is bound to one: what it asks is about what all of them share."""
    if caller.tenant is not None:
        detail = "this concerns the engines of all tenants, and this token is bound to one"
        raise RequestRefused(HTTPStatus.FORBIDDEN, "tenant.forbidden", detail)


def tenant_of(caller: Caller, asked: str | None) -> str | None:
    """The tenant that a request is about. Raises `RequestRefused` 403 where it is not the caller's."""
    if caller.tenant is None or asked == caller.tenant:
        return asked
    if asked is None:
        return caller.tenant
    issue = FieldIssue("tenant", "the tenant of the token, or left out")
    raise RequestRefused(HTTPStatus.FORBIDDEN, "tenant.forbidden", "this token is bound to another tenant", [issue])
