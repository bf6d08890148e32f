"""What a discoverer tells: whole pictures of the engines there are. Pure.

A picture is a level, not a change: whoever missed one needs none but the next, and telling one twice does nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

import msgspec

from indexer.model import Descriptor, SourceId

REMARKS_MAX: Final = 64
"""Of one picture: what is wrong with a thousand pods is one mistake, and is told of some."""
WHY_CHARACTERS_MAX: Final = 200
"""Of a remark, and of why a source is not ready."""

_NO_REMARKS: Final[Mapping[str, str]] = MappingProxyType({})
_NO_PENDING: Final[Mapping[str, Pending]] = MappingProxyType({})


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One source as an orchestrator or a name server tells of it."""

    descriptor: Descriptor
    """Of origin `discovery`."""
    ready: bool = True
    """Whether requests may go there. A source that is not ready goes on learning and is not scored (`not_ready`)."""
    life: str = ""
    """Which engine process it is, opaque: another value is another process. Empty where nobody can tell."""
    why: str = ""
    """Why it is not ready, for people: "pod is terminating"."""
    block_size: int | None = None
    """Tokens of a block of its cache, where that is said; whether its events agree is told, and nothing follows."""


class Pending(NamedTuple):
    """A pod that is there, of which it is not known yet which sources it has: what stands of it goes on standing."""

    ready: bool
    """As of `Found`."""
    life: str


class Picture(NamedTuple):
    """All the sources that a discoverer knows of at one moment."""

    found: Mapping[SourceId, Found]
    remarks: Mapping[str, str] = _NO_REMARKS
    """By pod, what could not be made a source, or not as asked, and why. For people; `REMARKS_MAX` at most."""
    pending: Mapping[str, Pending] = _NO_PENDING
    """By the name that its sources have. Who begins to watch asks engines anew, and knows their sources later."""


class Discoverer(Protocol):
    """Looks at one orchestrator or name server for as long as it runs."""

    name: str
    """`kubernetes`, `dns`: the label of its metrics."""
    heard_at: float | None
    """When the other side said anything last, on the boot-time clock, if only that nothing changed; None: not yet."""
    trouble: str
    """Why it cannot be heard now, in words for the log; empty where it can, or where remarks say so."""
    failures: Counter[str]
    """How often it could not be heard, by reason: words of a closed list, a label of its metrics."""

    async def run(self, told: Callable[[Picture], None]) -> None:
        """Tell a whole picture whenever it changes, and the first one when it is whole; until cancelled.

        It raises nothing for what others do: where the other side is away or wrong, it tries again and tells nothing,
        and the latest picture stands. `told` returns at once.
        """
        ...
