"""Whom the demo asks: one service, or several replicas of it in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.cli.client import ServiceClient


class Asked(Protocol):
    """Who is asked: one service or several replicas of it, in turn."""

    @property
    def listeners(self) -> int:
        """Subscriptions that every engine has where all is well."""
        ...

    def clients(self) -> Sequence[ServiceClient]:
        """Of those that can be asked now: one at least."""
        ...

    def is_calm(self) -> bool:
        """Whether engines may begin a new life: nothing that they publish first would be missed."""
        ...


class Alone:
    """One service."""

    listeners: Final = 1

    def __init__(self, client: ServiceClient) -> None:
        self._client = client

    def clients(self) -> Sequence[ServiceClient]:
        """It alone."""
        return (self._client,)

    def is_calm(self) -> bool:
        """It fetches what it missed."""
        return True
