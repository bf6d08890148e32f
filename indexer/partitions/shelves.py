"""Where followed sources stand: the process's registry, as followers see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from indexer.index.reverse_map import ReverseMap
    from indexer.index.source import SourceIndex
    from indexer.model import Descriptor, SourceId
    from indexer.store.registered import Registered


class Shelves(Protocol):
    """The sources of this process. All calls come on the loop and return at once."""

    def enter(self, registered: Registered, generation: int) -> SourceIndex:
        """A followed source appears: listed, without a subscriber. It takes the place of one of the same identity.

        Raises IndexerError where it cannot stand beside the others.
        """
        ...

    def redescribe(self, source: SourceIndex, descriptor: Descriptor) -> None:
        """It is called otherwise, or serves another model: what it holds stays."""
        ...

    def leave(self, source: SourceId) -> None:
        """It is gone: nothing of it is scored from now on (P4)."""
        ...

    def changed(self, source: SourceIndex) -> None:
        """A fact of it changed."""
        ...

    def heard(self, source: SourceIndex) -> None:
        """Its owner said how it is, also where nothing of that is new. Called with every tick."""
        ...

    def reshaped(self, source: SourceIndex) -> None:
        """It got another slot, block size or adapter."""
        ...

    def stands(self, source: SourceIndex) -> None:
        """Its map is read whole. How its stream is doing, only the next tick tells."""
        ...

    def bury(self, left: ReverseMap) -> None:
        """A map that is no longer used: to be freed in slices."""
        ...

    def clears(self, nonce: bytes) -> None:
        """A command that counts against `limits.max_clears_per_minute` was given, maybe by this replica."""
        ...

    def passes_over(self, tenant: str, model: str | None) -> None:
        """A source of that model is registered, and not followed here."""
        ...

    def passes_over_no_more(self, tenant: str, model: str | None) -> None:
        """One of those is gone."""
        ...

    def get(self, source: SourceId) -> SourceIndex | None:
        """The source as it stands, whoever entered it."""
        ...
