"""Sources of a partition's registry whose model this replica does not follow. Pure.

Of each no more is kept than its name and model, so that an answer can tell a model that is followed elsewhere from one
that nobody has. A source without a model is one of them, too: whether it answers for a model depends on all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.store.layout import source_id

if TYPE_CHECKING:
    from collections.abc import Container
    from collections.abc import Set as AbstractSet

    from indexer.model import Descriptor
    from indexer.partitions.shelves import Shelves


class PassedOver:
    """By `layout.source_name`. `models`: those that are followed; None: all, and nothing is passed over."""

    def __init__(self, models: AbstractSet[str] | None, shelves: Shelves) -> None:
        self._models = models
        self._shelves = shelves
        self._of: dict[bytes, tuple[str, str | None]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def takes(self, descriptor: Descriptor) -> bool:
        """Whether it is to be followed."""
        return self._models is None or descriptor.model in self._models

    def note(self, name: bytes, descriptor: Descriptor) -> None:
        """It is registered, and passed over."""
        kind = descriptor.tenant, descriptor.model
        if self._of.get(name) != kind:
            self.forget(name)
            self._of[name] = kind
            self._shelves.passes_over(*kind)

    def forget(self, name: bytes) -> None:
        """It is gone, or followed."""
        kind = self._of.pop(name, None)
        if kind is not None:
            self._shelves.passes_over_no_more(*kind)

    def keep(self, names: Container[bytes]) -> None:
        """The registry was read: no others than these are there."""
        for name in [name for name in self._of if name not in names]:
            self.forget(name)

    def has_pod(self, pod: str) -> bool:
        """Whether a rank of that pod is among them. Looks at all: for commands."""
        return any(source_id(name).pod == pod for name in self._of)
