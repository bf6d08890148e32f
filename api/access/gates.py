"""From settings to what the faces ask about callers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from api.access.access import Access, OpenAccess, SocketAccess
from api.access.endpoints import EndpointRules
from api.access.registering import Registering
from api.access.tls import Certificates
from api.access.tokens import TokenAccess, is_readable_by_all
from indexer.errors import SettingsError
from indexer.settings import BadSettings

if TYPE_CHECKING:
    from indexer.settings import Settings


class Gates(NamedTuple):
    """`faces`: whether paths of other services' APIs are served, whose callers show no token."""

    access: Access
    registering: Registering
    faces: bool


def open_gates() -> Gates:
    """Nobody is asked who calls."""
    return Gates(OpenAccess(), Registering(), faces=True)


def socket_gates(gates: Gates) -> Gates:
    """Of the Unix socket, where its file's permissions are all that is asked for. The same where nobody is asked."""
    if not gates.access.controlled:
        return gates
    return Gates(SocketAccess(gates.access), gates.registering, faces=True)


def gates_of(settings: Settings) -> Gates:
    """As settings say. Raises `BadSettings` with all that is wrong."""
    auth = settings.auth
    errors: list[SettingsError] = []
    access: Access = OpenAccess()
    rules: EndpointRules | None = None
    try:
        if auth.tokens_file is not None:
            access = TokenAccess(Path(auth.tokens_file))
    except SettingsError as error:
        errors.append(error)
    try:
        if auth.endpoints is not None:
            rules = EndpointRules(auth.endpoints)
    except SettingsError as error:
        errors.append(error)
    try:
        if auth.tls.certificate is not None:
            Certificates(auth.tls)
    except SettingsError as error:
        errors.append(error)
    if errors:
        raise BadSettings(errors)
    faces = settings.compat.anonymous or not access.controlled
    return Gates(access, Registering(rules, controlled=access.controlled), faces=faces)


def access_remarks(settings: Settings) -> list[str]:
    """What is allowed about its files and very likely a mistake."""
    path = settings.auth.tokens_file
    if path is None or not is_readable_by_all(Path(path)):
        return []
    return [f"auth.tokens_file {path} may be read by everybody on this machine: chmod o-r"]
