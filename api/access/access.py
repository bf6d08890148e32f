"""From what a request brings along to its caller. One instance a process, shared by every face."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from api.access.caller import ANYONE, AT_SOCKET, Caller
from api.problems import RequestRefused


class Access(Protocol):
    """Knows callers by what they show."""

    @property
    def controlled(self) -> bool:
        """Whether callers are asked who they are."""
        ...

    def caller(self, authorization: bytes | None) -> Caller:
        """The caller who shows that `Authorization` header. Raises `RequestRefused` 401."""
        ...

    def count(self, read: Callable[[bool], None]) -> None:
        """Have it called with whether a changed file could be used."""
        ...

    async def watch(self) -> None:
        """Keep what is known of callers as new as its files; until cancelled, or at once where there are none."""
        ...


class OpenAccess:
    """No access control: whoever reaches a port may ask. What changes sources is for callers on this machine."""

    controlled = False

    def caller(self, authorization: bytes | None) -> Caller:  # noqa: ARG002 - nobody is asked
        """Anyone."""
        return ANYONE

    def count(self, read: Callable[[bool], None]) -> None:
        """Nothing changes."""

    async def watch(self) -> None:
        """There is nothing to look at."""


class SocketAccess:
    """Callers on the Unix socket, beside tokens. Who shows a known one is known by it.

    Everybody else is let in to ask and to report, also who shows another: a gateway may hand on its client's
    `Authorization`, which is for the engine.
    """

    controlled = True

    def __init__(self, tokens: Access) -> None:
        self._tokens = tokens

    def caller(self, authorization: bytes | None) -> Caller:
        """The one whose token it is, or whoever may open the socket."""
        if authorization is None:
            return AT_SOCKET
        try:
            return self._tokens.caller(authorization)
        except RequestRefused:
            return AT_SOCKET

    def count(self, read: Callable[[bool], None]) -> None:
        """The tokens' own count it."""

    async def watch(self) -> None:
        """The tokens' own watch."""
