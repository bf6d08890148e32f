"""From what a request brings along to its caller. One instance a process, shared by every face."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from api.access.caller import ANYONE, Caller


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
