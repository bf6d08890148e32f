"""Python loads this in every process of the service that tests start: asked by SIGUSR2, it tells what it waits for.

A process that does not end in time is a fault that comes once in a thousand runs; what it waited for is then all there
is to find it by.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import signal
import sys


def _where(awaited: object) -> list[str]:
    """The calls that wait for each other, from a task's own down to what it waits for."""
    calls = []
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        calls.append(repr(awaited) if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}")
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return calls


def _tell(*_: object) -> None:
    faulthandler.dump_traceback(sys.__stderr__)
    for task in [each for each in gc.get_objects() if isinstance(each, asyncio.Task)]:
        if not task.done():
            calls = "\n     ".join(_where(task.get_coro()))
            told = f"-- {task.get_name()}, cancelled {task.cancelling()} times:\n     {calls}"
            print(told, file=sys.__stderr__, flush=True)


signal.signal(signal.SIGUSR2, _tell)
