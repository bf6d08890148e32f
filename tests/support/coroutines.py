"""Runs tests that are coroutines: each on an event loop of its own, as the service's."""

import asyncio
import inspect

import pytest
import uvloop


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine function to its end."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(pyfuncitem.obj(**wanted))
    return True
