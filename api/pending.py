"""What is held of bodies that have not come as a whole: one bound in bytes for all doors of a process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from api.admission import Shares
from indexer.allocator import return_freed_memory

if TYPE_CHECKING:
    from collections.abc import Callable

FLOOD_BYTES: Final = 64 * 2**20
"""Of unfinished bodies at once."""
FLOOD_OVER_S: Final = 1.0
"""From where none is held any more to where the memory is given back."""


class Pending(Shares):
    """`limits.pending_bytes`. What a flood took is given back to the system, or it would be kept for good."""

    def __init__(
        self,
        most: int,
        reached: Callable[[str], None] = lambda _: None,
        return_memory: Callable[[], None] = return_freed_memory,
    ) -> None:
        super().__init__("limits.pending_bytes", most, reached=reached)
        self._return_memory = return_memory
        self._peak = 0
        """Of all that was held at once, since nothing was."""
        self._returning: asyncio.TimerHandle | None = None
        """Set while memory is about to be given back: once for all floods that end meanwhile."""

    def give_back(self, caller: str, amount: int = 1) -> None:
        """It is held no more."""
        self._peak = max(self._peak, self.total)
        super().give_back(caller, amount)
        if self.total:
            return
        if self._peak >= FLOOD_BYTES and self._returning is None:
            self._returning = asyncio.get_running_loop().call_later(FLOOD_OVER_S, self._return)
        self._peak = 0

    def _return(self) -> None:
        self._returning = None
        self._return_memory()
