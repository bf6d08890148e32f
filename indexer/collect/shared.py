"""What all subscribers and listeners of a process have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import zmq

from indexer.collect.commands import Ask
from indexer.collect.lanes import LaneBudget
from indexer.collect.options import CollectOptions
from indexer.collect.pump import Pump
from indexer.collect.ring import Ring, RingBudget
from indexer.ports import Clock

if TYPE_CHECKING:
    import asyncio

    from indexer.collect.subscriber import Subscriber

AskEngine: TypeAlias = "Callable[[Subscriber, Ask], asyncio.Task[None] | None]"
"""Opens a conversation for a subscriber; None when the fleet is closing."""


@dataclass(frozen=True, slots=True)
class Shared:
    """Of one fleet."""

    context: zmq.Context[zmq.Socket[bytes]]
    options: CollectOptions
    clock: Clock
    budget: LaneBudget
    standby: RingBudget
    pump: Pump
    ask: AskEngine

    def ring(self) -> Ring:
        """An empty one."""
        return Ring(self.options.standby_source_bytes, self.standby, self.options.rcvhwm_messages)
