"""What is loaded when it is first asked for, in a thread: the loop answers others meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_loaded: Final[dict[Callable[[], Any], Any]] = {}


async def loaded(load: Callable[[], T]) -> T:
    """What that function of a module returns, which imports something: the same from the first time on."""
    if load not in _loaded:
        _loaded[load] = await asyncio.to_thread(load)
    found: T = _loaded[load]
    return found
